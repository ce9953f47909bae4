# %% [markdown]
# # Rooms
#
# Reverberation changes the cues. An atlas that was prepared for rooms (the default of `learn`) uses the onsets of sounds, which arrive before their reflections.

# %%
import earatlas as ea

atlas = ea.example_atlas()
true = [50.0, 0.0]
head = ea.simulated_head(ea.Sphere().grid(12.0))
speech = ea.synthetic_speech(1.5, seed=3)

# %%
dry = ea.render_scene(head, [speech], [true])
room = ea.Room(size_metres=(6.0, 5.0, 3.0), t60_seconds=0.4, listener_metres=(3.0, 2.0, 1.5))
wet = ea.render_scene(head, [speech], [true], room=room)
wet.mixture

# %% [markdown]
# ## The same talker, in the free field and in the room
#
# The doubt "reverberant" says what was found and what it means. The radius is larger, because directions are less certain in reverberation.

# %%
for name, scene in (("free field", dry), ("room", wet)):
    where = atlas.localize(scene.mixture)
    error = float(ea.great_circle_error(where.direction, scene.directions[0]))
    print(f"{name}: error {error:.1f} degrees, radius {where.radius_90:.1f} degrees")
    print("  ", [str(doubt.word) for doubt in where.doubts])

# %%
where = atlas.localize(wet.mixture)
assert where.radius_90 > atlas.localize(dry.mixture).radius_90
where
