"""Online tracker: static and moving sources, and a head that turns."""

from collections import deque
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import earatlas as ea
from earatlas.features.onset_detector import OnsetBins, OnsetDetector
from earatlas.features.reverberation import ReverberationEstimate
from earatlas.geometry.angles import great_circle_error, to_vectors
from earatlas.geometry.chart_gaussians import gaussian_radius_90
from earatlas.localization.onset_mixture import OnsetMixtureSettings, SourceMixture
from earatlas.tracking import online_track
from earatlas.tracking.front_end import TrackingFrontEnd
from earatlas.tracking.online import OnlineTracker
from earatlas.tracking.online_track import (
    TRANSITIONS,
    OnlineTrack,
    TrackEvent,
    TrackPosterior,
    TrackState,
)
from earatlas.tracking.onset_buffer import OnsetBuffer
from earatlas.tracking.settings import (
    InitiationSettings,
    OnsetBufferSettings,
    TrackerSettings,
    TrackSettings,
)
from earatlas.types import Array

RATE, STEP = 16_000, 2048


def test_motion_forgetting_after_motion_or_head_rotation() -> None:
    """Motions and head rotations count; short motions and refined positions do not."""
    track = OnlineTrack(
        1,
        to_vectors([20.0, 0.0]),
        0.0,
        deque(),
        deque(),
        np.zeros(0, dtype=np.float32),
        TrackSettings(),
    )
    assert track.motion_forgetting(-15.0) == pytest.approx(1 - np.exp(-1))
    track.vector = to_vectors([26.0, 0.0])  # static: a refined position
    assert track.motion_forgetting() == 0
    track.velocity = np.array([10.0, 0.0])
    track.predict(0.3)
    assert track.motion_forgetting() == 0  # 3 degrees are below the threshold
    track.predict(0.2)
    assert track.motion_forgetting(10.0) == pytest.approx(1 - np.exp(-1), abs=1e-6)
    assert track.motion_forgetting() == 0
    track.reset(to_vectors([120.0, 30.0]))
    assert track.motion_forgetting() == 0


def test_moving_track_decelerates_while_coasting() -> None:
    """The speed is constant with hits and decays without; the radius grows."""
    track = OnlineTrack(
        1,
        to_vectors([50.0, 0.0]),
        0.0,
        deque(),
        deque(),
        np.zeros(0, dtype=np.float32),
        TrackSettings(),
    )
    static_radius = gaussian_radius_90(2) * track.error_degrees
    track.velocity = np.array([-20.0, 0.0])
    assert track.radius_90 == pytest.approx(1.6 * static_radius)
    for _ in range(10):
        track.predict(0.1)
        track.coasting_seconds = 0.0  # as after a hit
    assert track.direction[0] == pytest.approx(30.0)
    radius = track.radius_90
    for _ in range(40):
        track.predict(0.1)
    assert not track.moving
    assert -5 < track.direction[0] < 5  # 20 degrees per second with a decay of 1.5 s
    assert track.radius_90 > 0.6 * radius


def test_transitions_agree_with_the_documented_table() -> None:
    """Every state and event: the table of the docstring, the mapping and the track agree."""
    lines = online_track.__doc__.splitlines()
    states = [TrackState.TENTATIVE, TrackState.CONFIRMED, TrackState.COASTING]
    rows = {line.split()[0]: line.split()[1:4] for line in lines if line[4:8].isupper()}
    assert list(rows) == [event.name for event in TrackEvent]
    for event in TrackEvent:
        for state, after in zip(states, rows[event.name], strict=True):
            track = make_track(1, (0.0, 0.0))
            track.state = state
            if after == "-":
                assert event not in TRANSITIONS[state]
                with pytest.raises(ValueError, match=f"{event.name} must not .* {state.name}"):
                    track.handle(event)
                assert track.state is state
            else:
                track.handle(event)
                assert track.state is TRANSITIONS[state][event] is TrackState[after.upper()]
        track.state = TrackState.DELETED
        track.handle(event)
        assert track.state is TrackState.DELETED


def test_misses_make_a_confirmed_track_coast() -> None:
    """A miss is counted, one during a crossing is excused, and a hit ends coasting."""
    track = make_track(1, (0.0, 0.0))
    for occluded, misses in ((False, 1), (False, 2), (True, 0), (False, 1)):
        track.register_miss(occluded=occluded)
        assert (track.state, track.misses) == (TrackState.COASTING, misses)
    track.confirm_by_signal(10.0)  # its signal is not a hit
    assert (track.state, track.misses) == (TrackState.COASTING, 1)
    track.register_hit(10.1)
    assert (track.state, track.misses) == (TrackState.CONFIRMED, 0)
    track.state = TrackState.TENTATIVE
    track.register_miss()
    assert track.state is TrackState.TENTATIVE
    with pytest.raises(ValueError, match="OCCLUDED"):
        track.register_miss(occluded=True)


def track_samples(atlas: ea.Atlas, samples: Array, degrees_per_second: float) -> TrackingFrontEnd:
    """Return the front end after samples that were recorded by a turning head."""
    assert atlas.reverberant_localizer is not None
    front_end = TrackingFrontEnd(
        atlas.reverberant_localizer, lambda t: degrees_per_second * t, TrackerSettings()
    )
    ids = set()
    for k in range(samples.shape[1] // STEP):
        front_end.step(samples[:, k * STEP : (k + 1) * STEP], (k + 1) * STEP / RATE, STEP / RATE)
        ids |= {track.id for track in front_end.tracker.confirmed}
    assert len(ids) == 1
    return front_end


@pytest.fixture(scope="module")
def reverberant_atlas(atlas: ea.Atlas, atlas_head: ea.Head) -> ea.Atlas:
    """The shared atlas, learned for reverberant rooms."""
    return atlas if atlas.reverberant_localizer is not None else atlas.with_rooms(atlas_head)


@pytest.fixture(scope="module")
def moving_samples(atlas_head: ea.Head) -> Array:
    """Synthetic speech that passes the head at 30 degrees per second, from 45 to -45 degrees."""
    trajectory = ea.Trajectory((0, 3), ((45, 0), (-45, 0)))
    return ea.render_scene(
        atlas_head, [ea.synthetic_speech(3.0, seed=7)], [trajectory]
    ).mixture.samples


def test_moving_source_keeps_one_track_id(
    reverberant_atlas: ea.Atlas, moving_samples: Array
) -> None:
    """A moving source is one track with the right velocity."""
    (track,) = track_samples(reverberant_atlas, moving_samples, 0.0).tracker.confirmed
    assert track.moving
    assert 0 < great_circle_error([-45.0, 0.0], track.direction) < 10
    assert track.velocity[0] == pytest.approx(-30, abs=10)


def test_static_source_stays_static_while_the_head_turns(
    reverberant_atlas: ea.Atlas, moving_samples: Array
) -> None:
    """With a head that turns at 30 degrees per second, the same samples are a static source."""
    (track,) = track_samples(reverberant_atlas, moving_samples, 30.0).tracker.confirmed
    assert not track.moving
    assert 0 < great_circle_error([45.0, 0.0], track.direction) < 6


def test_cue_directions_resolve_the_cone_of_confusion(
    reverberant_atlas: ea.Atlas, moving_samples: Array
) -> None:
    """A track at the front-back mirrored direction moves to the direction from cues.

    It does not move to another lateral angle, nor to a direction that onsets contradict.
    """
    front_end = track_samples(reverberant_atlas, moving_samples, 30.0)
    (track,) = front_end.tracker.confirmed
    yaw = 30.0 * (moving_samples.shape[1] // STEP) * STEP / RATE
    true = track.direction
    mirrored = np.array([2 * yaw + 180.0 - true[0], true[1]])
    track.reset(to_vectors(mirrored))
    tracker = front_end.tracker
    track.density_history = tracker.buffer.history_at(track.vector)
    tracker.apply_cue_directions({track.id: true})
    assert track.located_by_cues
    np.testing.assert_allclose(great_circle_error(true, track.direction), 0, atol=1e-5)
    before = track.direction
    for wrong in (mirrored, before + np.array([40.0, 0.0])):
        tracker.apply_cue_directions({track.id: wrong})
        assert not track.located_by_cues
        np.testing.assert_array_equal(track.direction, before)
    tracker.apply_cue_directions({})
    assert not track.located_by_cues
    for _ in range(24):  # silence: no onsets for or against a direction
        front_end.step(np.zeros((2, STEP)), 9.0, STEP / RATE)
    tracker.apply_cue_directions({track.id: mirrored})
    assert not track.located_by_cues


def points_at(*places: tuple[tuple[float, float], int]) -> TrackPosterior:
    """Return a posterior with a number of points at each direction; the later ones are denser."""
    vectors = np.concatenate([np.tile(to_vectors(np.array(x)), (n, 1)) for x, n in places])
    density = np.repeat(np.arange(float(len(places))), [n for _, n in places])
    return TrackPosterior(vectors, density)


def test_radius_covers_the_posterior() -> None:
    """The radius reaches likely directions, is wide without a posterior, and grows in silence."""
    track = make_track(1, (30.0, 0.0))
    track.error_degrees = 1.0
    assert track.radius_90 == track.settings.unsettled_radius_degrees
    for n_far, radius in ((12, 120.0), (8, gaussian_radius_90(2))):  # more and less than 10 %
        track.posterior = points_at(((30.0, 0.0), 100 - n_far), ((150.0, 0.0), n_far))
        assert track.radius_90 == pytest.approx(radius, abs=0.01)
        track.coasting_seconds = 9.0
        assert track.radius_90 > radius + 0.1
        track.coasting_seconds = 0.0
    track.vector = to_vectors(np.array([40.0, 0.0]))  # the points stay where they are
    assert track.radius_90 == pytest.approx(10.0, abs=0.01)
    track.velocity = np.array([20.0, 0.0])
    assert track.radius_90 == pytest.approx(
        gaussian_radius_90(2) * track.settings.moving_radius_factor
    )


def test_alternatives_of_a_track_begin_with_its_direction() -> None:
    """Each peak of the posterior is an alternative; a moving track has one direction."""
    track = make_track(1, (30.0, 0.0))
    track.error_degrees = 1.0
    track.posterior = points_at(((30.0, 0.0), 27), ((150.0, 0.0), 68), ((-80.0, 0.0), 5))
    first, second = track.possible_directions
    assert first.probability == pytest.approx(0.27)
    assert first.direction == pytest.approx(track.direction)
    assert second.probability == pytest.approx(0.68)
    assert second.direction == pytest.approx([150.0, 0.0])
    assert second.radius_90 == pytest.approx(gaussian_radius_90(2))
    assert track.posterior.more_probable(track.vector, 3.0) is None
    assert track.posterior.more_probable(track.vector, 2.0) == pytest.approx([150.0, 0.0])
    assert track.posterior.more_probable(to_vectors(second.direction), 2.0) is None
    track.velocity = np.array([20.0, 0.0])
    assert len(track.possible_directions) == 1


def test_prior_of_the_buffer_turns_with_the_head(tracker: OnlineTracker) -> None:
    """The most probable direction before any sound is in front of the head."""
    for yaw in (0.0, 90.0, 0.0):
        tracker.buffer.set_yaw(yaw)
        front = tracker.buffer.vectors[int(tracker.buffer.log_prior.argmax())]
        nearest = (tracker.buffer.vectors @ to_vectors([yaw, 0.0])).argmax()
        assert front @ tracker.buffer.vectors[nearest] == pytest.approx(1.0)
        assert np.ptp(tracker.buffer.log_prior) == pytest.approx(np.log(2), rel=0.05)


def test_confirmed_tracks_never_exceed_max_tracks(reverberant_atlas: ea.Atlas) -> None:
    """Two tracks that are confirmed in one step replace two coasting ones."""
    assert reverberant_atlas.reverberant_localizer is not None
    tracker = OnlineTracker(
        OnsetBuffer(reverberant_atlas.reverberant_localizer.direct_sound, TrackerSettings().buffer),
        TrackerSettings(max_tracks=2),
    )
    vectors = to_vectors(np.array([[0.0, 0.0], [60.0, 0.0], [-60.0, 0.0], [120.0, 0.0]]))
    nothing = np.zeros(0, dtype=np.float32)
    tracker.tracks = [
        OnlineTrack(i, vector, float(i), deque(), deque(), nothing, TrackSettings())
        for i, vector in enumerate(vectors)
    ]
    for track in tracker.tracks:
        track.last_hit_at = 0.1 * track.id + (9.0 if track.id >= 2 else 0.0)
        tracker._confirm(track, 10.0)
        if track.id < 2:
            track.register_miss()  # coasting
    assert [track.id for track in tracker.confirmed] == [2, 3]
    assert all(track.state is TrackState.DELETED for track in tracker.tracks[:2])
    fifth = OnlineTrack(5, vectors[0], 10.0, deque(), deque(), nothing, TrackSettings())
    tracker._confirm(fifth, 10.0)  # both others are active
    assert not fifth.confirmed


def test_reverberation_is_decided_after_enough_active_sound(
    reverberant_atlas: ea.Atlas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decay of 0.27 s is decided after some seconds of active sound, 0.40 s at once.

    Leading silence does not count; a known diffuse-to-direct ratio gives an earlier decision.
    """
    assert reverberant_atlas.reverberant_localizer is not None
    original = OnsetDetector.bins
    sound = np.stack([ea.synthetic_speech(5.0, seed=2)] * 2)
    for decay, lead_seconds, diffuse_ratio, bounds in (
        (0.27, 0.0, None, (2.5, 5.0)),
        (0.27, 5.0, None, (2.5, 5.0)),
        (0.40, 0.0, None, (0.9, 1.2)),
        (0.27, 0.0, 0.03, (0.9, 1.2)),
        (0.23, 0.0, None, None),
        (0.23, 0.0, 0.03, (0.9, 1.2)),
        (0.19, 0.0, 0.03, None),
        (0.40, 0.0, 0.004, None),
    ):

        def bins(stream: OnsetDetector, decay: float = decay) -> OnsetBins:
            return replace(original(stream), reverberation=ReverberationEstimate(decay))

        monkeypatch.setattr(OnsetDetector, "bins", bins)
        front_end = TrackingFrontEnd(
            reverberant_atlas.reverberant_localizer, np.zeros_like, TrackerSettings()
        )
        x = np.concatenate([np.zeros((2, int(lead_seconds * RATE))), sound], axis=1)
        decisions = []
        for k in range(x.shape[1] // STEP):
            now = (k + 1) * STEP / RATE
            front_end.step(x[:, k * STEP : (k + 1) * STEP], now, STEP / RATE, diffuse_ratio)
            decisions.append(front_end.reverberation.reverberant)
        if bounds is None:
            assert not any(decisions)
            continue
        seconds = (decisions.index(True) + 1) * STEP / RATE - lead_seconds
        assert bounds[0] < seconds < bounds[1]


def make_track(track_id: int, direction: tuple[float, float], hits: int = 30) -> OnlineTrack:
    """Return a confirmed track with a hit at 9.9 s."""
    nothing = np.zeros(0, dtype=np.float32)
    track = OnlineTrack(
        track_id, to_vectors(direction), 0.0, deque(), deque(), nothing, TrackSettings()
    )
    track.hits, track.state, track.gain = hits, TrackState.CONFIRMED, 0.5
    track.register_hit(9.9)
    return track


def test_crossing_track_keeps_its_speed() -> None:
    """A crossing track does not decelerate without hits, as a single one does."""
    alone, crossing = make_track(1, (20.0, 0.0)), make_track(2, (20.0, 0.0))
    crossing.crossing = True
    for track in (alone, crossing):
        track.velocity = np.array([-20.0, 0.0])
        for _ in range(10):
            track.predict(0.1)
    assert crossing.direction[0] == pytest.approx(0.0, abs=1e-9)
    assert alone.direction[0] > 2


def test_move_on_cone_keeps_the_lateral_velocity() -> None:
    """Behind the head the azimuth changes in the other direction for the same lateral motion."""

    def lateral(track: OnlineTrack) -> float:
        return float(np.degrees(np.arcsin(track.vector[1])))

    track = make_track(1, (40.0, 0.0))
    track.velocity = np.array([12.0, 4.0])
    before = lateral(track)
    track.move_on_cone(to_vectors([140.0, 0.0]))
    np.testing.assert_allclose(track.velocity, [-12.0, 0.0], atol=1e-9)
    assert lateral(track) == pytest.approx(before)
    track.predict(0.1)
    assert lateral(track) == pytest.approx(before + 1.2)


@pytest.fixture
def tracker(reverberant_atlas: ea.Atlas) -> OnlineTracker:
    """A tracker without onsets."""
    assert reverberant_atlas.reverberant_localizer is not None
    return OnlineTracker(
        OnsetBuffer(reverberant_atlas.reverberant_localizer.direct_sound, TrackerSettings().buffer),
        TrackerSettings(),
    )


def test_crossing_needs_a_moving_track_and_ends(tracker: OnlineTracker) -> None:
    """Two close tracks cross for a limited time, unless one has coasted for long."""
    one, two = make_track(1, (5.0, 0.0)), make_track(2, (-3.0, 0.0))
    tracker.tracks = [one, two]
    assert not tracker._update_crossing(0, 10.0)  # both are static
    two.velocity = np.array([16.0, 0.0])
    assert tracker._update_crossing(0, 10.0)
    assert tracker._update_crossing(1, 10.0)
    assert tracker._update_crossing(0, 12.4)
    assert not tracker._update_crossing(0, 12.6)
    two.vector = to_vectors([-20.0, 0.0])
    assert not tracker._update_crossing(0, 12.7)
    two.vector, two.last_hit_at, two.crossing = to_vectors([-3.0, 0.0]), 5.0, False
    assert not tracker._update_crossing(0, 12.8)


def test_lost_moving_track_is_recovered(tracker: OnlineTracker) -> None:
    """A new track continues a lost one, unless that was static, is still explained, or is far."""

    def confirmed(direction: tuple[float, float], *, moving: bool, gain: float) -> list[int]:
        lost, new = make_track(1, (60.0, 0.0)), make_track(7, direction, hits=3)
        lost.velocity = np.array([20.0 * moving, 0.0])
        lost.register_hit(9.5)
        lost.register_miss()
        lost.register_miss()
        lost.gain = gain
        lost.vector = to_vectors([75.0, 0.0])
        new.initiated_at, new.state = 9.7, TrackState.TENTATIVE
        tracker.tracks = [lost, new]
        tracker._confirm(new, 10.0)
        ids = [track.id for track in tracker.confirmed]
        if ids == [1]:
            np.testing.assert_array_equal(lost.direction, new.direction)
            assert (lost.hits, lost.misses, new.state) == (33, 0, TrackState.DELETED)
            assert lost.state is TrackState.CONFIRMED
        return ids

    assert confirmed((42.0, 10.0), moving=True, gain=0.05) == [1]
    assert confirmed((42.0, 10.0), moving=False, gain=0.05) == [1, 7]
    assert confirmed((42.0, 10.0), moving=True, gain=0.3) == [1, 7]
    assert confirmed((20.0, 0.0), moving=True, gain=0.05) == [1, 7]


def test_tracks_with_the_largest_gain_are_rendered(reverberant_atlas: ea.Atlas) -> None:
    """A sporadic reflection with later hits does not replace a talker.

    A silent track gives way to an active one; in a reverberant room a third track needs more hits
    and a larger gain, which is less once it is rendered.
    """
    stage = reverberant_atlas.live()._rendering
    one, two, reflection = (make_track(i, (40.0 * i, 0.0)) for i in (1, 2, 3))
    one.gain, two.gain, reflection.gain, reflection.low_likelihood_steps = 0.5, 0.4, 0.06, 3
    one.register_hit(9.3)
    reflection.register_hit(10.0)

    def select() -> tuple[int, ...]:
        return stage._ranked([one, two, reflection], 10.0, reverberant=True)

    assert select() == (1, 2)
    reflection.low_likelihood_steps, reflection.gain_ratio = 0, 1.2
    assert select() == (1, 2)
    stage._selected = (1, 2, 3)
    assert select() == (1, 2, 3)
    stage._selected, reflection.gain_ratio = (), 1.6
    assert select() == (1, 2, 3)
    reflection.hits = two.hits = 5
    assert select() == (1, 2)
    one.register_hit(7.0)
    assert select() == (2, 3)
    for track in (one, two):
        track.register_hit(10.0)
    two.gain, stage._selected = 0.05, (1, 2)
    assert select() == (1, 2)  # hysteresis
    stage._selected = ()
    assert select() == (1, 3)


def test_third_track_stays_without_a_hit(reverberant_atlas: ea.Atlas) -> None:
    """In anechoic sound a third talker is rendered for 4 s without a hit, once it was active."""
    stage = reverberant_atlas.live()._rendering
    tracks = [make_track(i, (40.0 * i, 0.0)) for i in (1, 2, 3)]
    for track, gain, hit in zip(tracks, (0.5, 0.4, 0.1), (10.0, 10.0, 7.0), strict=True):
        track.gain = gain
        track.register_hit(hit)

    def select(now: float, *, reverberant: bool = False) -> tuple[int, ...]:
        return stage._ranked(tracks, now, reverberant=reverberant)

    assert select(8.0) == (1, 2, 3)
    assert select(10.0) == (1, 2)
    stage._selected = (1, 2, 3)
    assert select(10.0) == (1, 2, 3)
    assert select(11.5) == (1, 2)
    assert select(10.0, reverberant=True) == (1, 2)


def test_low_likelihood_track_is_merged_or_deleted(tracker: OnlineTracker) -> None:
    """On one cone the id with the larger total gain is kept; a single track is not deleted."""
    older, newer, distant = (
        make_track(i, d) for i, d in ((1, (40.0, 0.0)), (2, (140.0, 0.0)), (3, (-50.0, 0.0)))
    )
    reflection = make_track(4, (139.0, 0.0))
    older.gain, older.low_likelihood_steps, older.total_gain = 0.05, 11, 3.0
    reflection.gain, reflection.low_likelihood_steps, reflection.total_gain = 0.05, 11, 1.0
    newer.total_gain = 2.0
    tracker.tracks = [older, newer, distant, reflection]
    tracker._delete_redundant(10.0)
    assert [track.id for track in tracker.confirmed] == [1, 3]
    assert older.total_gain == 5.0
    np.testing.assert_allclose(older.direction, [140.0, 0.0])
    older.gain, distant.gain, distant.low_likelihood_steps = 0.5, 0.01, 11
    tracker._delete_redundant(10.0)
    assert [track.id for track in tracker.confirmed] == [1]
    older.low_likelihood_steps = 99
    tracker._delete_redundant(10.0)
    assert [track.id for track in tracker.confirmed] == [1]


def test_absorbed_track_is_not_merged_again(tracker: OnlineTracker) -> None:
    """Of three tracks in a row, one that was absorbed by the first does not take the third."""
    tracks = [make_track(i, (azimuth, 0.0)) for i, azimuth in ((1, 10.0), (2, 18.0), (3, 26.0))]
    for track, gain, low in zip(tracks, (0.01, 0.02, 0.5), (11, 11, 0), strict=True):
        track.gain, track.low_likelihood_steps, track.total_gain = gain, low, 1.0 - gain
    tracker.tracks = tracks
    tracker._delete_redundant(10.0)
    assert [track.id for track in tracker.confirmed] == [1, 3]
    np.testing.assert_allclose(tracks[2].direction, [26.0, 0.0])
    assert tracks[0].gain == 0.02


def test_low_likelihood_steps_count_only_hits() -> None:
    """Misses do not count, and a higher gain resets the count."""
    track = make_track(1, (0.0, 0.0))
    for hit, low, count in ((1, 1, 1), (0, 1, 1), (1, 1, 2), (0, 0, 0), (1, 1, 1)):
        track.count_low_likelihood(bool(hit), bool(low))
        assert track.low_likelihood_steps == count


class FakeBins:
    """Four bins, all of them new."""

    newest = slice(0, 4)


@pytest.mark.parametrize(("gain", "steps"), [(0.2, None), (0.3, 2), (0.6, 1)])
def test_high_gain_is_confirmed_sooner(
    tracker: OnlineTracker, gain: float, steps: int | None
) -> None:
    """The first track needs 0.25 nats per bin for three hits, or 0.5 for two."""
    tracker.buffer = FakeBins()  # type: ignore[assignment]
    track = make_track(1, (0.0, 0.0), hits=1)
    track.state = TrackState.TENTATIVE
    tracker.tracks = [track]
    v = np.array([0.5, 1.0, 0.25, 0.5])
    confirmed_after = None
    for step in range(1, 5):
        tracker._update_score(track, gain * v, v, 10.0 + 0.1 * step, crossing=False)
        if track.confirmed and confirmed_after is None:
            confirmed_after = step
    assert confirmed_after == steps


@pytest.mark.parametrize("alternates", [True, False])
def test_track_with_frequencies_of_its_own_is_not_confirmed(
    tracker: OnlineTracker, alternates: bool
) -> None:
    """A second track must share its frequencies with a static one; a moving one does not count."""
    n = np.arange(300)
    f, time = n // 10, n % 10
    tracker.buffer = SimpleNamespace(  # type: ignore[assignment]
        frequencies=f,
        newest=slice(290, 300),
        is_on_cone=lambda *_: False,
        lateral_angle=lambda vector: float(np.degrees(np.arcsin(vector[1]))),
    )
    first, second = make_track(1, (40.0, 0.0)), make_track(2, (-20.0, 0.0))
    second.state = TrackState.TENTATIVE
    tracker.tracks = [first, second]
    own = (time if alternates else f // 3) % 2 == 0
    densities = np.stack([np.where(own, 0.3, 3.0), np.where(own, 3.0, 0.3)], axis=1)
    mixture = SourceMixture(densities, np.array([[0.45], [0.45], [0.1]]), np.ones(300))
    second.band_excess = tracker._band_excess(mixture, 1, 10.0)
    assert (second.band_excess == 0) == alternates
    gains = np.full(300, second.band_excess + 0.07 if not alternates else 0.3)
    for _ in range(3):
        tracker._update_score(second, gains, np.ones(300), 10.0, crossing=False)
    assert second.confirmed == alternates
    first.velocity = np.array([16.0, 0.0])
    assert tracker._band_excess(mixture, 1, 10.0) == 0


def test_log_likelihoods_match_the_formula(
    reverberant_atlas: ea.Atlas, moving_samples: Array
) -> None:
    """L = Σ_n v_n log(π g_n + others_n), for all bins and for the recent ones."""
    tracker = track_samples(reverberant_atlas, moving_samples, 0.0).tracker
    buffer = tracker.buffer
    v, others = buffer.weights, np.linspace(0.1, 2.0, len(buffer))
    expected = v @ np.log(0.3 * buffer.densities.astype(float) + others[:, None])
    np.testing.assert_allclose(
        tracker.buffer.log_likelihoods(v, others, 0.3), expected, rtol=1e-4, atol=1e-3
    )
    recent = buffer.bins_since(0.6)
    assert len(buffer) - recent.start == int((buffer.ages < 0.64).sum())  # whole steps
    densities = buffer.densities[recent].astype(float)
    expected = v[recent] @ np.log(0.3 * densities + others[recent, None])
    L = tracker.buffer.log_likelihoods(v[recent], others[recent], 0.3, recent)
    np.testing.assert_allclose(L, expected, rtol=1e-4, atol=1e-3)


def test_buffer_observes_onsets_as_recordings_do(
    reverberant_atlas: ea.Atlas, moving_samples: Array
) -> None:
    """The density of a buffered bin around a direction is that of the model of recordings."""
    assert reverberant_atlas.reverberant_localizer is not None
    sound = reverberant_atlas.reverberant_localizer.direct_sound
    detector = OnsetDetector(sound.onset_settings)
    detector.push(moving_samples)
    bins = detector.bins()
    buffer = OnsetBuffer(sound, replace(OnsetBufferSettings(), max_bins_per_step=len(bins)))
    buffer.add(bins, np.zeros(len(bins)), int(bins.frames), 1.0)
    rows = np.arange(0, len(sound.grid), 101)
    expected = sound.densities(bins, rows)
    np.testing.assert_array_equal(buffer.densities_at(sound.grid[rows]), expected)
    np.testing.assert_array_equal(buffer.densities, sound.densities(bins, sound.cells[0]))


def test_crossing_sources_keep_their_track_ids(
    reverberant_atlas: ea.Atlas, atlas_head: ea.Head
) -> None:
    """After crossing, each id continues on its side."""
    paths = [ea.Trajectory((0, 5), ((s * 50, 0), (-s * 50, 0))) for s in (1, -1)]
    sounds = [ea.synthetic_speech(5.0, seed=seed) for seed in (3, 4)]
    x = ea.render_scene(atlas_head, sounds, paths).mixture.samples
    assert reverberant_atlas.reverberant_localizer is not None
    front_end = TrackingFrontEnd(
        reverberant_atlas.reverberant_localizer, lambda t: 0.0 * t, TrackerSettings()
    )
    first: dict[int, float] = {}
    for k in range(x.shape[1] // STEP):
        front_end.step(x[:, k * STEP : (k + 1) * STEP], (k + 1) * STEP / RATE, STEP / RATE)
        for track in front_end.tracker.confirmed:
            first.setdefault(track.id, float(track.direction[0]))
    last = {track.id: float(track.direction[0]) for track in front_end.tracker.confirmed}
    assert first.keys() == last.keys()
    assert sorted(np.sign(list(first.values()))) == [-1, 1]
    for track_id, azimuth in last.items():
        assert 35 < -np.sign(first[track_id]) * azimuth < 60


def test_track_coasts_through_silence_and_is_deleted_on_time(
    reverberant_atlas: ea.Atlas, atlas_head: ea.Head
) -> None:
    """The id survives 5 s of silence, and is deleted after half a second per hit."""
    sound = ea.synthetic_speech(3.0, seed=5)
    pause = np.zeros(5 * RATE)
    sound = np.concatenate([sound, pause, sound[:RATE], np.zeros(16 * RATE)])
    scene = ea.render_scene(atlas_head, [sound], [[-40.0, 0.0]])
    x, true = scene.mixture.samples, to_vectors(scene.directions[0])
    assert reverberant_atlas.reverberant_localizer is not None
    front_end = TrackingFrontEnd(
        reverberant_atlas.reverberant_localizer, lambda t: 0.0 * t, TrackerSettings()
    )
    last_hit, radii, ended = 0.0, [], None
    ids: set[int] = set()
    for k in range(x.shape[1] // STEP):
        now = (k + 1) * STEP / RATE
        front_end.step(x[:, k * STEP : (k + 1) * STEP], now, STEP / RATE)
        ids |= {track.id for track in front_end.tracker.confirmed}
        if front_end.tracker.confirmed:
            (track,) = front_end.tracker.confirmed
            last_hit, hits = track.last_hit_at, track.hits
            radii.append(track.radius_90)
            # This head hardly distinguishes front from back: only the side is tested.
            assert abs(np.degrees(np.arcsin(track.vector[1]) - np.arcsin(true[1]))) < 12
        elif ids and ended is None:
            ended = now
    assert len(ids) == 1
    assert max(radii[30:55]) > 1.3 * min(radii)  # it grows while coasting
    assert ended is not None
    assert 0 < ended - last_hit - max(0.5 * hits, 5.0) <= STEP / RATE + 1e-9


def test_thresholds_follow_the_mixture_settings(reverberant_atlas: ea.Atlas) -> None:
    """Gains and cones of the tracker are those of the mixture it is given."""
    assert reverberant_atlas.reverberant_localizer is not None
    mixture = OnsetMixtureSettings(min_gain_nats=(0.4, 0.7), same_cone_nats=0.3, cone_degrees=14.0)
    settings = TrackerSettings(
        buffer=OnsetBufferSettings(mixture=mixture),
        initiation=InitiationSettings(first_nats_per_bin=0.1),
    )
    buffer = OnsetBuffer(reverberant_atlas.reverberant_localizer.direct_sound, settings.buffer)
    tracker = OnlineTracker(buffer, settings)
    assert [tracker._initiation_threshold(n) for n in range(4)] == [0.1, 0.4, 0.7, 0.7]
    first, second = make_track(1, (40.0, 0.0)), make_track(2, (53.0, 0.0))
    tracker.tracks = [first, second]
    assert tracker._required_gain(second, 10.0) == pytest.approx(0.4 + 0.3)  # 13 degrees apart
    second.vector = to_vectors([55.0, 0.0])
    assert tracker._required_gain(second, 10.0) == 0.4
