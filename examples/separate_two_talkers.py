"""Separate two talkers: their number, directions and signals, with the SDR before and after.

A simulated head in anechoic conditions, at directions that were learned, is the easiest case;
docs/figures has results for measured heads, other directions and rooms.
"""

import tempfile
from pathlib import Path

import numpy as np

import earatlas as ea

everywhere = ea.Sphere().grid(10.0)
ahead = (np.abs(everywhere[:, 0]) <= 60) & (np.abs(everywhere[:, 1]) <= 40)
head = ea.simulated_head(everywhere[ahead])
atlas = ea.learn(head)

voices = [ea.synthetic_speech(3.0, seed=11), ea.synthetic_speech(3.0, seed=12)]
party = ea.render_scene(head, voices, [[35, 5], [-25, -10]], names=["Ada", "Hugh"])
scene = atlas.separate(party.mixture)  # or of ea.read_audio("party.wav")
print(party)
print(scene)


def sdr_db(image: ea.Audio, estimate: ea.Audio) -> float:
    """Return the ratio of the true image to the error of the estimate, in dB."""
    error = estimate.samples - image.samples
    return float(10 * np.log10((image.samples**2).sum() / (error**2).sum()))


for m, name in enumerate(party.names):
    angles = ea.great_circle_error(party.directions[m], scene.directions)
    source = scene.sources[int(np.argmin(angles))]
    before = sdr_db(party.image(m), party.mixture)
    after = sdr_db(party.image(m), source.audio)
    print(
        f"{name}: {angles.min():.1f} degrees error, "
        f"SDR {before:.0f} dB before, {after:.0f} dB after"
    )

total = sum(source.audio.samples for source in scene.sources)
print(f"the signals add up to the mixture: {np.allclose(total, scene.mixture.samples)}")
with tempfile.TemporaryDirectory() as folder:
    for source in scene.sources:
        print(source.audio.write(Path(folder) / f"{source.name}.wav").name, source)
