"""Tests of the reverberation estimate: one decision from decay time, diffuse ratio and history."""

import itertools
import math

import numpy as np
import pytest

from earatlas.features.onset_detector import OnsetDetector, OnsetDetectorSettings
from earatlas.features.reverberation import (
    ReverberationEstimate,
    ReverberationSettings,
    ReverberationState,
)

ANECHOIC, UNCERTAIN, REVERBERANT = ReverberationState


@pytest.mark.parametrize(
    ("decay", "snr_db", "diffuse_ratio", "before", "active_seconds", "expected"),
    [
        (0.15, 20.0, None, False, math.inf, ANECHOIC),
        (0.22, 20.0, None, False, math.inf, UNCERTAIN),
        (0.25, 20.0, None, False, math.inf, REVERBERANT),
        (math.nan, 20.0, 0.1, False, math.inf, UNCERTAIN),  # too few decays
        (0.22, 20.0, 0.02, False, 0.0, REVERBERANT),  # the ratio decides
        (0.22, 20.0, 0.002, False, 0.0, ANECHOIC),
        (0.22, 15.0, 0.02, False, math.inf, UNCERTAIN),  # in noise it does not
        (0.25, 15.0, 0.002, False, math.inf, REVERBERANT),
        (0.25, 15.0, 0.02, False, 0.0, REVERBERANT),  # unless the decay is slow as well
        (0.19, 20.0, 0.15, False, math.inf, ANECHOIC),
        (0.25, 20.0, 0.002, False, math.inf, ANECHOIC),  # two talkers fill each other's pauses
        (0.40, 20.0, 0.002, False, math.inf, ANECHOIC),
        (0.25, 20.0, None, False, 0.0, UNCERTAIN),  # too early to decide by decay alone
        (0.27, 20.0, None, False, 1.0, UNCERTAIN),
        (0.27, 20.0, None, False, 3.0, REVERBERANT),
        (0.36, 20.0, None, False, 0.0, REVERBERANT),
        (0.21, 20.0, None, True, math.inf, REVERBERANT),  # hysteresis
        (0.19, 20.0, None, True, math.inf, ANECHOIC),
        (math.nan, 20.0, None, True, math.inf, REVERBERANT),  # the same after a pause
    ],
)
def test_decision(
    decay: float,
    snr_db: float,
    diffuse_ratio: float | None,
    before: bool,
    active_seconds: float,
    expected: ReverberationState,
) -> None:
    """The decay time decides; between its limits the diffuse-to-direct ratio does, if known."""
    estimate = ReverberationEstimate(decay, snr_db, diffuse_ratio, before, active_seconds)
    assert estimate.state is expected
    assert estimate.reverberant == (expected is REVERBERANT)
    assert estimate.anechoic == (expected is ANECHOIC)


def test_limits_are_ordered() -> None:
    """A slower decay never makes the state less reverberant, whatever else is known."""
    order = [ANECHOIC, UNCERTAIN, REVERBERANT]
    decays = np.arange(0.1, 0.5, 0.003)
    for rest in itertools.product([10.0, 20.0], [None, 0.001, 0.1], [False, True], [0.0, 2.0]):
        ranks = [order.index(ReverberationEstimate(d, *rest).state) for d in decays.tolist()]
        assert ranks == sorted(ranks)
    settings = ReverberationSettings(anechoic_seconds=0.1, reverberant_seconds=0.15)
    assert ReverberationEstimate(0.16, settings=settings).reverberant


def test_qualified_statements() -> None:
    """Certain statements have stricter limits than the decision; unknown decays support none."""
    assert ReverberationEstimate(0.18).any_room
    assert ReverberationEstimate(0.18).anechoic
    assert not ReverberationEstimate(0.17).any_room
    assert not ReverberationEstimate(0.3).certainly_reverberant
    assert ReverberationEstimate(0.36).certainly_reverberant
    assert ReverberationEstimate(0.3, diffuse_ratio=0.001).slow_decay
    unknown = ReverberationEstimate()
    statements = (unknown.any_room, unknown.certainly_reverberant, unknown.slow_decay)
    assert statements == (False, False, False)


@pytest.mark.parametrize(
    ("decay", "cue_variance", "n_sources", "free_field", "scattered"),
    [
        (0.15, None, 1, True, False),  # a stream: the decays decide
        (0.25, None, 1, False, False),
        (0.25, 99.0, 1, True, False),
        (0.15, 101.0, 1, False, True),
        (0.15, math.nan, 1, False, False),
        (0.36, 5.0, 1, False, False),  # no source decays so slowly by itself
        (0.25, 339.0, 2, True, False),  # the masks of several sources have errors
        (0.25, 341.0, 2, False, False),
        (0.15, 479.0, 3, True, False),
        (0.15, 481.0, 3, False, False),
    ],
)
def test_rooms_scatter_cues_and_other_heads_do_not(
    decay: float, cue_variance: float | None, n_sources: int, free_field: bool, scattered: bool
) -> None:
    """The variance of the cues decides whether a room may explain them; then the decay time."""
    estimate = ReverberationEstimate(decay, cue_variance=cue_variance, n_sources=n_sources)
    assert (estimate.free_field, estimate.scattered_cues) == (free_field, scattered)


def test_onsets_carry_one_estimate(rng: np.random.Generator) -> None:
    """The detector adds the SNR; parts and the onsets of a second pass have the same estimate."""
    clicks = np.zeros((2, 32_000))
    clicks[:, 4000::4000] = 1.0
    found = []
    for noise in (1e-5, 0.05):
        x = clicks + noise * rng.normal(size=clicks.shape)
        detector = OnsetDetector(OnsetDetectorSettings())
        detector.push(x)
        detector.finish()
        bins = detector.bins()
        assert bins.reverberation.snr_db == bins.median_snr_db
        assert bins[:5].reverberation is bins.reverberation
        again = list(detector.second_pass([x[:, :9000], x[:, 9000:]]))
        assert {repr(part.reverberation) for part in again} == {repr(bins.reverberation)}
        found.append(bins.reverberation.snr_db)
    assert found[0] > ReverberationSettings().min_snr_db > found[1]
