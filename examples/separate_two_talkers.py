"""Two talkers at once: how many, where, and each by itself, with dB before and after.

A simulated head in the open, at directions that it was learned from, is the easiest case there is:
docs/figures.md has measured heads, other directions and rooms.
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
scene = atlas.separate(party.mixture)  # n_sources=2 if you know; yours: ea.read_audio("party.wav")
print(party)
print(scene)


def over_the_rest(image: ea.Audio, sound: ea.Audio) -> float:
    """How far a true image stands above what is wrong in a sound, in dB."""
    wrong = sound.samples - image.samples
    return float(10 * np.log10((image.samples**2).sum() / (wrong**2).sum()))


for m, name in enumerate(party.names):
    angles = ea.great_circle_error(party.directions[m], scene.directions)
    source = scene.sources[int(np.argmin(angles))]
    before = over_the_rest(party.image(m), party.mixture)
    after = over_the_rest(party.image(m), source.audio)
    print(f"{name}: {angles.min():.1f} degrees off, {before:.0f} dB before, {after:.0f} dB after")

total = sum(source.audio.samples for source in scene.sources)
print(f"the sounds add up to the mixture: {np.allclose(total, scene.mixture.samples)}")
with tempfile.TemporaryDirectory() as folder:
    for source in scene.sources:
        print(source.audio.write(Path(folder) / f"{source.name}.wav").name, source)
