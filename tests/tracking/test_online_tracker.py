"""Tracks of a live stream: who stands, who walks, and a head that turns."""

from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import earatlas as ea
from earatlas.features.onset_detector import OnsetBins, OnsetStream
from earatlas.geometry.angles import great_circle_error, to_directions, to_vectors
from earatlas.localization.onset_likelihood import bin_weights
from earatlas.tracking.front_end import Whereabouts
from earatlas.tracking.local_search import CELL, Before, Patch, _along
from earatlas.tracking.online import Tracker
from earatlas.tracking.online_track import Track
from earatlas.tracking.onset_buffer import Arrivals
from earatlas.tracking.settings import Tracking
from earatlas.types import Array, Single

RATE, STEP = 16_000, 2048
NOTHING = Before(np.array([1.0, 0.0, 0.0]), np.inf, 0.0, np.inf, 0.6)


def test_a_walk_is_a_sum_of_shifted_lattices() -> None:
    """L(x, u) = Σ_s S_s(x - u τ_s), and outside of the lattice S is 0: against loops."""
    rng = np.random.default_rng(3)
    lattices, taus = rng.normal(size=(4, 3, 7)), np.array([0.9, 0.5, 0.25, 0.1])
    for u, w in ((0.0, 0.0), (16.0, 0.0), (-8.0, 8.0), (48.0, -16.0)):
        expected = np.zeros((3, 7))
        for lattice, tau in zip(lattices, taus, strict=True):
            for e in range(3):
                for a in range(7):
                    then = e - round(w * tau / CELL), a - round(u * tau / CELL)
                    if 0 <= then[0] < 3 and 0 <= then[1] < 7:
                        expected[e, a] += lattice[then]
        np.testing.assert_allclose(_along(lattices, taus, u, w), expected, rtol=1e-12)


@dataclass
class MadeArrivals:
    """Bins that fit where one source was: 6 a step, of 12 steps, within some degrees."""

    way: Array  # (12, 2) degrees

    def __post_init__(self) -> None:
        rng = np.random.default_rng(5)
        self.elevation = None
        self.lengths = np.full(12, 6)
        self.step_ages = 0.128 * np.arange(11.5, 0, -1)
        self.ages = np.repeat(self.step_ages, 6)
        self._f = np.tile(np.arange(6), 12)
        self.weights = bin_weights(self._f)
        self._seen = np.repeat(self.way, 6, axis=0) + rng.normal(scale=1.5, size=(72, 2))

    def recent_weights(self, seconds: float) -> Array:
        """As of real ones."""
        return Arrivals.recent_weights(self, seconds)  # type: ignore[arg-type]

    def snapped(self, places: Array) -> tuple[Array, Array]:
        """Every place was measured."""
        return places, np.zeros(len(places))

    def at(self, places: Array) -> Single:
        """A Gaussian around what was seen."""
        gaps = great_circle_error(self._seen[:, None], places[None])
        return (30 * np.exp(-0.5 * (gaps / 4) ** 2)).astype(np.float32)


@pytest.mark.parametrize("speed", [0.0, 16.0, -24.0])
def test_a_patch_tells_standing_from_walking(speed: float) -> None:
    """Place and speed of now; each bin is explained where the source was then."""
    ages = 0.128 * np.arange(11.5, 0, -1)
    way = np.stack([30.0 - speed * ages, np.full(12, 6.0)], axis=-1)
    patch = Patch(MadeArrivals(way), np.array([27.0, 4.0]))  # type: ignore[arg-type]
    trail = np.full(72, 9.0)  # where it has left the lattice
    stands, walks, more = patch.fits(np.full(72, 0.1), trail, 0.5, 9.0, NOTHING)
    assert (more > 3) == (speed != 0)
    fit = walks if speed else stands
    assert 0 <= great_circle_error([30.0, 6.0], to_directions(fit.place)) < 1.5
    np.testing.assert_array_equal(fit.velocity, [speed, 0.0])
    lately = slice(36, None)
    assert walks.densities[lately].mean() > 15
    assert (stands.densities[lately].mean() > 15) == (speed == 0)


def test_what_is_known_of_a_walk_counts() -> None:
    """A place and a speed that are not expected cost what a Gaussian says."""
    before = Before(to_vectors([10.0, 0.0]), 4.0, -8.0, 10.0, 0.6)
    nats = before.of_place(to_vectors(np.array([[10.0, 0.0], [18.0, 0.0]])))
    np.testing.assert_allclose(nats, [0.0, -2.0], atol=1e-9)
    assert before.of_speed(12.0) == pytest.approx(-2.0)


def test_what_is_known_of_a_sound_is_void_after_a_way() -> None:
    """A walk, or a turn of the head; not a step that is taken back, nor a better place."""
    track = Track(1, to_vectors([20.0, 0.0]), 0.0, deque(), deque(), np.zeros(0, dtype=np.float32))
    assert track.moved(-15.0) == pytest.approx(1 - np.exp(-1))
    track.place = to_vectors([26.0, 0.0])  # it stands: that was better measured
    assert track.moved() == 0
    track.velocity = np.array([10.0, 0.0])
    track.predict(0.3)
    assert track.moved() == 0  # 3 degrees may be taken back
    track.predict(0.2)
    assert track.moved(10.0) == pytest.approx(1 - np.exp(-1), abs=1e-6)
    assert track.moved() == 0
    track.jump(to_vectors([120.0, 30.0]))
    assert track.moved() == 0


def test_who_walks_goes_on_and_stops_when_it_is_silent() -> None:
    """At its speed while it is heard, then ever slower, until it stands; its radius grows."""
    track = Track(1, to_vectors([50.0, 0.0]), 0.0, deque(), deque(), np.zeros(0, dtype=np.float32))
    standing = track.radius_90
    track.velocity = np.array([-20.0, 0.0])
    assert track.radius_90 == pytest.approx(1.6 * standing)
    for _ in range(10):
        track.predict(0.1)
        track.silent_seconds = 0.0  # it was heard
    assert track.direction[0] == pytest.approx(30.0)
    radius = track.radius_90
    for _ in range(40):
        track.predict(0.1)
    assert not track.walks
    assert -5 < track.direction[0] < 5  # 20 degrees a second for 1.5 s, and what the pause takes
    assert track.radius_90 > 0.6 * radius


def followed(atlas: ea.Atlas, samples: Array, degrees_a_second: float) -> Whereabouts:
    """Tracks after samples that a head heard while it turned."""
    assert atlas.rooms is not None
    where = Whereabouts(atlas.rooms, lambda t: degrees_a_second * t, Tracking())
    names = set()
    for k in range(samples.shape[1] // STEP):
        where.step(samples[:, k * STEP : (k + 1) * STEP], (k + 1) * STEP / RATE, STEP / RATE)
        names |= {track.id for track in where.confirmed}
    assert len(names) == 1
    return where


@pytest.fixture(scope="module")
def ready(atlas: ea.Atlas, atlas_head: ea.Head) -> ea.Atlas:
    """The shared atlas, made ready for rooms."""
    return atlas if atlas.rooms is not None else atlas.with_rooms(atlas_head)


@pytest.fixture(scope="module")
def passing(atlas_head: ea.Head) -> Array:
    """A synthetic_speech that goes by the head at 30 degrees a second, from 45 to -45 degrees."""
    trajectory = ea.Trajectory((0, 3), ((45, 0), (-45, 0)))
    return ea.render_scene(
        atlas_head, [ea.synthetic_speech(3.0, seed=7)], [trajectory]
    ).mixture.samples


def test_who_walks_has_one_name(ready: ea.Atlas, passing: Array) -> None:
    """It is followed, with its speed."""
    (track,) = followed(ready, passing, 0.0).confirmed
    assert track.walks
    assert 0 < great_circle_error([-45.0, 0.0], track.direction) < 10
    assert track.velocity[0] == pytest.approx(-30, abs=10)


def test_who_stands_stands_while_the_head_turns(ready: ea.Atlas, passing: Array) -> None:
    """The same sound heard by a head that turns by 30 degrees a second: one that stands."""
    (track,) = followed(ready, passing, 30.0).confirmed
    assert not track.walks
    assert 0 < great_circle_error([45.0, 0.0], track.direction) < 6


def test_cues_tell_where_on_its_cone_one_is(ready: ea.Atlas, passing: Array) -> None:
    """A track at the mirror image behind the turned head goes where its cues put it, and stays.

    Not to another side, and not to where the onsets say that nobody is.
    """
    where = followed(ready, passing, 30.0)
    (track,) = where.confirmed
    yaw = 30.0 * (passing.shape[1] // STEP) * STEP / RATE
    true = track.direction
    mirrored = np.array([2 * yaw + 180.0 - true[0], true[1]])
    track.jump(to_vectors(mirrored))
    tracker = where._tracker
    track.trail = tracker._places.trail(tracker._arrivals.at(mirrored[None])[:, 0])
    where.tell({track.id: true})
    assert track.told
    np.testing.assert_allclose(great_circle_error(true, track.direction), 0, atol=1e-5)
    before = track.direction
    for wrong in (mirrored, before + np.array([40.0, 0.0])):
        where.tell({track.id: wrong})
        assert not track.told
        np.testing.assert_array_equal(track.direction, before)
    where.tell({})
    assert not track.told
    for _ in range(24):  # of silence: nobody speaks against any place
        where.step(np.zeros((2, STEP)), 9.0, STEP / RATE)
    where.tell({track.id: mirrored})
    assert not track.told


def test_a_radius_reaches_as_far_as_its_cone_is_open(tracker: Tracker) -> None:
    """To another place on the cone that onsets leave as likely, unless cues tell or it walks."""
    vectors = tracker._places.arrivals.vectors
    here, there = 5, 90
    track = made_track(1, (0.0, 0.0))
    track.place, track.error = vectors[here], 1.0
    gap = np.degrees(np.arccos(vectors[here] @ vectors[there]))
    L = np.full(len(vectors), -np.inf, dtype=np.float32)
    L[here] = 3.0
    for nats, radius in ((2.0, gap), (-2.0, 0.0)):  # e to the -1 of it, and to the -5
        L[there] = nats
        track.cone_radius = tracker._elsewhere._cone_radius(track, L)
        assert track.cone_radius == pytest.approx(radius, abs=1e-3)
        assert track.radius_90 == pytest.approx(max(radius, 2.15), rel=0.1)
        sure = track.radius_90
        track.silent_seconds = 9.0
        assert track.radius_90 > sure + 0.1
        track.silent_seconds = 0.0
    track.cone_radius, track.told = gap, True
    assert track.radius_90 < 3


def test_never_more_than_the_most_are_confirmed(ready: ea.Atlas) -> None:
    """Two that are confirmed in one step take the places of two that are silent, not of one."""
    assert ready.rooms is not None
    tracker = Tracker(Arrivals(ready.rooms.sound, 24), Tracking(most=2))
    places = to_vectors(np.array([[0.0, 0.0], [60.0, 0.0], [-60.0, 0.0], [120.0, 0.0]]))
    nothing = np.zeros(0, dtype=np.float32)
    tracker.tracks = [
        Track(i, place, float(i), deque(), deque(), nothing) for i, place in enumerate(places)
    ]
    for track in tracker.tracks:
        track.heard_at = 0.1 * track.id + (9.0 if track.id >= 2 else 0.0)
        tracker._confirm(track, 10.0)
    assert [track.id for track in tracker.confirmed] == [2, 3]
    fifth = Track(5, places[0], 10.0, deque(), deque(), nothing)
    tracker._confirm(fifth, 10.0)  # both are heard: it must wait
    assert not fifth.confirmed


def test_a_room_is_believed_in_later_than_heard(
    ready: ea.Atlas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decays of 0.27 s are a room's after some seconds of sound; those of 0.40 s at once.

    Silence before the words counts for nothing; what filters of the open miss tells it sooner.
    """
    assert ready.rooms is not None
    real = OnsetStream.bins
    sound = np.stack([ea.synthetic_speech(5.0, seed=2)] * 2)
    for decay, lead, missed, begins in (
        (0.27, 0.0, None, (2.5, 5.0)),
        (0.27, 5.0, None, (2.5, 5.0)),
        (0.40, 0.0, None, (0.9, 1.2)),
        (0.27, 0.0, 0.03, (0.9, 1.2)),
        (0.23, 0.0, 0.03, None),
        (0.40, 0.0, 0.004, None),
    ):

        def bins(stream: OnsetStream, decay: float = decay) -> OnsetBins:
            return replace(real(stream), decay_seconds=decay)

        monkeypatch.setattr(OnsetStream, "bins", bins)
        where = Whereabouts(ready.rooms, np.zeros_like, Tracking())
        x, told = np.concatenate([np.zeros((2, int(lead * RATE))), sound], axis=1), []
        for k in range(x.shape[1] // STEP):
            now = (k + 1) * STEP / RATE
            where.step(x[:, k * STEP : (k + 1) * STEP], now, STEP / RATE, missed)
            told.append(where.in_room)
        if begins is None:
            assert not any(told)
            continue
        assert begins[0] < (told.index(True) + 1) * STEP / RATE - lead < begins[1]


def test_a_patch_keeps_to_its_side_and_within_reach() -> None:
    """Bins that fit a place beyond the middle between it and another, or too far, move nothing."""
    way = np.repeat([[30.0, 6.0]], 12, axis=0)
    others, trail = np.full(72, 0.1), np.full(72, 9.0)
    made = MadeArrivals(way)

    def placed(**bounds: Any) -> Array:
        patch = Patch(made, np.array([18.0, 6.0]), **bounds)  # type: ignore[arg-type]
        fits = patch.fits(others, trail, 0.5, 9.0, NOTHING)
        return np.array([to_directions(fit.place)[0] for fit in fits[:2]])

    np.testing.assert_allclose(placed(), 30.0, atol=1.5)
    beside = to_vectors(np.array([[34.0, 6.0], [-90.0, 0.0]]))
    assert (placed(beside=beside) < 26.5).all()
    assert (placed(reach_degrees=5.0) < 23.5).all()


def test_who_stops_is_where_it_was_expected() -> None:
    """A standing fit of one who walked counts the place that is expected, as a walking one does."""
    patch = Patch(MadeArrivals(np.repeat([[30.0, 6.0]], 12, axis=0)), np.array([27.0, 6.0]))  # type: ignore[arg-type]
    before = Before(to_vectors([20.0, 6.0]), 0.05, 0.0, 6.0, 0.6)
    stands, _, _ = patch.fits(np.full(72, 0.1), np.full(72, 9.0), 0.5, 9.0, before)
    assert to_directions(stands.place)[0] == pytest.approx(21, abs=1.5)  # of the lattice


def made_track(name: int, direction: tuple[float, float], hits: int = 30) -> Track:
    """A track that is believed, and heard at 9.9 s."""
    nothing = np.zeros(0, dtype=np.float32)
    track = Track(name, to_vectors(direction), 0.0, deque(), deque(), nothing)
    track.hits, track.confirmed_at, track.gain = hits, 1.0, 0.5
    track.hear(9.9)
    return track


def test_who_meets_another_goes_on_at_its_speed() -> None:
    """Though it is not heard by itself; alone it would slow down."""
    alone, meets = made_track(1, (20.0, 0.0)), made_track(2, (20.0, 0.0))
    meets.meets = True
    for track in (alone, meets):
        track.velocity = np.array([-20.0, 0.0])
        for _ in range(10):
            track.predict(0.1)
    assert meets.direction[0] == pytest.approx(0.0, abs=1e-9)
    assert alone.direction[0] > 2


def test_elsewhere_on_its_cone_a_walker_goes_to_the_same_side() -> None:
    """Behind the head to the left is the other way round: the lateral angle goes on as before."""

    def lateral(track: Track) -> float:
        return float(np.degrees(np.arcsin(track.place[1])))

    track = made_track(1, (40.0, 0.0))
    track.velocity = np.array([12.0, 4.0])
    before = lateral(track)
    track.turn_over(to_vectors([140.0, 0.0]))
    np.testing.assert_allclose(track.velocity, [-12.0, 0.0], atol=1e-9)
    assert lateral(track) == pytest.approx(before)
    track.predict(0.1)
    assert lateral(track) == pytest.approx(before + 1.2)


@pytest.fixture
def tracker(ready: ea.Atlas) -> Tracker:
    """One that has heard nothing yet."""
    assert ready.rooms is not None
    return Tracker(Arrivals(ready.rooms.sound, 24), Tracking())


def test_a_meeting_is_of_two_of_whom_one_walks_and_ends(tracker: Tracker) -> None:
    """Within some degrees, and for so long at the most; who has been silent for long is not met."""
    one, two = made_track(1, (5.0, 0.0)), made_track(2, (-3.0, 0.0))
    tracker.tracks = [one, two]
    assert not tracker._meets(0, 10.0)  # both stand
    two.velocity = np.array([16.0, 0.0])
    assert tracker._meets(0, 10.0)
    assert tracker._meets(1, 10.0)
    assert tracker._meets(0, 12.4)
    assert not tracker._meets(0, 12.6)
    two.place = to_vectors([-20.0, 0.0])
    assert not tracker._meets(0, 12.7)
    two.place, two.heard_at, two.meets = to_vectors([-3.0, 0.0]), 5.0, False
    assert not tracker._meets(0, 12.8)


def test_a_walker_that_is_lost_is_found_again(tracker: Tracker) -> None:
    """A new one at its side has its name; not if it stood, still explains much, or is elsewhere."""

    def confirmed(direction: tuple[float, float], *, walks: bool, gain: float) -> list[int]:
        lost, new = made_track(1, (60.0, 0.0)), made_track(7, direction, hits=3)
        lost.velocity = np.array([20.0 * walks, 0.0])
        lost.hear(9.5)
        lost.misses, lost.gain = 2, gain
        lost.place = to_vectors([75.0, 0.0])
        new.born, new.confirmed_at = 9.7, None
        tracker.tracks = [lost, new]
        tracker._confirm(new, 10.0)
        names = [track.id for track in tracker.confirmed]
        if names == [1]:
            np.testing.assert_array_equal(lost.direction, new.direction)
            assert (lost.hits, lost.misses, new.dead) == (33, 0, True)
        return names

    assert confirmed((42.0, 10.0), walks=True, gain=0.05) == [1]
    assert confirmed((42.0, 10.0), walks=False, gain=0.05) == [1, 7]
    assert confirmed((42.0, 10.0), walks=True, gain=0.3) == [1, 7]
    assert confirmed((20.0, 0.0), walks=True, gain=0.05) == [1, 7]


@pytest.mark.parametrize(
    ("decay", "missed", "before", "told"),
    [
        (0.21, 0.04, False, True),  # dry, but filters of the open miss much
        (0.19, 0.15, False, False),  # noise in the open
        (0.21, 0.02, False, False),
        (0.25, 0.02, False, True),
        (0.25, 0.002, False, False),  # two who fill each other's gaps in the open
        (0.25, None, False, False),  # too early to tell by decays alone
        (0.40, None, False, True),
        (0.21, None, True, True),  # what was taken for a room stays one
        (0.19, None, True, False),
    ],
)
def test_what_filters_of_the_open_miss_tells_a_room(
    ready: ea.Atlas, decay: float, missed: float | None, before: bool, told: bool
) -> None:
    """Together with how sound dies away, which alone takes seconds to show."""
    assert ready.rooms is not None
    where = Whereabouts(ready.rooms, lambda t: np.zeros_like(t), Tracking())
    where.in_room = before
    assert where._room_told(decay, missed) is told


def test_who_explains_most_has_the_sound(ready: ea.Atlas) -> None:
    """Not the two heard last: a reflection that is heard now and then takes no talker's place.

    Who is silent gives way to who speaks; in a room a third has a share when it lasts and explains.
    """
    live = ready.live()
    one, two, ghost = (made_track(i, (40.0 * i, 0.0)) for i in (1, 2, 3))
    one.gain, two.gain, ghost.gain, ghost.little = 0.5, 0.4, 0.06, 3
    one.hear(9.3)
    ghost.hear(10.0)
    live._where.in_room = True
    assert live._heard_now([one, two, ghost], 10.0) == (1, 2)
    ghost.little = 0
    assert live._heard_now([one, two, ghost], 10.0) == (1, 2, 3)
    ghost.hits = two.hits = 5
    assert live._heard_now([one, two, ghost], 10.0) == (1, 2)
    one.hear(7.0)
    assert live._heard_now([one, two, ghost], 10.0) == (2, 3)
    for track in (one, two):
        track.hear(10.0)
    two.gain, live._sounding = 0.05, (1, 2)
    assert live._heard_now([one, two, ghost], 10.0) == (1, 2)  # who has a share keeps it
    live._sounding = ()
    assert live._heard_now([one, two, ghost], 10.0) == (1, 3)


def test_who_explains_little_for_long_is_another_one(tracker: Tracker) -> None:
    """Of two on one cone the name stays of who has explained more in all; alone nobody dies."""
    older, newer, aside = (
        made_track(i, d) for i, d in ((1, (40.0, 0.0)), (2, (140.0, 0.0)), (3, (-50.0, 0.0)))
    )
    ghost = made_track(4, (139.0, 0.0))
    older.gain, older.little, older.explained = 0.05, 11, 3.0
    ghost.gain, ghost.little, ghost.explained = 0.05, 11, 1.0
    newer.explained = 2.0
    tracker.tracks = [older, newer, aside, ghost]
    tracker._merge(10.0)
    assert [track.id for track in tracker.confirmed] == [1, 3]
    assert older.explained == 5.0
    np.testing.assert_allclose(older.direction, [140.0, 0.0])
    older.gain, aside.gain, aside.little = 0.5, 0.01, 11
    tracker._merge(10.0)
    assert [track.id for track in tracker.confirmed] == [1]
    older.little = 99
    tracker._merge(10.0)
    assert [track.id for track in tracker.confirmed] == [1]


def test_who_has_become_another_one_takes_nobody_along(tracker: Tracker) -> None:
    """Of three in a row, the dead one of the first two does not become the third."""
    tracks = [made_track(i, (azimuth, 0.0)) for i, azimuth in ((1, 10.0), (2, 18.0), (3, 26.0))]
    for track, gain, little in zip(tracks, (0.01, 0.02, 0.5), (11, 11, 0), strict=True):
        track.gain, track.little, track.explained = gain, little, 1.0 - gain
    tracker.tracks = tracks
    tracker._merge(10.0)
    assert [track.id for track in tracker.confirmed] == [1, 3]
    np.testing.assert_allclose(tracks[2].direction, [26.0, 0.0])
    assert tracks[0].gain == 0.02


def test_little_is_counted_while_one_is_heard() -> None:
    """A pause counts nothing, and explaining more begins anew."""
    track = made_track(1, (0.0, 0.0))
    for heard, little, count in ((1, 1, 1), (0, 1, 1), (1, 1, 2), (0, 0, 0), (1, 1, 1)):
        track.count_little(bool(heard), bool(little))
        assert track.little == count


class MadeSound:
    """Four bins, all of them new."""

    new = slice(0, 4)


@pytest.mark.parametrize(("gain", "steps"), [(0.2, None), (0.3, 2), (0.6, 1)])
def test_who_explains_much_is_confirmed_sooner(
    tracker: Tracker, gain: float, steps: int | None
) -> None:
    """The first must explain 0.25 nats a bin: after three steps with its birth, or two with 0.5."""
    tracker._arrivals = MadeSound()  # type: ignore[assignment]
    track = made_track(1, (0.0, 0.0), hits=1)
    track.confirmed_at = None
    tracker.tracks = [track]
    v = np.array([0.5, 1.0, 0.25, 0.5])
    took = None
    for step in range(1, 5):
        tracker._hear(track, gain * v, v, 10.0 + 0.1 * step, meets=False)
        if track.confirmed and took is None:
            took = step
    assert took == steps


def test_likelihoods_in_parts_are_those_of_all(ready: ea.Atlas, passing: Array) -> None:
    """L = Σ_n v_n log(π g_n + others_n), of all bins and of the latest."""
    tracker = followed(ready, passing, 0.0)._tracker
    arrivals = tracker._arrivals
    v, others = arrivals.weights, np.linspace(0.1, 2.0, len(arrivals))
    expected = v @ np.log(0.3 * arrivals.densities.astype(float) + others[:, None])
    np.testing.assert_allclose(
        tracker._places.likelihoods(v, others, 0.3), expected, rtol=1e-4, atol=1e-3
    )
    late = arrivals.since(0.6)
    assert len(arrivals) - late.start == int((arrivals.ages < 0.64).sum())  # whole steps
    part = v[late] @ np.log(0.3 * arrivals.densities[late].astype(float) + others[late, None])
    some = tracker._places.likelihoods(v[late], others[late], 0.3, late)
    np.testing.assert_allclose(some, part, rtol=1e-4, atol=1e-3)


def test_two_that_cross_keep_their_names(ready: ea.Atlas, atlas_head: ea.Head) -> None:
    """Each goes on to its side."""
    ways = [ea.Trajectory((0, 5), ((s * 50, 0), (-s * 50, 0))) for s in (1, -1)]
    sounds = [ea.synthetic_speech(5.0, seed=seed) for seed in (3, 4)]
    x = ea.render_scene(atlas_head, sounds, ways).mixture.samples
    assert ready.rooms is not None
    where = Whereabouts(ready.rooms, lambda t: 0.0 * t, Tracking())
    first: dict[int, float] = {}
    for k in range(x.shape[1] // STEP):
        where.step(x[:, k * STEP : (k + 1) * STEP], (k + 1) * STEP / RATE, STEP / RATE)
        for track in where.confirmed:
            first.setdefault(track.id, float(track.direction[0]))
    last = {track.id: float(track.direction[0]) for track in where.confirmed}
    assert first.keys() == last.keys()
    assert sorted(np.sign(list(first.values()))) == [-1, 1]
    for name, azimuth in last.items():
        assert 35 < -np.sign(first[name]) * azimuth < 60


def test_a_name_outlives_a_silence_and_dies_when_it_is_said(
    ready: ea.Atlas, atlas_head: ea.Head
) -> None:
    """Back at its place after 5 s it has its name; it is dead after half its heard steps in s."""
    sound = ea.synthetic_speech(3.0, seed=5)
    pause = np.zeros(5 * RATE)
    sound = np.concatenate([sound, pause, sound[:RATE], np.zeros(16 * RATE)])
    scene = ea.render_scene(atlas_head, [sound], [[-40.0, 0.0]])
    x, true = scene.mixture.samples, to_vectors(scene.directions[0])
    assert ready.rooms is not None
    where = Whereabouts(ready.rooms, lambda t: 0.0 * t, Tracking())
    heard, radii, ended = 0.0, [], None
    names: set[int] = set()
    for k in range(x.shape[1] // STEP):
        now = (k + 1) * STEP / RATE
        where.step(x[:, k * STEP : (k + 1) * STEP], now, STEP / RATE)
        names |= {track.id for track in where.confirmed}
        if where.confirmed:
            (track,) = where.confirmed
            heard, hits = track.heard_at, track.hits
            radii.append(track.radius_90)
            # This head tells front from back badly: what is asked is the side.
            assert abs(np.degrees(np.arcsin(track.place[1]) - np.arcsin(true[1]))) < 12
        elif names and ended is None:
            ended = now
    assert len(names) == 1
    assert max(radii[30:55]) > 1.3 * min(radii)  # it grew in the pause
    assert ended is not None
    assert 0 < ended - heard - max(0.5 * hits, 5.0) <= STEP / RATE + 1e-9
