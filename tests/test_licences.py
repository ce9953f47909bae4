"""Tests of licence information: of the dependencies, and of the data in an atlas."""

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


def test_licences_of_all_dependencies_are_listed() -> None:
    """docs/licences.md lists required packages and those of each extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required, _, extras = (ROOT / "docs/licences.md").read_text().partition("## Optional packages")
    for needed in project["dependencies"]:
        assert re.search(rf"\| [^|]*\b{re.split('[><=]', needed)[0]}\b", required), needed
    for extra, packages in project["optional-dependencies"].items():
        for needed in packages if extra != "all" else ():
            name = re.split("[><=]", needed)[0]
            assert re.search(rf"\| `{extra}` \| [^|]*\b{name}\b", extras), needed


def test_lock_file_has_hashes() -> None:
    """Every package in the lock file has a version and hashes, which pip verifies."""
    text = (ROOT / "requirements.lock").read_text()
    blocks = re.split(r"\n(?=[a-zA-Z0-9])", text[text.index("\nannotated") + 1 :])
    assert len(blocks) > 50
    for block in blocks:
        assert "==" in block.splitlines()[0]
        assert "--hash=sha256:" in block, block.splitlines()[0]


@pytest.mark.usefixtures("cached_learning")
def test_atlas_contains_licence_of_head(run: Run, tmp_path: Path) -> None:
    """The licence is copied from SOFA file to atlas to `info`; a missing one is "unknown"."""
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
    unlicensed = Path(shutil.copy(path, tmp_path / "unlicensed.SOFA"))
    with netCDF4.Dataset(path, "a") as file:
        file.License = "CC BY-SA 4.0"
    for source, licence in ((path, "CC BY-SA 4.0"), (unlicensed, "unknown")):
        atlas = tmp_path / "x.atlas"
        assert run("learn", source, "-o", atlas, "--components", 2).returncode == 0
        assert json.loads(run("info", atlas, "--json").stdout)["licence"] == licence
        assert re.search(rf"licence +{licence}", run("info", atlas).stdout)
