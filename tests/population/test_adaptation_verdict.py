"""Verdicts about listeners who are no members of the population, or about two of them at once."""

import warnings
from pathlib import Path

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
from earatlas.population_atlas import PopulationAtlas

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
