# %% [markdown]
# # Your head
#
# A head is a set of directions with the impulse responses of both ears. An atlas is what is learned from it.
# This notebook uses a simulated head, so that it needs no data. Replace the first line by
# `ea.read_sofa("my_head.sofa")` or `ea.read_recordings("measurements.csv")` for your own.

# %%
import numpy as np

import earatlas as ea

ring = [[azimuth, 0.0] for azimuth in range(-180, 180, 10)]
head = ea.simulated_head(ring)
head

# %% [markdown]
# ## What limits this head
#
# `diagnose` measures coverage, symmetry and noise. A head that was measured at one elevation knows nothing about others: its space is a circle.

# %%
report = ea.diagnose(head)
print(report.directions, report.space, [str(warning) for warning in report.warnings])

# %% [markdown]
# ## Learn it
#
# `rooms=False` saves time here. With the default, the atlas can also be used in reverberant rooms.

# %%
atlas = ea.learn(head, rooms=False)
print(atlas.accuracy)
atlas

# %% [markdown]
# ## Save it, and use it
#
# An atlas is one file. `write_sofa` exports the head itself, also one at other directions.

# %%
from pathlib import Path
from tempfile import TemporaryDirectory

with TemporaryDirectory() as folder:
    file = atlas.save(Path(folder) / "head.atlas")
    atlas = ea.Atlas.load(file)
    sofa = ea.write_sofa(head, Path(folder) / "head.sofa", licence="CC0")
    again = ea.read_sofa(sofa)

np.testing.assert_allclose(again.directions, head.directions, atol=1e-9)
scene = ea.render_scene(head, [ea.synthetic_speech(1.0)], [[60.0, 0.0]])
atlas.localize(scene.mixture)
