"""Tracks of a live stream: who stands, who walks, and a head that turns."""

from collections import deque
from dataclasses import dataclass, replace

import numpy as np
import pytest

import earatlas as ea
from earatlas.hearing.onsets import OnsetBins, OnsetStream
from earatlas.learning.direct import bin_weights
from earatlas.live.arrivals import Arrivals
from earatlas.live.patch import CELL, Before, Patch, _along
from earatlas.live.track import Track
from earatlas.live.tracker import Tracker, Tracking
from earatlas.live.whereabouts import Whereabouts
from earatlas.space.angles import great_circle_error, to_directions, to_vectors
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
    """A murmur that goes by the head at 30 degrees a second, from 45 to -45 degrees."""
    route = ea.Route((0, 3), ((45, 0), (-45, 0)))
    return ea.render_scene(atlas_head, [ea.murmur(3.0, seed=7)], [route]).mixture.samples


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
    """A track goes to the mirror image behind the turned head; not to another side."""
    where = followed(ready, passing, 30.0)
    (track,) = where.confirmed
    yaw = 30.0 * (passing.shape[1] // STEP) * STEP / RATE
    mirrored = np.array([2 * yaw + 180.0 - track.direction[0], track.direction[1]])
    where.tell({track.id: mirrored})
    assert track.told
    np.testing.assert_allclose(great_circle_error(mirrored, track.direction), 0, atol=1e-5)
    before = track.direction
    where.tell({track.id: before + np.array([40.0, 0.0])})
    assert not track.told
    np.testing.assert_array_equal(track.direction, before)
    where.tell({})
    assert not track.told


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

    Silence before the words counts for nothing.
    """
    assert ready.rooms is not None
    real = OnsetStream.bins
    sound = np.stack([ea.murmur(5.0, seed=2)] * 2)
    for decay, lead, begins in (
        (0.27, 0.0, (2.5, 5.0)),
        (0.27, 5.0, (2.5, 5.0)),
        (0.40, 0.0, (0.9, 1.2)),
    ):

        def bins(stream: OnsetStream, decay: float = decay) -> OnsetBins:
            return replace(real(stream), decay_seconds=decay)

        monkeypatch.setattr(OnsetStream, "bins", bins)
        where = Whereabouts(ready.rooms, np.zeros_like, Tracking())
        x, told = np.concatenate([np.zeros((2, int(lead * RATE))), sound], axis=1), []
        for k in range(x.shape[1] // STEP):
            where.step(x[:, k * STEP : (k + 1) * STEP], (k + 1) * STEP / RATE, STEP / RATE)
            told.append(where.in_room)
        assert begins[0] < (told.index(True) + 1) * STEP / RATE - lead < begins[1]
