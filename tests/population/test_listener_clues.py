"""Clues about a listener from recordings in rooms."""

import numpy as np
import pytest

import earatlas as ea
from earatlas.cli.adaptation_text import format_segments
from earatlas.features.onset_detector import OnsetBins
from earatlas.geometry.spaces import Sphere
from earatlas.numerics import logsumexp
from earatlas.population.adaptation import ListenerClue
from earatlas.population.deviation_information import cue_information
from earatlas.population.listener_clues import ClueMaker, UnusableSound
from earatlas.population.population import Listener


@pytest.fixture(scope="module")
def clue_maker() -> ClueMaker:
    """Return the clue maker of the atlas of people."""
    return ClueMaker(ea.people_atlas())


def test_cues_of_onsets_equal_a_loop(clue_maker: ClueMaker) -> None:
    """Each cue is the mean over the onsets of the nearest frequency, weighted by their rise."""
    rng, layout = np.random.default_rng(0), clue_maker.unknown.layout
    hz = clue_maker._detector.frequencies_hz
    z = rng.normal(size=(60, 2)) + 1j * rng.normal(size=(60, 2))
    f, rise = np.sort(rng.choice(np.arange(5, len(hz)), 60)), rng.uniform(3, 20, 60)
    found = clue_maker.onset_statistics(OnsetBins(f, np.arange(60), z, rise, rise, 70.0))
    for d in rng.choice(layout.n_cues, 80, replace=False):
        own_hz = layout.cue_frequencies[d] * layout.rate / layout.window
        bins = np.flatnonzero(f == np.argmin(np.abs(hz - own_hz)))
        if not len(bins):
            assert found.counts[d] == 0
            continue
        ratio = z[bins, 1] / z[bins, 0]
        values = {
            "ild": 20 * np.log10(np.abs(ratio)),
            "ipd_cos": np.cos(np.angle(ratio)),
            "ipd_sin": np.sin(np.angle(ratio)),
        }[str(layout.cue_kinds[d])]
        expected = (rise[bins] @ values) / rise[bins].sum()
        np.testing.assert_allclose(found.means[d], expected, rtol=1e-9)
        assert 0 < found.counts[d] < 1 / clue_maker.unknown.calibration.temperature
    assert (found.counts == 0).any()


def test_posterior_of_the_onsets_is_the_evidence_for_an_unknown_listener(
    clue_maker: ClueMaker,
) -> None:
    """It replaces the evidence of their cues, which still compares listeners at each direction."""
    rng, population = np.random.default_rng(1), clue_maker.unknown.population
    f = np.repeat(np.arange(len(clue_maker._detector.frequencies_hz)), 2)
    z = rng.normal(size=(len(f), 2)) + 1j * rng.normal(size=(len(f), 2))
    ones = np.full(len(f), 5.0)
    statistics = clue_maker.onset_statistics(OnsetBins(f, f, z, ones, ones, 200.0))
    logs = rng.normal(size=len(population.charts))
    logs -= logsumexp(logs)
    clue = ListenerClue.of_onsets(population, population.model(), statistics, logs)
    likely = np.sort(logs)[::-1][: len(clue.found)]
    np.testing.assert_allclose(np.sort(clue.logs())[::-1], likely, rtol=1e-9)
    charts = Sphere().nearest(population.charts.centres, clue.found.directions)
    w = 0.3 * rng.normal(size=population.n_coordinates)
    listener = Listener(w, 0.1 * np.eye(len(w)))
    cues = cue_information(population, population.model(), statistics, charts)
    gain = cues.log_evidence(listener, population.shares) - cues.log_evidence()
    np.testing.assert_allclose(clue.logs(listener) - clue.logs(), gain, rtol=1e-6, atol=1e-9)
    assert np.ptp(gain) > 0.1


def test_one_talker_in_a_room_is_used_and_two_are_not(clue_maker: ClueMaker) -> None:
    """In a room the onsets of one source are a clue; those of two sources are none."""
    head, room = ea.simulated_head(Sphere().grid(20.0)), ea.Room(t60_seconds=0.4)
    talkers = [ea.synthetic_speech(3.0, seed=n) for n in (5, 6)]
    one = ea.render_scene(head, talkers[:1], [[40, 0]], room=room).mixture
    clue = clue_maker.clue(one)
    assert isinstance(clue, ListenerClue)
    assert clue.cues is None  # of the onsets
    two = ea.render_scene(head, talkers, [[80, 0], [-80, 0]], room=room).mixture
    assert clue_maker.clue(two) is UnusableSound.SEVERAL_SOURCES
    _, adaptation = ea.people_atlas().adapt([one, two])
    counts = (adaptation.recordings, adaptation.reverberant, adaptation.several_sources)
    assert counts == (1, 1, 1)


def test_dc_offset_changes_no_clue(clue_maker: ClueMaker) -> None:
    """An offset of the ears is removed; otherwise each recording would begin with an onset."""
    head, room = ea.simulated_head(Sphere().grid(20.0)), ea.Room(t60_seconds=0.4)
    sound = ea.render_scene(head, [ea.synthetic_speech(3.0, seed=5)], [[40, 0]], room=room).mixture
    offset = np.array([[3.0], [1.0]]) * sound.samples.std()
    clean, shifted = (
        clue_maker.clue(ea.Audio(samples, sound.rate))
        for samples in (sound.samples, sound.samples + offset)
    )
    assert isinstance(clean, ListenerClue)
    assert isinstance(shifted, ListenerClue)
    np.testing.assert_allclose(shifted.logs(), clean.logs(), rtol=0.02, atol=0.05)


def test_reverberant_recordings_with_few_onsets_are_counted(
    clue_maker: ClueMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recording in a room without enough onsets is left out, and the report says so."""
    head, room = ea.simulated_head(Sphere().grid(20.0)), ea.Room(t60_seconds=0.4)
    sound = ea.render_scene(head, [ea.synthetic_speech(3.0, seed=5)], [[40, 0]], room=room).mixture
    monkeypatch.setattr(OnsetBins, "enough", False)
    assert clue_maker.clue(sound) is UnusableSound.FEW_ONSETS
    _, adaptation = ea.people_atlas().adapt([sound])
    assert (adaptation.recordings, adaptation.few_onsets) == (0, 1)
    assert adaptation.to_dict()["few_onsets"] == 1
    assert "1 reverberant with too few onsets" in format_segments(adaptation)
