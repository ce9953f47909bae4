# %% [markdown]
# # One talker
#
# A recording is two channels, left ear first. `localize` returns a posterior of the direction of its one source.
# Azimuth is positive to the left, elevation is positive upwards, both in degrees.

# %%
import numpy as np

import earatlas as ea

atlas = ea.example_atlas()  # of the simulated head that ships with the package
true = [40.0, 10.0]
speech = ea.synthetic_speech(2.0, seed=1)
recording = ea.render_scene(ea.simulated_head([true]), [speech], [true]).mixture
recording

# %%
where = atlas.localize(recording)
where

# %% [markdown]
# The number to trust is the radius: it contains the source with a probability of 90 %.

# %%
error = float(ea.great_circle_error(where.direction, true))
print(f"error {error:.1f} degrees, radius {where.radius_90:.1f} degrees")
assert error < where.radius_90

# %% [markdown]
# ## Over time
#
# A talker who walks: `localize_frames` returns one localization per window. A track is a sequence, and `to_pandas` makes a table.

# %%
grid = ea.simulated_head([[azimuth, 0.0] for azimuth in range(-90, 91, 5)])
walk = ea.Trajectory(seconds=(0.0, 2.0), directions=((60.0, 0.0), (-60.0, 0.0)))
walking = ea.render_scene(grid, [speech], [walk])
track = atlas.localize_frames(walking.mixture)
track

# %%
columns = track.to_dict()
print(list(columns))
print(columns["azimuth"][::5])
assert columns["azimuth"][0] > 30 > -30 > columns["azimuth"][-1]

# %% [markdown]
# ## The sound itself is an array

# %%
samples = np.asarray(recording)
level_db = 20 * np.log10(np.sqrt((samples**2).mean(axis=1)))
print("left and right level in dB:", level_db.round(1))
