# %% [markdown]
# # No head of your own
#
# Nobody measured the head that made your recordings? The atlas of people was learned from 31 persons. What it does not know about your head makes its posteriors wider.

# %%
import earatlas as ea

atlas = ea.people_atlas()
atlas

# %% [markdown]
# ## Use it
#
# The packaged recording has two talkers, at (40, 0) and (-60, 19) degrees. Its head is not among the 31.

# %%
scene = atlas.separate(ea.example_recording(), n_sources=2)
scene

# %%
result = ea.evaluate(scene, [[40.0, 0.0], [-60.0, 19.0]])
print(result)
print([source.inside_90 for source in result.sources])
assert result.mean("azimuth_error_degrees") < 10

# %% [markdown]
# ## Adapt it
#
# Recordings of one talker at a time, from several directions, tell how your head deviates. The directions need not be known. A verdict says whether adaptation helps;
# here there are far too few recordings.

# %%
head = ea.simulated_head([[60.0, 0.0], [-30.0, 20.0]])
recordings = [
    ea.render_scene(head, [ea.synthetic_speech(1.0, seed=m)], [place]).mixture
    for m, place in enumerate(([60, 0], [-30, 20]))
]
adapted, adaptation = atlas.adapt(recordings)
print(adaptation)
