"""Tests of the test helpers: commands in process, and the cache of learned heads."""

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import learned_heads
import numpy as np
import pytest
import soundfile
from learned_heads import LearnedHeads

import earatlas as ea
import earatlas.cli
from earatlas.cli import console
from earatlas.code_hash import reached_units
from earatlas.localization.learned_head import MODEL_ARRAYS
from earatlas.training.learn_head import learn_head

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def recording(tmp_path: Path, rng: np.random.Generator) -> Path:
    """Write half a second of stereo noise, and a table with it from two directions."""
    soundfile.write(tmp_path / "x.wav", 0.1 * rng.normal(size=(8000, 2)), 16_000)
    (tmp_path / "x.csv").write_text("file,azimuth,elevation\nx.wav,40,0\nx.wav,-40,0\n")
    return tmp_path / "x.wav"


@pytest.mark.parametrize("arguments", [["info", "x.csv"], ["cues", "y.wav"], ["cuez"]])
def test_in_process_equals_new_process(
    run: Run, run_process: Run, recording: Path, arguments: list[str]
) -> None:
    """Exit code and output are equal for a result, an input error and a wrong command."""
    ours, theirs = (call(*arguments, cwd=recording.parent) for call in (run, run_process))
    assert ours.returncode == theirs.returncode
    assert ours.stdout == theirs.stdout
    last = [
        result.stderr.splitlines()[-2:] for result in (ours, theirs)
    ]  # the usage line contains the program name
    assert last[0] == last[1]


def test_command_in_process_restores_the_state(run: Run, recording: Path) -> None:
    """Folder, environment, streams and warnings do not change."""

    def state() -> tuple[object, ...]:
        streams = (sys.argv, sys.stdin, sys.stdout, sys.stderr)
        return (Path.cwd(), dict(os.environ), *streams, warnings.showwarning, *warnings.filters)

    before = state()
    assert run("cues", "x.wav", cwd=recording.parent, env={"COLUMNS": "50"}).returncode == 0
    assert state() == before


@pytest.mark.parametrize("arguments", [["info", "--help"], ["info", "x.csv"]])
def test_command_in_process_has_its_own_width(
    run: Run, recording: Path, arguments: list[str]
) -> None:
    """The width follows COLUMNS of the command, not that of the session."""
    console.out.width = 100  # as if the session had started in a terminal
    widths = []
    for columns in (40, 60, 40):
        result = run(*arguments, cwd=recording.parent, env={"COLUMNS": str(columns)})
        widths.append(max(map(len, result.stdout.splitlines())))
    assert widths[0] == widths[2] <= 40 < widths[1] <= 60


def test_exit_codes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number is the exit code, a text is an error, and None is success."""
    for end, code, message in ((3, 3, ""), (None, 0, ""), ("no!", 1, "no!\n")):
        monkeypatch.setattr(earatlas.cli, "main", lambda end=end: sys.exit(end))
        result = run("x")
        assert (result.returncode, result.stderr) == (code, message)


def test_head_is_learned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache returns the learned head; another head or setting is learned again."""
    calls: list[int] = []

    def counted(head: ea.Head, **settings: Any) -> object:
        calls.append(len(head))
        return learn_head(head, **settings)

    monkeypatch.setattr(learned_heads, "learn_head", counted)
    ring = ea.simulated_head([[float(a), 0.0] for a in range(-90, 91, 15)])
    fresh = ea.learn(ring, components=2, rooms=False)
    for heads in (LearnedHeads(tmp_path), LearnedHeads(tmp_path)):
        again = heads.learn(ring, components=2, rooms=False, seed=0)
        for name in MODEL_ARRAYS:
            np.testing.assert_array_equal(getattr(again.model, name), getattr(fresh.model, name))
        assert (again.about, again.layout, again.space) == (fresh.about, fresh.layout, fresh.space)
    assert calls == [13]
    heads.learn(ring, components=3, rooms=False)
    heads.learn(ring, components=2, rooms=False, constrained=False)
    heads.learn(ring.subset(np.arange(12)), components=2, rooms=False)
    assert calls == [13, 13, 13, 12]


@pytest.mark.parametrize("changed", ["code", "data"])
def test_changed_learner_learns_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    """Heads of other code or other data of the package are not used."""
    before = learned_heads.code_fingerprint()
    if changed == "code":
        monkeypatch.setattr(learned_heads, "code_hash", lambda function: "other")
    else:
        (tmp_path / "data").mkdir()
        for name in learned_heads._FORMAT:
            shutil.copy(Path(ea.__file__).with_name(name), tmp_path)
        for path in Path(ea.__file__).with_name("data").iterdir():
            (tmp_path / "data" / path.name).write_bytes(path.read_bytes()[:-1])
        monkeypatch.setattr(ea, "__file__", str(tmp_path / "__init__.py"))
    assert LearnedHeads(tmp_path / "heads").folder.name != before


def test_fingerprint_follows_what_learning_uses() -> None:
    """The hash of the code of learning reaches the modules that compute, in every package."""
    units = reached_units(learn_head)
    for used in (
        "ppam.em.EM.m_step", "parts.complete", "localization.onset_mixture.OnsetMixture",
        "simulation.synthetic_speech.SyntheticTalkers.voices", "numerics.logsumexp",
        "training.reverberant.ReverberantTrainingSettings", "packaged_atlases.PEOPLE_ATLAS",
        "hrtf.interaural_templates.InterauralTemplates", "features.stft.stft",
    ):  # fmt: skip
        assert f"earatlas.{used}" in units, used
