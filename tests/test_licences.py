"""Licences are told: of every package that is needed, and of the data in every atlas."""

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import netCDF4
import numpy as np
import pytest

import earatlas as ea

Run = Callable[..., subprocess.CompletedProcess[str]]
ROOT = Path(__file__).parents[1]


def test_every_package_is_told() -> None:
    """Those that are always there, and those of the extras, each with its extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    always, _, extras = (ROOT / "docs/licences.md").read_text().partition("## What the extras")
    for needed in project["dependencies"]:
        assert re.search(rf"\| [^|]*\b{re.split('[><=]', needed)[0]}\b", always), needed
    for extra, packages in project["optional-dependencies"].items():
        for needed in packages if extra != "all" else ():
            name = re.split("[><=]", needed)[0]
            assert re.search(rf"\| `{extra}` \| [^|]*\b{name}\b", extras), needed


def test_everything_that_is_installed_has_its_hash() -> None:
    """What is installed from the lock is what it was made with: pip checks every file."""
    text = (ROOT / "requirements.lock").read_text()
    blocks = re.split(r"\n(?=[a-zA-Z0-9])", text[text.index("\nannotated") + 1 :])
    assert len(blocks) > 50
    for block in blocks:
        assert "==" in block.splitlines()[0]
        assert "--hash=sha256:" in block, block.splitlines()[0]


@pytest.mark.usefixtures("learned_before")
def test_an_atlas_tells_the_licence_of_its_head(run: Run, tmp_path: Path) -> None:
    """From the SOFA file to the atlas to `info`; where nothing is said, that is said."""
    head = ea.simulated_head([[float(a), 0.0] for a in range(-180, 180, 20)])
    path = tmp_path / "x.SOFA"
    with netCDF4.Dataset(path, "w") as file:
        file.SOFAConventions = "SimpleFreeFieldHRIR"
        ears = head.responses().samples
        for name, size in (("M", len(head)), ("R", 2), ("N", ears.shape[2]), ("C", 3), ("I", 1)):
            file.createDimension(name, size)
        for name, dimensions, values in (
            ("Data.IR", "MRN", ears),
            ("Data.SamplingRate", "I", [head.responses().rate]),
            ("SourcePosition", "MC", np.column_stack([head.directions, np.ones(len(head))])),
        ):
            file.createVariable(name, "f8", tuple(dimensions))[:] = values
        file["SourcePosition"].Type = "spherical"
    silent = Path(shutil.copy(path, tmp_path / "silent.SOFA"))
    with netCDF4.Dataset(path, "a") as file:
        file.License = "CC BY-SA 4.0"
    for source, licence in ((path, "CC BY-SA 4.0"), (silent, "unknown")):
        atlas = tmp_path / "x.atlas"
        assert run("learn", source, "-o", atlas, "--components", 2).returncode == 0
        assert json.loads(run("info", atlas, "--json").stdout)["licence"] == licence
        assert re.search(rf"licence +{licence}", run("info", atlas).stdout)
