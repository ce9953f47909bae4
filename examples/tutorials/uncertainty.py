# %% [markdown]
# # Uncertainty
#
# The answer to "where is it?" is a probability density over all directions. This notebook shows what can be computed with it.

# %%
import numpy as np

import earatlas as ea

atlas = ea.example_atlas()
true = [20.0, 30.0]
head = ea.simulated_head([true])
clean = ea.render_scene(head, [ea.synthetic_speech(1.0, seed=4)], [true])
noisy = ea.render_scene(
    head, [ea.synthetic_speech(1.0, seed=4)], [true], settings=ea.SceneSettings(snr_db=0.0)
)
posterior = atlas.localize(clean.mixture).posterior
posterior

# %% [markdown]
# ## Regions
#
# A region of 90 % contains the source nine times out of ten, over many recordings. `credible_level` tells which region would just contain a direction.

# %%
region = posterior.credible_region(0.9)
print(
    f"{region.area:.0f} square degrees; the truth is at level {posterior.credible_level(true):.2f}"
)

# %% [markdown]
# ## Noise makes it wider, and is a doubt

# %%
where = atlas.localize(noisy.mixture)
print(where)
assert where.radius_90 > posterior.radius_90
where

# %% [markdown]
# ## Combine it with something else
#
# A camera saw a face at about 25 degrees to the left, at an unknown height: multiply the densities.

# %%
camera = where.posterior.reweighted(lambda x: -0.5 * ((x[:, 0] - 25.0) / 5.0) ** 2)
print(f"{where.radius_90:.1f} degrees before, {camera.radius_90:.1f} degrees after")

# %% [markdown]
# ## Front or back?
#
# Samples of the posterior answer any question.

# %%
azimuths = where.posterior.sample(5000)[:, 0]
print(f"probability that it is in front: {np.mean(np.abs(azimuths) < 90):.2f}")
where.alternatives
