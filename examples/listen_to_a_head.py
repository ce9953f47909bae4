"""First steps: a head, a scene with two sources, and its interaural cues."""

import tempfile
from pathlib import Path

import numpy as np

import earatlas as ea
from earatlas.plotting.cues import plot_cues
from earatlas.plotting.heads import plot_head
from earatlas.plotting.style import save

head = ea.simulated_head()  # or ea.read_sofa("ku100.sofa"), ea.read_recordings("calibration.csv")
print(head, ea.diagnose(head).warnings)

rng = np.random.default_rng(0)
clicks = np.zeros(16_000)
clicks[::800] = 1.0
scene = ea.render_scene(head, [rng.normal(size=16_000), clicks], [[60, 0], [-45, 30]])
print(scene)

cues = ea.audio_cues(scene.mixture)
print(cues)

with tempfile.TemporaryDirectory() as folder:
    scene.write(folder)
    save(plot_head(head), Path(folder) / "head.png")
    save(plot_cues(cues, title="noise on the left, clicks on the right"), Path(folder) / "cues.png")
    print(sorted(path.name for path in Path(folder).iterdir()))
