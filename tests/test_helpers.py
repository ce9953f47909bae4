"""The tests' own tools: a command in process is a command, and a head is learned once."""

import os
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
from earatlas.training.learn_head import MODEL_ARRAYS, learn_head

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def recording(tmp_path: Path, rng: np.random.Generator) -> Path:
    """Half a second of stereo noise, and a table that has it from two directions."""
    soundfile.write(tmp_path / "x.wav", 0.1 * rng.normal(size=(8000, 2)), 16_000)
    (tmp_path / "x.csv").write_text("file,azimuth,elevation\nx.wav,40,0\nx.wav,-40,0\n")
    return tmp_path / "x.wav"


@pytest.mark.parametrize("arguments", [["info", "x.csv"], ["cues", "y.wav"], ["cuez"]])
def test_in_process_is_as_in_a_process(
    run: Run, run_process: Run, recording: Path, arguments: list[str]
) -> None:
    """The same exit code and the same texts, for an answer, a refusal and a wrong name."""
    ours, theirs = (call(*arguments, cwd=recording.parent) for call in (run, run_process))
    assert ours.returncode == theirs.returncode
    assert ours.stdout == theirs.stdout
    last = [result.stderr.splitlines()[-2:] for result in (ours, theirs)]  # usage has the program
    assert last[0] == last[1]


def test_nothing_is_left_of_a_command_in_process(run: Run, recording: Path) -> None:
    """Folder, environment, streams and warnings are those of before."""

    def surroundings() -> tuple[object, ...]:
        streams = (sys.argv, sys.stdin, sys.stdout, sys.stderr)
        return (Path.cwd(), dict(os.environ), *streams, warnings.showwarning, *warnings.filters)

    before = surroundings()
    assert run("cues", "x.wav", cwd=recording.parent, env={"COLUMNS": "50"}).returncode == 0
    assert surroundings() == before


@pytest.mark.parametrize("arguments", [["info", "--help"], ["info", "x.csv"]])
def test_a_command_in_process_has_its_own_width(
    run: Run, recording: Path, arguments: list[str]
) -> None:
    """COLUMNS of its environment, not of the session's or of the command before."""
    console.out.width = 100  # as if the session had begun in a terminal
    widths = []
    for columns in (40, 60, 40):
        result = run(*arguments, cwd=recording.parent, env={"COLUMNS": str(columns)})
        widths.append(max(map(len, result.stdout.splitlines())))
    assert widths[0] == widths[2] <= 40 < widths[1] <= 60


def test_how_a_program_may_end(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the interpreter has it: a number is the exit code, words are an error, None is fine."""
    for end, code, words in ((3, 3, ""), (None, 0, ""), ("no!", 1, "no!\n")):
        monkeypatch.setattr(earatlas.cli, "main", lambda end=end: sys.exit(end))
        result = run("x")
        assert (result.returncode, result.stderr) == (code, words)


def test_a_head_is_learned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes back is what learning gave; another head or setting is learned by itself."""
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
