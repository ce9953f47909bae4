"""Learn from calibration recordings: white noise from known directions, listed in a table."""

import csv
import tempfile
from pathlib import Path

import numpy as np

import earatlas as ea

# Simulates a loudspeaker that is moved around the head: 61 frontal directions.
grid = ea.Sphere().grid(12.0)
directions = grid[(np.abs(grid[:, 0]) <= 60) & (np.abs(grid[:, 1]) <= 40)]
ears = ea.simulated_head(directions)
rng = np.random.default_rng(0)

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    with (folder / "calibration.csv").open("w", newline="") as table:
        rows = csv.writer(table)
        rows.writerow(["file", "azimuth", "elevation"])
        for i, direction in enumerate(directions):
            noise = ea.render_scene(ears, [rng.normal(size=16_000)], [direction]).mixture
            rows.writerow([noise.write(folder / f"{i:03d}.wav").name, *direction.round(2)])

    head = ea.read_recordings(folder / "calibration.csv")  # kind="noise" skips the detection
    print(head, "-", head.provenance)
    for warning in ea.diagnose(head).warnings:
        print("warning:", warning)

    atlas = ea.learn(head)
    atlas.save(folder / "mine.atlas")
    atlas = ea.Atlas.load(folder / "mine.atlas")
    print(atlas)

talker = ea.render_scene(ears, [ea.synthetic_speech(3.0, seed=4)], [[30, 10]])
where = atlas.localize(talker.mixture)
print(f"true {talker.directions[0].round(1)}, estimated {where.direction.round(1)} degrees")
print(f"90 % of the posterior mass is within {where.radius_90:.0f} degrees")
