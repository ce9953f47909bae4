"""Localize one talker: learn a head, localize a voice between its directions, with uncertainty."""

import numpy as np

import earatlas as ea

# A head with frontal directions, 10 degrees apart. Yours: ea.read_sofa("head.sofa"). The recording
# is made with this very head; by default it may be another unit, whose uncertainty is larger.
everywhere = ea.Sphere().grid(10.0)
ahead = (np.abs(everywhere[:, 0]) <= 60) & (np.abs(everywhere[:, 1]) <= 40)
head = ea.simulated_head(everywhere[ahead])
atlas = ea.learn(head, unit="same")
print(atlas)
if atlas.accuracy is not None:
    print(f"held-out directions: median error {atlas.accuracy.median_degrees:.1f} degrees")

# The talker is at a direction that was not learned.
truth = np.array([[27.0, 12.0]])
talker = ea.render_scene(ea.simulated_head(truth), [ea.synthetic_speech(3.0, seed=5)], truth)
where = atlas.localize(talker.mixture)  # yours: ea.read_audio("talker.wav")

azimuth, elevation = where.direction
print(f"true {truth[0]}, estimated azimuth {azimuth:.1f}, elevation {elevation:.1f} degrees")
print(f"error: {ea.great_circle_error(truth, where.direction[None])[0]:.1f} degrees")
print(f"90 % of the posterior mass is within {where.radius_90:.1f} degrees")

# The posterior is a density: draw samples, or multiply it with the density of another sensor.
draws = where.posterior.sample(1000, seed=0)
print(f"probability of a positive elevation: {np.mean(draws[:, 1] > 0):.2f}")
