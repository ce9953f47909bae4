"""Verdicts about listeners who are no members of the population, or about two of them at once."""

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from scipy.signal import oaconvolve

import earatlas as ea
from earatlas.population.adaptation import ListenerClue
from earatlas.population.adaptation_report import (
    Adaptation,
    AdaptationVerdict,
    VerdictSettings,
    adapt_to_clues,
)
from earatlas.population.listener_clues import recording_statistics
from earatlas.population.population import Listener
from earatlas.population_atlas import PopulationAtlas
from earatlas.types import Array

COUNT = 12  # talkers of each head


@pytest.fixture(scope="module")
def people() -> PopulationAtlas:
    """Return the packaged atlas of people."""
    return ea.people_atlas()


def clues_of(people: PopulationAtlas, data: Path, name: str, seed: int) -> list[ListenerClue]:
    """Return what talkers of 3 s at random directions of a measured head say about it."""
    rng = np.random.default_rng(seed)
    with warnings.catch_warnings():  # the names of its authors are not UTF-8
        warnings.simplefilter("ignore", ea.EaratlasWarning)
        head = ea.read_sofa(data / "heads" / f"{name}.sofa")
    files, rate = sorted((data / "speech").glob("*.flac")), people.layout.rate
    responses, prior = head.responses().at_rate(rate), people.population.model()
    clues = []
    for n in rng.choice(np.flatnonzero(head.directions[:, 1] > -40), COUNT, replace=False):
        dry = ea.read_mono(files[rng.integers(len(files))], rate=rate)[: 3 * rate]
        samples = oaconvolve(dry[None], responses[n], axes=1)
        samples += 0.01 * samples.std() * rng.normal(size=samples.shape)
        sound = recording_statistics(ea.Audio(samples, rate), people.layout)
        effective = people.calibration.effective_statistics(sound, prior.noise)
        clues.append(ListenerClue.of_cues(people.population, prior, effective))
    return clues


def adaptation(
    people: PopulationAtlas, clues: list[ListenerClue], limits: VerdictSettings | None = None
) -> Adaptation:
    """Return the adaptation of the atlas of people."""
    return adapt_to_clues(people.population, people.calibration, clues, limits=limits)


def test_a_dummy_head_and_two_listeners_in_random_order_are_refused(
    people: PopulationAtlas, data: Path
) -> None:
    """A person is accepted, a KEMAR is not, nor a person and a KU100 whose recordings alternate."""
    person, kemar, ku100 = (
        clues_of(people, data, name, 3) for name in ("cipic_003", "kemar_full", "ku100")
    )
    assert adaptation(people, person).adapted
    alternating = [clue for pair in zip(person, ku100, strict=True) for clue in pair]
    for clues in (kemar, alternating[:COUNT]):
        refused = adaptation(people, clues)
        assert refused.verdict in (AdaptationVerdict.SMALL_GAIN, AdaptationVerdict.WORSE_FIT)
        assert refused.gain_nats > 1  # recordings became more probable nevertheless
        np.testing.assert_array_equal(refused.listener.mean, 0.0)


def test_the_residual_must_not_rise(people: PopulationAtlas, data: Path) -> None:
    """The limits of the growth and of the gain decide, each alone."""
    clues = clues_of(people, data, "cipic_003", 4)[:8]
    accepted = adaptation(people, clues)
    assert accepted.adapted
    growth = adaptation(people, clues, VerdictSettings(max_residual_growth=0.5))
    assert growth.verdict is AdaptationVerdict.WORSE_FIT
    entropy = float(np.mean([clue.entropy for clue in clues]))
    full = accepted.gain_nats / entropy * (8 + 9) / 8
    for factor, verdict in (
        (0.98, AdaptationVerdict.ADAPTED),
        (1.02, AdaptationVerdict.SMALL_GAIN),
    ):
        limits = VerdictSettings(min_gain_per_entropy=0.0, full_gain_per_entropy=factor * full)
        assert adaptation(people, clues, limits).verdict is verdict


@dataclass(frozen=True)
class StubClue:
    """A recording with a given gain in log evidence by any adapted listener."""

    gain: float
    entropy: float
    best: Array
    cues: object | None = field(default_factory=object)  # None: only the onsets of it were used
    label_gain: float = np.nan
    mirrored_gain: float = np.nan

    def log_evidence(self, listener: Listener | None = None) -> float:
        """Return the gain for an adapted listener, 0 for an unknown one."""
        return 0.0 if listener is None else self.gain


def verdict_of(
    monkeypatch: pytest.MonkeyPatch,
    *,
    gain: float = 3.0,
    spread: float = 1.0,
    entropy: float = 1.0,
    count: int = 12,
    reverberant: int = 0,
    residuals: tuple[float, float] = (1.0, 1.0),
    coordinates: float = 1.0,
) -> AdaptationVerdict:
    """Return the verdict about recordings with gains of `gain` ± `spread`.

    `residuals` are those before and after the adaptation, `coordinates` their RMS in standard
    deviations.
    """
    unknown, adapted = Listener(np.zeros(2), np.eye(2)), Listener(np.full(2, 0.5), np.eye(2))
    population = SimpleNamespace(
        unknown_listener=unknown,
        shares=np.full(2, (0.5 / coordinates) ** 2),
        model=lambda listener=unknown: listener,
    )

    def residual_ratios(model: Listener, _: object, clues: list[StubClue]) -> Array:
        return np.full(sum(clue.cues is not None for clue in clues), residuals[model is adapted])

    module = "earatlas.population.adaptation_report"
    monkeypatch.setattr(f"{module}.adapt_listener", lambda *_, **__: adapted)
    monkeypatch.setattr(f"{module}._residual_ratios", residual_ratios)
    azimuths = np.linspace(-90.0, 90.0, count)
    clues = [
        StubClue(gain + (-1) ** n * spread, entropy, np.array([azimuth, 0.0]))
        for n, azimuth in enumerate(azimuths)
    ]
    clues[:reverberant] = [
        StubClue(clue.gain, entropy, clue.best, cues=None) for clue in clues[:reverberant]
    ]
    found = adapt_to_clues(cast(Any, population), cast(Any, None), cast(Any, clues))
    assert (found.listener is adapted) == found.adapted
    assert found.gain_nats == pytest.approx(gain)
    return found.verdict


ADAPTED, SMALL_GAIN = AdaptationVerdict.ADAPTED, AdaptationVerdict.SMALL_GAIN


@pytest.mark.parametrize(
    ("options", "accepted", "refused", "verdict"),
    [
        ({"spread": 3.46}, {"gain": 2.01}, {"gain": 1.99}, AdaptationVerdict.NO_GAIN),
        ({}, {"residuals": (1, 1.03)}, {"residuals": (1, 1.05)}, AdaptationVerdict.WORSE_FIT),
        # Residuals below 0.05 may grow.
        ({}, {"residuals": (0, 0.051)}, {"residuals": (0, 0.053)}, AdaptationVerdict.WORSE_FIT),
        ({}, {"residuals": (2, 1.99)}, {"residuals": (2, 2.01)}, AdaptationVerdict.OTHER_HEAD),
        ({}, {"coordinates": 1.49}, {"coordinates": 1.51}, AdaptationVerdict.OTHER_HEAD),
        # With few recordings, 1.5 nats per nat of entropy; 2.7 * 14 / (14 + 9) with 14.
        ({"count": 6, "entropy": 2}, {"gain": 3.05}, {"gain": 2.95}, SMALL_GAIN),
        ({"count": 14, "entropy": 2}, {"gain": 3.30}, {"gain": 3.25}, SMALL_GAIN),
        # The onsets of rooms require 0.38; six of them and six others the mean of both.
        ({"reverberant": 12, "entropy": 5}, {"gain": 1.95}, {"gain": 1.85}, SMALL_GAIN),
        ({"reverberant": 6, "entropy": 5}, {"gain": 4.75}, {"gain": 4.65}, SMALL_GAIN),
    ],
)  # fmt: skip
def test_limits_of_the_verdict(
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    accepted: dict[str, Any],
    refused: dict[str, Any],
    verdict: AdaptationVerdict,
) -> None:
    """Each limit decides between two adaptations that differ little."""
    base = {"entropy": 0.5} | options
    assert verdict_of(monkeypatch, **base | accepted) is ADAPTED
    assert verdict_of(monkeypatch, **base | refused) is verdict


def test_order_of_the_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another head comes first, then no gain, a worse fit, and a small gain."""
    reasons: dict[str, Any] = {"coordinates": 2.0, "gain": -1.0, "residuals": (1.0, 1.5)}
    for name, verdict in (
        ("coordinates", AdaptationVerdict.OTHER_HEAD),
        ("gain", AdaptationVerdict.NO_GAIN),
        ("residuals", AdaptationVerdict.WORSE_FIT),
        ("", SMALL_GAIN),
    ):
        assert verdict_of(monkeypatch, entropy=10.0, **reasons) is verdict
        reasons.pop(name, None)
