"""Fixtures that several test files share: data, heads, an atlas, and the command line."""

import os
import subprocess
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from pathlib import Path

import executed_lines  # before the package is imported
import numpy as np
import pytest
from command_line import in_process, real_process
from learned_heads import LearnedHeads
from slow_tests import (  # noqa: F401, pytest finds the hooks here
    pytest_collection,
    pytest_collection_modifyitems,
    pytest_fixture_setup,
    pytest_runtest_call,
    pytest_runtest_logreport,
    pytest_runtest_setup,
    pytest_sessionfinish,
)

import earatlas as ea
from earatlas.atlas import Atlas
from earatlas.ppam.calibration import CalibrationSettings
from earatlas.simulation.synthetic_speech import SyntheticTalkers
from earatlas.training.learn_head import LearningSettings
from earatlas.training.reverberant import ReverberantTrainingSettings

pytest_configure = executed_lines.pytest_configure
DATA = Path(os.environ.get("EARATLAS_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(scope="session")
def data() -> Path:
    """Return the folder of measured heads, rooms and speech; skip the test if it is missing."""
    if not (DATA / "heads").is_dir():
        pytest.skip(f"no measured data in {DATA}: set EARATLAS_DATA")
    return DATA


@pytest.fixture(scope="session")
def small_head() -> ea.Head:
    """Return the simulated head at 183 directions on the sphere."""
    return ea.simulated_head(ea.Sphere().grid(15.0))


@pytest.fixture
def rng() -> np.random.Generator:
    """Return a random generator with a fixed seed."""
    return np.random.default_rng(7)


@pytest.fixture(scope="session")
def run() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs the command line in this process."""
    return in_process


@pytest.fixture(scope="session")
def run_process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs the command line in a new process, which takes a second."""
    return real_process


@pytest.fixture(scope="session")
def learned_heads(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> LearnedHeads:
    """Return the cache of learned heads; without pytest's cache, one for this session only."""
    if not request.config.pluginmanager.hasplugin("cacheprovider"):
        # The folder above that of a worker is shared by all workers of the session.
        return LearnedHeads(tmp_path_factory.getbasetemp().parent / "learned_heads")
    return LearnedHeads(request.config.cache.mkdir("learned_heads"))


@pytest.fixture(scope="session", autouse=True)
def shared_voices() -> Iterator[None]:
    """Synthesize the voices of equal talkers once: every learning takes 0.7 s for them."""
    voices = vars(SyntheticTalkers)["voices"].func
    shared = cached_property(lru_cache(maxsize=8)(voices))  # 25 MB each; a population needs five
    shared.__set_name__(SyntheticTalkers, "voices")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SyntheticTalkers, "voices", shared)
        yield


@pytest.fixture(scope="session", autouse=True)
def coarse_pictures() -> Iterator[Callable[..., None]]:
    """Save pictures with few pixels, and do not arrange their parts, which takes half the time.

    No test looks at single pixels. Returns matplotlib's function that arranges the parts.
    """
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    arrange = ConstrainedLayoutEngine.execute
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("earatlas.plotting.style.DOTS_PER_INCH", 40)
        patch.setattr(ConstrainedLayoutEngine, "execute", lambda *_: None)
        yield arrange


@pytest.fixture
def arranged_pictures(
    coarse_pictures: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrange the parts of pictures, as for users; all tests in tests/plotting use this."""
    monkeypatch.setattr("matplotlib.layout_engine.ConstrainedLayoutEngine.execute", coarse_pictures)


@pytest.fixture
def unsaved_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sections of experiments draw, but save nothing, for tests of their text."""
    monkeypatch.setattr("earatlas.experiments.figure_parts.save", lambda figure, path: path)


@pytest.fixture(autouse=True)
def few_training_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train with 20 scenes instead of 180."""
    monkeypatch.setattr(
        "earatlas.training.reverberant.TRAINING_SETTINGS", ReverberantTrainingSettings(scenes=20)
    )


@pytest.fixture
def fast_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learn with 12 sounds and 8 scenes, for tests that do not depend on the calibration."""
    monkeypatch.setattr(
        "earatlas.training.learn_head.LEARNING_SETTINGS", LearningSettings(max_held_out=12)
    )
    monkeypatch.setattr("earatlas.ppam.calibration._SETTINGS", CalibrationSettings(min_sounds=12))
    monkeypatch.setattr(
        "earatlas.training.reverberant.TRAINING_SETTINGS", ReverberantTrainingSettings(scenes=8)
    )


@pytest.fixture
def cached_learning(
    learned_heads: LearnedHeads, fast_learning: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Make `earatlas.learn` fast, and cache its results."""
    monkeypatch.setattr("earatlas.training.learn_head.learn_head", learned_heads.learn)


@pytest.fixture(scope="session")
def atlas_head() -> ea.Head:
    """Return the simulated head at 700 directions on the sphere."""
    return ea.simulated_head(ea.Sphere().grid(7.677))


@pytest.fixture(scope="session")
def atlas(atlas_head: ea.Head, learned_heads: LearnedHeads) -> Atlas:
    """Return the atlas of `atlas_head` with 48 components; errors are a few degrees."""
    return learned_heads.learn(atlas_head, components=48)
