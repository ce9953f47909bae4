"""Shared fixtures: where the measured data are, a small asymmetric head, and a command runner."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import earatlas as ea
from earatlas.atlas import Atlas, learn

DATA = Path(os.environ.get("EARATLAS_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of measured heads, rooms and speech; tests that need it skip without it."""
    if not (DATA / "heads").is_dir():
        pytest.skip(f"no measured data in {DATA}: set EARATLAS_DATA")
    return DATA


@pytest.fixture(scope="session")
def small_head() -> ea.Head:
    """The simulated head at 183 directions all round."""
    return ea.simulated_head(ea.Sphere().grid(15.0))


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers, the same every time."""
    return np.random.default_rng(7)


@pytest.fixture(scope="session")
def run() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command line as a user does: a process of its own, text in and out."""

    def call(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "earatlas", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)  # type: ignore[call-overload,no-any-return]

    return call


@pytest.fixture(scope="session")
def atlas_head() -> ea.Head:
    """The simulated head at 700 directions all round."""
    return ea.simulated_head(ea.Sphere().grid(7.677))


@pytest.fixture(scope="session")
def atlas(atlas_head: ea.Head) -> Atlas:
    """What is learned of it with 48 components: seconds, and good to a few degrees."""
    return learn(atlas_head, components=48)
