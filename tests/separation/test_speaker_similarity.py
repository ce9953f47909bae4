"""Speaker similarity: two talkers or one, and its use by the online tracker."""

from collections import deque

import numpy as np
import pytest
import scipy.signal

import earatlas as ea
from earatlas.features.reverberation import ReverberationEstimate
from earatlas.geometry.angles import to_vectors
from earatlas.localization.onset_mixture import SourceMixture
from earatlas.parts import complete
from earatlas.separation import model_order, pipeline
from earatlas.separation.demixing.determined import DemixingSettings
from earatlas.separation.demixing.speaker_similarity import (
    SimilaritySettings,
    SpeakerSimilarity,
    speaker_similarity,
)
from earatlas.separation.initialization import Initialization, SourceFit
from earatlas.separation.model_order import fit_sources
from earatlas.streaming.filterbank import Filterbank
from earatlas.streaming.fir_demixing import FirDemixer
from earatlas.streaming.online_steering import OnlineSteeringVectors, SteeringSettings
from earatlas.tracking.online import OnlineTracker
from earatlas.tracking.online_track import OnlineTrack, TrackState
from earatlas.tracking.onset_buffer import OnsetBuffer
from earatlas.tracking.position_update import LocalFit, LocalSearchGrid
from earatlas.tracking.settings import TrackerSettings, TrackSettings
from earatlas.types import Array

RATE = 16_000
SETTINGS = SimilaritySettings()
HERTZ: Array = np.arange(1.0, 257.0) * (RATE / 512)


def voice(seed: int, seconds: float = 3.0) -> Array:
    """Return synthetic speech at both ears."""
    sound = ea.synthetic_speech(seconds, seed=seed)
    return np.stack([sound, 0.7 * sound])


def echoed(sound: Array, seed: int = 0) -> Array:
    """Return the reverberation of a signal without its direct sound."""
    rng, n = np.random.default_rng(seed), int(0.3 * RATE)
    response = rng.normal(size=(2, n)) * np.exp(-6.9 * np.arange(n) / n)
    response[:, : RATE // 200] = 0.0
    late: Array = scipy.signal.fftconvolve(sound, response, axes=1)[:, : sound.shape[1]]
    late *= 0.5 * np.sqrt((sound**2).sum() / (late**2).sum())
    return late


def test_two_talkers_are_distinguished_from_one_and_its_echoes() -> None:
    """Leakage between two talkers does not change the decision."""
    one, other = voice(3), voice(4)
    leaked = speaker_similarity(one + 0.1 * other, other + 0.1 * one, RATE, SETTINGS)
    assert leaked.different_speakers
    assert leaked.clearly_different_speakers
    assert not leaked.same_speaker
    echo = speaker_similarity(one, echoed(one), RATE, SETTINGS)
    assert echo.same_speaker
    assert not echo.different_speakers


def test_moving_talker_is_one_speaker() -> None:
    """The first signal holds the beginning and the second the end of one voice."""
    sound = voice(5)
    rise = np.clip(np.linspace(-1, 2, sound.shape[1]), 0, 1)
    similarity = speaker_similarity((1 - rise) * sound, rise * sound, RATE, SETTINGS)
    assert not similarity.different_speakers


def test_noise_is_not_a_speaker() -> None:
    """Noise is uncorrelated with speech and has little modulation."""
    sound = voice(6)
    noise = np.random.default_rng(1).normal(size=sound.shape) * sound.std()
    similarity = speaker_similarity(sound, noise, RATE, SETTINGS)
    assert similarity.correlation < 0.5
    assert not similarity.different_speakers
    assert not similarity.same_speaker


@pytest.mark.parametrize("rate", [8_000, 44_100])
def test_speaker_similarity_at_any_rate(rate: int) -> None:
    """The decision is the same at other rates; silence gives no decision."""
    one, other = (scipy.signal.resample_poly(voice(s), rate, RATE, axis=1) for s in (3, 4))
    assert speaker_similarity(one, other, rate, SETTINGS).different_speakers
    assert not speaker_similarity(0 * one, 0 * one, rate, SETTINGS).different_speakers
    assert not speaker_similarity(0 * one, one, rate, SETTINGS).same_speaker
    silent = speaker_similarity(
        np.float32(0) * one.astype(np.float32), one.astype(np.float32), rate, SETTINGS
    )
    assert np.isfinite(silent.correlation)


# --- steering vectors and filters -----------------------------------------------------------------


def add_frames(rng: np.random.Generator, steering: OnlineSteeringVectors, count: int) -> Array:
    """Add frames of two sources with fixed steering vectors; return their powers (2, count)."""
    F = len(steering.frequencies_hz)
    A = rng.normal(size=(F, 2, 2)) + 1j * rng.normal(size=(F, 2, 2))
    levels = np.repeat(rng.uniform(0.02, 1.0, size=(2, count // 4)), 4, axis=1)
    for k in range(count):
        s = (rng.normal(size=(F, 2)) + 1j * rng.normal(size=(F, 2))) * np.sqrt(levels[:, k])
        if steering.advance():
            steering.append(np.einsum("fem,fm->ef", A, s))
    return levels


def test_identity_is_kept_if_masks_are_swapped() -> None:
    """Masks that are swapped later do not swap the sources."""
    rng = np.random.default_rng(7)
    bank = Filterbank.from_seconds(RATE, hop_seconds=0.016, window_hops=2, synthesis_hops=2)
    demixing = DemixingSettings(((5, 3),) * 2, ((5, 3),))
    steering = OnlineSteeringVectors(bank, HERTZ, SteeringSettings(), demixing, mask_updates=20)
    levels = add_frames(rng, steering, 80)
    first = levels[0] / levels.sum(axis=0)
    q = np.tile(np.stack([first, 1 - first])[:, None], (1, len(steering.frequencies_hz), 1))
    for _ in range(3):
        steering.apply(complete(steering.begin_update((1, 2), 0.0).estimate_parts(q, None)))
    before = steering.vectors
    assert before is not None
    assert steering.permuted.mean() < 0.1
    for _ in range(4):
        steering.apply(complete(steering.begin_update((1, 2), 0.0).estimate_parts(q[::-1], None)))
        assert steering.vectors is not None
        np.testing.assert_allclose(np.abs(steering.vectors), np.abs(before), atol=0.05)
    assert steering.permuted.mean() > 0.9


def test_offline_separation_leaves_the_state_unchanged() -> None:
    """Two sources are separated on trial; the current filters stay as they are."""
    rng = np.random.default_rng(8)
    bank = Filterbank.from_seconds(RATE, hop_seconds=0.016, window_hops=4, synthesis_hops=4)
    demixer = FirDemixer(bank, HERTZ, 8, SteeringSettings(), reverberant=True)
    n = 150 * bank.hop
    loud = np.repeat(rng.uniform(size=(2, 25)) < 0.5, 6 * bank.hop, axis=1)
    sounds = rng.normal(size=(2, n)) * (0.03 + loud)
    images = np.array([[[1.0], [0.3]], [[0.4], [1.0]]]) * sounds[:, None]
    mixture = images.sum(axis=0)
    for k in range(150):
        demixer.append(mixture[:, k * bank.hop : (k + 1) * bank.hop])
    hops = demixer.steering.kept_hops
    ends = [(150 + h - 2) * bank.hop for h in hops]
    power = np.array([[(i[:, max(e - 512, 0) : e] ** 2).sum() for e in ends] for i in images])
    q = np.tile((power / (power.sum(axis=0) + 1e-9))[:, None], (1, len(HERTZ), 1))
    first = complete(demixer.separate_offline_parts(q, hops, mixture))
    error = images[0] - first
    assert 10 * np.log10((images[0] ** 2).sum() / (error**2).sum()) > 15
    assert demixer.steering.vectors is None
    assert not demixer.ready


# --- tracks --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reverberant_atlas(atlas: ea.Atlas, atlas_head: ea.Head) -> ea.Atlas:
    """Return the shared atlas with a model of reverberant rooms."""
    return atlas if atlas.reverberant_localizer is not None else atlas.with_rooms(atlas_head)


@pytest.fixture
def tracker(reverberant_atlas: ea.Atlas) -> OnlineTracker:
    """Return a tracker without observations."""
    assert reverberant_atlas.reverberant_localizer is not None
    return OnlineTracker(
        OnsetBuffer(reverberant_atlas.reverberant_localizer.direct_sound, TrackerSettings().buffer),
        TrackerSettings(),
    )


def make_source_track(
    name: int, direction: tuple[float, float], total_gain: float = 1.0
) -> OnlineTrack:
    """Return a confirmed track with its last hit at 9.9 s."""
    nothing = np.zeros(0, dtype=np.float32)
    track = OnlineTrack(
        name, to_vectors(direction), 0.0, deque(), deque(), nothing, TrackSettings()
    )
    track.hits, track.state, track.total_gain = 30, TrackState.CONFIRMED, total_gain
    track.register_hit(9.9)
    return track


def test_split_of_a_track(tracker: OnlineTracker) -> None:
    """The track keeps the nearer direction; the new track is confirmed at once."""
    track = make_source_track(1, (35.0, 0.0))
    tracker.tracks, tracker._next_id = [track], 2
    tracker.split(track, np.array([[150.0, 0.0], [30.0, 0.0]]), 10.0)
    assert [t.id for t in tracker.confirmed] == [1, 2]
    new = tracker.confirmed[1]
    np.testing.assert_allclose(track.direction, [30.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(new.direction, [150.0, 0.0], atol=1e-6)
    assert tracker._required_gain(new, 10.0) == tracker._initiation_threshold(1)
    new.confirmed_by_signal_at = 5.0
    assert tracker._required_gain(new, 10.0) > tracker._initiation_threshold(1)


def test_split_reuses_a_silent_track(tracker: OnlineTracker) -> None:
    """A silent track on the same cone is reused, and the number of tracks is bounded."""
    track, silent = make_source_track(1, (30.0, 0.0)), make_source_track(2, (-60.0, 0.0))
    silent.last_hit_at = 5.0
    tracker.tracks, tracker._next_id = [track, silent], 3
    tracker.split(track, np.array([[30.0, 0.0], [-62.0, 5.0]]), 10.0)
    assert [t.id for t in tracker.confirmed] == [1, 2]
    assert silent.last_hit_at == 10.0
    many = [make_source_track(i, (20.0 * i, 0.0)) for i in range(1, 5)]
    tracker.tracks = many
    tracker.split(many[0], np.array([[25.0, 0.0], [-60.0, 0.0]]), 10.0)
    assert len(tracker.confirmed) == 4
    np.testing.assert_allclose(many[0].direction, [20.0, 0.0], atol=1e-6)


def test_merge_of_two_tracks(tracker: OnlineTracker) -> None:
    """The track with the larger gain stays; confirmation by signal is not a hit."""
    one, two = make_source_track(1, (30.0, 0.0), total_gain=5.0), make_source_track(2, (150.0, 0.0))
    tracker.tracks = [one, two]
    tracker.confirm_by_signal((1,), 11.0)
    assert one.confirmed_by_signal_at == 11.0
    assert one.last_hit_at == 9.9
    tracker.register_hit(1, 11.0)
    assert one.last_hit_at == 11.0
    tracker.merge((1, 2))
    assert [t.id for t in tracker.tracks] == [1]


class RecordingFrontEnd:
    """A front end that records the calls for two active tracks."""

    reverberation = ReverberationEstimate(0.4)

    def __init__(self, *ids: int) -> None:
        self.tracker, self.settings = self, TrackerSettings()
        self.confirmed = [make_source_track(i, (30.0 * i, 0.0)) for i in ids]
        self.calls: list[tuple[object, ...]] = []

    def confirm_by_signal(self, ids: frozenset[int], now: float) -> None:
        """Record that the tracks are different speakers."""
        self.calls.append(("confirm_by_signal", *sorted(ids)))

    def register_hit(self, track: int, now: float) -> None:
        """Record that the track is active."""
        self.calls.append(("register_hit", track))

    def merge(self, ids: frozenset[int]) -> None:
        """Record that the tracks are one speaker."""
        self.calls.append(("merge", *sorted(ids)))


def test_signals_of_tracks_decide_about_merging(reverberant_atlas: ea.Atlas) -> None:
    """Two voices are confirmed; one voice in two tracks is merged after repeated decisions."""
    live = reverberant_atlas.live()
    split_merge, hop = live._tracking.speaker_test, 256
    one, other = voice(3), voice(4)
    other[:, -RATE:] = 0.0

    def calls(sounds: dict[int, Array], active: tuple[int, ...], checks: int) -> list[object]:
        front_end = RecordingFrontEnd(*sounds)
        for k in range(0, one.shape[1] - hop + 1, hop):
            hops = {i: sound[:, k : k + hop] for i, sound in sounds.items()}
            split_merge.append(one[:, k : k + hop], hops)
        for _ in range(checks):
            split_merge._next_step = 0
            split_merge.check(1, 9.9, front_end, active, live._masking.model, [], 0.0)  # type: ignore[arg-type]
        return list(front_end.calls)

    assert calls({1: one, 2: other}, (1, 2), 1) == [
        ("confirm_by_signal", 1, 2),
        ("register_hit", 1),
    ]
    echo = echoed(one)
    assert calls({1: one, 2: echo}, (1, 2), 2) == []
    assert calls({1: one, 3: echo}, (1, 3), 1) == []  # another pair restarts the count
    assert calls({1: one, 3: echo}, (1, 3), 2) == [("merge", 1, 3)]
    assert calls({1: one, 3: echo}, (1, 2), 5) == []  # one of the two is inactive


def test_gain_of_a_second_source_over_motion(tracker: OnlineTracker) -> None:
    """Two directions explain the bins better than directions between them."""
    buffer = tracker.buffer
    G, half = len(buffer.directions), 12
    densities = np.full((2 * half, G), 0.1, dtype=np.float32)
    here, there = 0, G // 2
    densities[:half, here] = densities[half:, there] = 5.0
    buffer.densities = densities
    buffer.bins_since = lambda seconds: slice(0, 2 * half)  # type: ignore[method-assign]
    buffer.recent_weights = lambda seconds: np.ones(2 * half)  # type: ignore[method-assign]
    others, share = np.full(2 * half, 0.2), 0.8
    own = densities[:, here].astype(np.float64)
    alone = half * (np.log(0.2 + 0.8 * 5) + np.log(0.2 + 0.8 * 0.1))
    together = 2 * half * np.log(0.2 + 0.4 * 5 + 0.4 * 0.1)
    assert tracker._position_update._second_source_gain(others, own, share) == pytest.approx(
        together - alone, rel=1e-5
    )
    densities[:, here + 1] = 5.0  # one direction explains all bins
    assert tracker._position_update._second_source_gain(others, own, share) < 0


def test_motion_must_explain_more_than_a_second_source(
    tracker: OnlineTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A track confirmed by its signal needs more evidence; a moving track continues."""
    far = LocalFit(to_vectors([60.0, 0.0]), 3.0, np.array([20.0, 0.0]), np.zeros(0, np.float32))
    near = LocalFit(to_vectors([30.0, 0.0]), 3.0, np.zeros(2), np.zeros(0, np.float32))
    monkeypatch.setattr(LocalSearchGrid, "fit", lambda *args: (near, far, 20.0))
    monkeypatch.setattr(tracker.buffer, "rewrite_history", lambda *args: None)

    def moving(two: float, *, confirmed: bool = False, moved: bool = False) -> bool:
        track = make_source_track(1, (30.0, 0.0))
        track.confirmed_by_signal_at = 9.0 if confirmed else 1.0
        track.velocity = np.array([20.0 * moved, 0.0])
        tracker.tracks = [track]
        monkeypatch.setattr(tracker._position_update, "_second_source_gain", lambda *args: two)
        mixture = SourceMixture(np.zeros((0, 1)), np.full((2, 1), 0.5), np.zeros(0))
        tracker._position_update.update(tracker.tracks, mixture, 0, 10.0)
        return track.moving

    assert moving(10.0)
    assert not moving(30.0)
    assert not moving(10.0, confirmed=True)
    assert moving(30.0, confirmed=True, moved=True)


@pytest.fixture(scope="module")
def cone_scenes(atlas_head: ea.Head) -> dict[int, ea.SimulatedScene]:
    """Return scenes of two talkers on one cone of confusion in a room, and of one, by number."""
    known = to_vectors(atlas_head.directions)
    requested = to_vectors(np.array([[50.0, -20.0], [110.0, 30.0]]))
    pair = atlas_head.directions[(requested @ known.T).argmax(axis=1)]
    sounds = [ea.synthetic_speech(7.0, seed=seed) for seed in (3, 4)]
    room = ea.Room(t60_seconds=0.3)
    return {
        count: ea.render_scene(atlas_head, sounds[:count], pair[:count], room=room)
        for count in (2, 1)
    }


@pytest.mark.parametrize("count", [2, 1])
def test_signals_of_a_recording_decide_about_two_talkers(
    reverberant_atlas: ea.Atlas,
    cone_scenes: dict[int, ea.SimulatedScene],
    count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two talkers whom the onsets count as one are found by their signals; one talker stays one."""

    def fit_one(start: Initialization, n_sources: int | None) -> SourceFit:
        return fit_sources(start, n_sources or 1)

    monkeypatch.setattr(pipeline, "fit_sources", fit_one)
    scene = cone_scenes[count]
    found = reverberant_atlas.separate(scene.mixture)
    assert len(found.sources) == count
    assert len(reverberant_atlas.separate(scene.mixture, n_sources=1).sources) == 1
    short = ea.Audio(scene.mixture.samples[:, : 2 * RATE], RATE)
    assert len(reverberant_atlas.separate(short).sources) == 1
    signals = np.stack([source.audio.samples for source in found.sources])
    np.testing.assert_allclose(signals.sum(axis=0), scene.mixture.samples, atol=1e-9)


@pytest.mark.parametrize("correlation", [0.8, 0.7])
def test_one_clear_speaker_is_not_separated_in_long_windows(
    reverberant_atlas: ea.Atlas,
    cone_scenes: dict[int, ea.SimulatedScene],
    correlation: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first pass of the filters ends the test if its signals are clearly one speaker."""
    passes = []

    def refine(samples: Array, signals: Array, *args: object) -> Array:
        passes.append(signals)
        return signals

    similarity = SpeakerSimilarity(correlation, 0.1, 10.0, SETTINGS)
    monkeypatch.setattr(model_order, "speaker_similarity", lambda *args: similarity)
    monkeypatch.setattr(model_order, "refine_pair", refine)
    assert len(reverberant_atlas.separate(cone_scenes[1].mixture).sources) == 1
    assert len(passes) == (correlation < SETTINGS.min_same)


def test_two_talkers_on_one_cone_in_a_reverberant_room(
    reverberant_atlas: ea.Atlas, cone_scenes: dict[int, ea.SimulatedScene]
) -> None:
    """Two talkers give two tracks, and one talker gives one."""
    for count, scene in cone_scenes.items():
        live = reverberant_atlas.live()
        report = live.push(scene.mixture.samples)
        assert sum(source.confirmed for source in report.sources) == count
