"""Shared fixtures: measured data, small heads, a learned head, and the command line."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import in_process, real_process
from learned_heads import LearnedHeads
from slow_tests import (  # noqa: F401, hooks that pytest finds here
    pytest_collection_modifyitems,
    pytest_fixture_setup,
    pytest_runtest_call,
    pytest_runtest_logreport,
    pytest_runtest_setup,
    pytest_sessionfinish,
)

import earatlas as ea
from earatlas.atlas import Atlas

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
    """Run the command line in this process: arguments in, exit code and texts out."""
    return in_process


@pytest.fixture(scope="session")
def run_process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command line as a user does, in a process of its own: a second of start-up."""
    return real_process


@pytest.fixture(scope="session")
def learned_heads(request: pytest.FixtureRequest) -> LearnedHeads:
    """Heads that are learned once for all workers, and kept for the next session."""
    return LearnedHeads(request.config.cache.mkdir("learned_heads"))


@pytest.fixture(autouse=True)
def rooms_learned_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 scenes in the place of 180, but for the heads that tests share, which may be doubted."""
    monkeypatch.setattr("earatlas.training.reverberant._SCENES", 20)


@pytest.fixture
def learned_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """`earatlas.learn` with 12 sounds and 20 scenes: where nobody asks how sure it is."""
    monkeypatch.setattr("earatlas.training.learn_head._MOST_HELD_OUT", 12)
    monkeypatch.setattr("earatlas.ppam.calibration._FEWEST_SOUNDS", 12)
    monkeypatch.setattr("earatlas.training.reverberant._SCENES", 20)


@pytest.fixture
def learned_before(
    learned_heads: LearnedHeads, learned_quickly: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`earatlas.learn`, from wherever it is called, learns quickly, and the same head once."""
    monkeypatch.setattr("earatlas.atlas.learn_head", learned_heads.learn)


@pytest.fixture(scope="session")
def atlas_head() -> ea.Head:
    """The simulated head at 700 directions all round."""
    return ea.simulated_head(ea.Sphere().grid(7.677))


@pytest.fixture(scope="session")
def atlas(atlas_head: ea.Head, learned_heads: LearnedHeads) -> Atlas:
    """What is learned of it with 48 components: good to a few degrees."""
    return learned_heads.learn(atlas_head, components=48)
