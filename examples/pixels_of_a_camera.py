"""Learn positions in the image of a camera: a sound is shown where the camera sees its source."""

import csv
import tempfile
from pathlib import Path

import matplotlib.image
import numpy as np

import earatlas as ea
from earatlas.plotting.pictures import plot_on_picture
from earatlas.plotting.style import save
from earatlas.simulation.camera import Camera

# Simulates a loudspeaker with a marker that is moved in front of a head with a camera. A real
# calibration needs neither directions nor the camera's geometry: the marker is found in each image.
camera = Camera(640, 480)
columns, rows = np.meshgrid(np.arange(40, 640, 80), np.arange(40, 480, 80))
marker = np.stack([columns, rows], axis=-1).reshape(-1, 2)
ears = ea.simulated_head(camera.directions(marker))
rng = np.random.default_rng(0)

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    with (folder / "pixels.csv").open("w", newline="") as table:
        cells = csv.writer(table)
        cells.writerow(["file", "x", "y"])
        for i, (position, direction) in enumerate(zip(marker, ears.directions, strict=True)):
            noise = ea.render_scene(ears, [rng.normal(size=16_000)], [direction]).mixture
            cells.writerow([noise.write(folder / f"{i:03d}.wav").name, *position])

    head = ea.read_recordings(folder / "pixels.csv", image=ea.Plane.image(640, 480))
    print(head)
    atlas = ea.learn(head)
    atlas.save(folder / "camera.atlas")

    true = np.array([[180.0, 150.0], [470.0, 330.0]])
    talkers = ea.simulated_head(camera.directions(true))
    voices = [ea.synthetic_speech(3.0, seed=seed) for seed in (3, 4)]
    mixture = ea.render_scene(talkers, voices, talkers.directions).mixture
    scene = atlas.separate(mixture, n_sources=2)
    for source in scene.sources:
        print(f"{source.describe_place()}, 90 % within {source.radius_90:.0f} pixels")

    # The picture of the camera: a grey wall with two loudspeakers.
    picture = np.full((480, 640), 0.8)
    for x, y in true.astype(int):
        picture[y - 40 : y + 40, x - 25 : x + 25] = 0.3
    matplotlib.image.imsave(folder / "picture.png", picture, cmap="gray", vmin=0, vmax=1)
    posteriors = [source.posterior for source in scene.sources]
    save(plot_on_picture(posteriors, folder / "picture.png", truth=true), folder / "overlay.png")
    scene.report(folder / "report.html")
