# %% [markdown]
# # A party
#
# Two talkers who speak at the same time. `separate` estimates how many there are, where they are, and the sound of each at both ears.

# %%
import earatlas as ea

head = ea.simulated_head([[40.0, 0.0], [-60.0, 20.0]])
voices = [ea.synthetic_speech(1.0, seed=1), ea.synthetic_speech(1.0, seed=2)]
party = ea.render_scene(head, voices, [[40, 0], [-60, 20]], names=["Ada", "Hugh"])
atlas = ea.example_atlas()
scene = atlas.separate(party.mixture)
scene

# %% [markdown]
# ## How good is it?
#
# The scene was simulated, so the truth is known. For a recording whose directions alone are known, give these: `ea.evaluate(scene, [[40, 0], [-60, 20]])`.

# %%
result = ea.evaluate(scene, party)
print(result)
for source in result.sources:
    gain = source.sdr_db - source.mixture_sdr_db
    print(f"{source.name}: {source.error_degrees:.1f} degrees, {gain:+.0f} dB")
assert result.missed == ()

# %% [markdown]
# ## Files
#
# Sounds and numbers, a report for a colleague, and tables for other programs.

# %%
from pathlib import Path
from tempfile import TemporaryDirectory

with TemporaryDirectory() as folder:
    files = scene.write(folder, name="party")
    scene.report(Path(folder) / "party.html")
    ea.write_rttm(scene, Path(folder) / "party.rttm")
    ea.write_dcase(scene, Path(folder) / "party.csv")
    print(sorted(file.name for file in Path(folder).iterdir()))

# %%
scene.sources[0]
