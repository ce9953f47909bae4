"""Broken and unusual recordings: right, or doubted for the right reason.

`python benchmarks/signal_traps.py traps` has all rows with a measured head.
"""

import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from trap_table import (
    TRAPS,
    Trap,
    TrapSetup,
    Verdict,
    judge_localization,
    judge_scene,
    judge_stream,
)

import earatlas as ea
from earatlas.features.input_plausibility import InputFault
from earatlas.features.recording import MemoryRecording
from earatlas.localization.windowed import WindowedLocalizer, WindowSettings
from earatlas.types import Array

RATE = 16_000
ACCEPTED = {Verdict.RIGHT, Verdict.INSIDE, Verdict.REASON}
QUICK = [trap for trap in TRAPS if trap.quick]
SEPARATED = ("right channel dies", "mono, noise -40 dB", "tone of 1 kHz", "gaps of 5 ms")


@pytest.fixture(scope="module")
def setup(atlas_head: ea.Head) -> TrapSetup:
    """Return the simulated head and synthetic talkers."""

    @cache
    def speech(number: int) -> Array:
        return ea.synthetic_speech(3.5, RATE, seed=11 + number)

    return TrapSetup(atlas_head, speech)


def test_the_table_has_distinct_rows() -> None:
    """The table has the rows of the benchmark, each with another name."""
    assert len({trap.name for trap in TRAPS}) == len(TRAPS) >= 59


@pytest.mark.parametrize("trap", QUICK, ids=lambda trap: trap.name)
def test_localize(trap: Trap, setup: TrapSetup, atlas: ea.Atlas) -> None:
    """Faults are doubted for the right reason or refused; right recordings are right."""
    audio = ea.Audio(trap.make(setup), RATE)
    if not audio.samples.any(axis=1).all():
        with pytest.raises(ea.InputError, match="the right channel has no sound"):
            atlas.localize(audio)
        return
    verdict = judge_localization(trap, setup, atlas.localize(audio))
    assert verdict is (Verdict.REASON if trap.reasons else Verdict.RIGHT)


@pytest.mark.parametrize("name", SEPARATED)
def test_separate(name: str, setup: TrapSetup, atlas: ea.Atlas) -> None:
    """Faults are doubted for the right reason."""
    (trap,) = [trap for trap in TRAPS if trap.name == name]
    scene = atlas.separate(ea.Audio(trap.make(setup), RATE), rendering="soft")
    assert judge_scene(trap, setup, scene) is Verdict.REASON


@pytest.mark.parametrize("trap", QUICK, ids=lambda trap: trap.name)
def test_stream(trap: Trap, setup: TrapSetup, atlas: ea.Atlas) -> None:
    """A stream raises the same doubts."""
    samples, live = trap.make(setup), atlas.live()
    starts = range(0, samples.shape[1], RATE // 2)
    reports = [live.push(samples[:, start : start + RATE // 2]) for start in starts]
    verdict = judge_stream(trap, setup, reports[-2:])
    assert verdict is Verdict.REASON if trap.reasons else verdict in ACCEPTED


def test_clipping_is_named_at_any_rate(tmp_path: Path) -> None:
    """A clipped recording is doubted for that, although it is resampled before the analysis."""
    atlas = ea.example_atlas()
    head = ea.simulated_head([[35.0, 0.0]])
    audio = ea.render_scene(head, [ea.synthetic_speech(1.5, seed=1)], head.directions).mixture
    x = audio.at_rate(48_000).samples
    for level, clipped in ((8.0, True), (0.9, False)):
        broken = ea.Audio(np.clip(level * x / np.abs(x).max() + 0.003, -1.0, 1.0), 48_000)
        file = broken.write(tmp_path / "talker.wav")
        windows = WindowedLocalizer(atlas, MemoryRecording(broken), WindowSettings())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ea.EaratlasWarning)
            doubts = {
                "localize": atlas.localize(broken).doubts,
                "localize_file": atlas.localize_file(file).doubts,
                "track": windows.whole().doubts,
                "separate": atlas.separate(broken, n_sources=1).doubts,
                "given": atlas.separate(broken, directions=[[35.0, 0.0]]).doubts,
            }
        for name, found in doubts.items():
            named = [doubt.fault for doubt in found].count(InputFault.CLIPPED)
            assert named == clipped, name
