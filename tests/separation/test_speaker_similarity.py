"""Two voices or one: told by how sounds rise and fall, and what a stream makes of it."""

from collections import deque

import numpy as np
import pytest
import scipy.signal

import earatlas as ea
from earatlas.geometry.angles import to_vectors
from earatlas.localization.source_counter import Counting
from earatlas.separation.demixing.speaker_similarity import voices
from earatlas.streaming.filterbank import Bank
from earatlas.streaming.fir_demixing import Lasting
from earatlas.streaming.online_steering import Columns, Looking
from earatlas.tracking.local_search import Fit, Patch
from earatlas.tracking.online import Tracker
from earatlas.tracking.online_track import Track
from earatlas.tracking.onset_buffer import Arrivals
from earatlas.tracking.settings import Tracking
from earatlas.types import Array

RATE = 16_000
HERTZ: Array = np.arange(1.0, 257.0) * (RATE / 512)


def voice(seed: int, seconds: float = 3.0) -> Array:
    """A synthetic_speech in both ears."""
    sound = ea.synthetic_speech(seconds, seed=seed)
    return np.stack([sound, 0.7 * sound])


def echoed(sound: Array, seed: int = 0) -> Array:
    """What a room adds to it, without the sound itself."""
    rng, n = np.random.default_rng(seed), int(0.3 * RATE)
    answer = rng.normal(size=(2, n)) * np.exp(-6.9 * np.arange(n) / n)
    answer[:, : RATE // 200] = 0.0
    late: Array = scipy.signal.fftconvolve(sound, answer, axes=1)[:, : sound.shape[1]]
    late *= 0.5 * np.sqrt((sound**2).sum() / (late**2).sum())
    return late


def test_two_voices_are_told_from_one_and_its_echoes() -> None:
    """And a little of either in the other does not change that."""
    one, other = voice(3), voice(4)
    leaked = voices(one + 0.1 * other, other + 0.1 * one, RATE)
    assert leaked.two
    assert leaked.clearly_two
    assert not leaked.one
    echo = voices(one, echoed(one), RATE)
    assert echo.one
    assert not echo.two


def test_one_who_walks_is_not_two() -> None:
    """The first sound has the beginning, the second the end; where both speak, they are alike."""
    sound = voice(5)
    rise = np.clip(np.linspace(-1, 2, sound.shape[1]), 0, 1)
    told = voices((1 - rise) * sound, rise * sound, RATE)
    assert not told.two


def test_noise_beside_a_voice_is_no_voice() -> None:
    """It is like no other sound, and does not vary."""
    sound = voice(6)
    noise = np.random.default_rng(1).normal(size=sound.shape) * sound.std()
    told = voices(sound, noise, RATE)
    assert told.alike < 0.5
    assert not told.two
    assert not told.one


@pytest.mark.parametrize("rate", [8_000, 44_100])
def test_any_rate(rate: int) -> None:
    """The same at other rates, and silence says nothing."""
    one, other = (scipy.signal.resample_poly(voice(s), rate, RATE, axis=1) for s in (3, 4))
    assert voices(one, other, rate).two
    assert not voices(0 * one, 0 * one, rate).two
    assert not voices(0 * one, one, rate).one
    still = voices(np.float32(0) * one.astype(np.float32), one.astype(np.float32), rate)
    assert np.isfinite(still.alike)


def test_as_many_places_as_are_asked_for() -> None:
    """On one cone or not: counting would ask more of a second one there."""
    rng = np.random.default_rng(2)
    places = np.array([[30.0, 0.0], [150.0, 0.0], [-60.0, 0.0], [0.0, 60.0]])
    densities = rng.uniform(0.05, 0.3, size=(60, 4)).astype(np.float32)
    densities[:40, 0] = 4.0
    densities[40:55, 1] = 3.0
    counting = Counting(densities, np.ones(60, dtype=np.float32), places)
    assert sorted(counting.placed(2)) == [0, 1]
    assert counting.placed(1) == [0]


# --- columns and filters -------------------------------------------------------------------------


def with_frames(rng: np.random.Generator, columns: Columns, count: int) -> Array:
    """Frames of two sources with fixed columns; out: their powers (2, count) in each."""
    F = len(columns.hertz)
    A = rng.normal(size=(F, 2, 2)) + 1j * rng.normal(size=(F, 2, 2))
    levels = np.repeat(rng.uniform(0.02, 1.0, size=(2, count // 4)), 4, axis=1)
    for k in range(count):
        s = (rng.normal(size=(F, 2)) + 1j * rng.normal(size=(F, 2))) * np.sqrt(levels[:, k])
        if columns.due():
            columns.keep(np.einsum("fem,fm->ef", A, s))
    return levels


def test_a_sound_stays_with_its_name_whatever_masks_say() -> None:
    """Masks that change their mind later do not turn the two round."""
    rng = np.random.default_rng(7)
    bank = Bank.of(RATE, hop_seconds=0.016, window_hops=2, heard_hops=2)
    columns = Columns(bank, HERTZ, Looking(1, ((5, 3),) * 2, ((5, 3),), 20, named=True))
    levels = with_frames(rng, columns, 80)
    first = levels[0] / levels.sum(axis=0)
    q = np.tile(np.stack([first, 1 - first])[:, None], (1, len(columns.hertz), 1))
    for _ in range(3):
        columns.update((1, 2), q, 0.0)
    before = columns.A
    assert before is not None
    assert columns.swapped.mean() < 0.1
    for _ in range(4):
        columns.update((1, 2), q[::-1], 0.0)
        assert columns.A is not None
        np.testing.assert_allclose(np.abs(columns.A), np.abs(before), atol=0.05)
    assert columns.swapped.mean() > 0.9


def test_what_is_tried_leaves_no_trace() -> None:
    """Two are parted as if they were there; the filters that are heard are those of before."""
    rng = np.random.default_rng(8)
    bank = Bank.of(RATE, hop_seconds=0.016, window_hops=4, heard_hops=4)
    lasting = Lasting(bank, HERTZ, 8, in_room=True)
    n = 150 * bank.hop
    loud = np.repeat(rng.uniform(size=(2, 25)) < 0.5, 6 * bank.hop, axis=1)
    sounds = rng.normal(size=(2, n)) * (0.03 + loud)
    images = np.array([[[1.0], [0.3]], [[0.4], [1.0]]]) * sounds[:, None]
    mixture = images.sum(axis=0)
    for k in range(150):
        lasting.hear(mixture[:, k * bank.hop : (k + 1) * bank.hop])
    hops = lasting.columns.kept_hops
    ends = [(150 + h - 2) * bank.hop for h in hops]
    power = np.array([[(i[:, max(e - 512, 0) : e] ** 2).sum() for e in ends] for i in images])
    q = np.tile((power / (power.sum(axis=0) + 1e-9))[:, None], (1, len(HERTZ), 1))
    first = lasting.tried(q, hops, mixture)
    left = images[0] - first
    assert 10 * np.log10((images[0] ** 2).sum() / (left**2).sum()) > 15
    assert lasting.columns.A is None
    assert not lasting.ready


# --- tracks --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ready(atlas: ea.Atlas, atlas_head: ea.Head) -> ea.Atlas:
    """The shared atlas, made ready for rooms."""
    return atlas if atlas.rooms is not None else atlas.with_rooms(atlas_head)


@pytest.fixture
def tracker(ready: ea.Atlas) -> Tracker:
    """One that has heard nothing yet."""
    assert ready.rooms is not None
    return Tracker(Arrivals(ready.rooms.sound, 24), Tracking())


def made_track(name: int, direction: tuple[float, float], explained: float = 1.0) -> Track:
    """A track that is believed, and heard at 9.9 s."""
    nothing = np.zeros(0, dtype=np.float32)
    track = Track(name, to_vectors(direction), 0.0, deque(), deque(), nothing)
    track.hits, track.confirmed_at, track.explained = 30, 1.0, explained
    track.hear(9.9)
    return track


def test_one_track_that_is_two(tracker: Tracker) -> None:
    """It stays where it was nearer to; the other is new, believed, and asks no more on its cone."""
    track = made_track(1, (35.0, 0.0))
    tracker.tracks, tracker._next = [track], 2
    tracker.split(track, np.array([[150.0, 0.0], [30.0, 0.0]]), 10.0)
    assert [t.id for t in tracker.confirmed] == [1, 2]
    new = tracker.confirmed[1]
    np.testing.assert_allclose(track.direction, [30.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(new.direction, [150.0, 0.0], atol=1e-6)
    assert tracker._worth(new, 10.0) == tracker._least(1)
    new.upheld_at = 5.0
    assert tracker._worth(new, 10.0) > tracker._least(1)


def test_one_who_was_silent_is_the_second_voice(tracker: Tracker) -> None:
    """A track on that cone has its name again; and there are never more than the most."""
    track, silent = made_track(1, (30.0, 0.0)), made_track(2, (-60.0, 0.0))
    silent.heard_at = 5.0
    tracker.tracks, tracker._next = [track, silent], 3
    tracker.split(track, np.array([[30.0, 0.0], [-62.0, 5.0]]), 10.0)
    assert [t.id for t in tracker.confirmed] == [1, 2]
    assert silent.heard_at == 10.0
    many = [made_track(i, (20.0 * i, 0.0)) for i in range(1, 5)]
    tracker.tracks = many
    tracker.split(many[0], np.array([[25.0, 0.0], [-60.0, 0.0]]), 10.0)
    assert len(tracker.confirmed) == 4
    np.testing.assert_allclose(many[0].direction, [20.0, 0.0], atol=1e-6)


def test_two_tracks_that_are_one(tracker: Tracker) -> None:
    """Who has explained more stays; who is upheld is not heard for that."""
    one, two = made_track(1, (30.0, 0.0), explained=5.0), made_track(2, (150.0, 0.0))
    tracker.tracks = [one, two]
    tracker.uphold((1,), 11.0)
    assert one.upheld_at == 11.0
    assert one.heard_at == 9.9
    tracker.hear(1, 11.0)
    assert one.heard_at == 11.0
    tracker.join((1, 2))
    assert [t.id for t in tracker.tracks] == [1]


class MadeWhereabouts:
    """Writes down what it is told of two tracks that are heard."""

    most, like_a_room = 4, True

    def __init__(self, *ids: int) -> None:
        self.confirmed = [made_track(i, (30.0 * i, 0.0)) for i in ids]
        self.told: list[tuple[object, ...]] = []

    def uphold(self, ids: frozenset[int], now: float) -> None:
        """They are voices."""
        self.told.append(("uphold", *sorted(ids)))

    def hear(self, track: int, now: float) -> None:
        """It speaks."""
        self.told.append(("hear", track))

    def join(self, ids: frozenset[int]) -> None:
        """They are one."""
        self.told.append(("join", *sorted(ids)))


def test_what_tracks_were_given_tells_whether_they_are_two(ready: ea.Atlas) -> None:
    """Two voices are kept, and who speaks is heard; one voice is one track, if the pair lasts."""
    live = ready.live()
    by_voice, hop = live._by_voice, 256
    one, other = voice(3), voice(4)
    other[:, -RATE:] = 0.0

    def told(sounds: dict[int, Array], sounding: tuple[int, ...], looks: int) -> list[object]:
        where = MadeWhereabouts(*sounds)
        for k in range(0, one.shape[1] - hop + 1, hop):
            hops = {i: sound[:, k : k + hop] for i, sound in sounds.items()}
            by_voice.hear(one[:, k : k + hop], hops)
        for _ in range(looks):
            by_voice._due = 0
            by_voice.look(1, 9.9, where, sounding, live._masks, [], 0.0)  # type: ignore[arg-type]
        return list(where.told)

    assert told({1: one, 2: other}, (1, 2), 1) == [("uphold", 1, 2), ("hear", 1)]
    echo = echoed(one)
    assert told({1: one, 2: echo}, (1, 2), 2) == []
    assert told({1: one, 3: echo}, (1, 3), 1) == []  # another pair: counted anew
    assert told({1: one, 3: echo}, (1, 3), 2) == [("join", 1, 3)]
    assert told({1: one, 3: echo}, (1, 2), 5) == []  # one of the two is dead


def test_one_more_beside_one_who_stays_explains_what_looks_like_a_walk(tracker: Tracker) -> None:
    """Bins of two places explain much more than those of places between them do."""
    places = tracker._places
    G, half = len(places.arrivals.places), 12
    densities = np.full((2 * half, G), 0.1, dtype=np.float32)
    here, there = 0, G // 2
    densities[:half, here] = densities[half:, there] = 5.0
    places.arrivals.densities = densities
    places.arrivals.since = lambda seconds: slice(0, 2 * half)  # type: ignore[method-assign]
    places.arrivals.recent_weights = lambda seconds: np.ones(2 * half)  # type: ignore[method-assign]
    others, share = np.full(2 * half, 0.2), 0.8
    own = densities[:, here].astype(np.float64)
    alone = half * (np.log(0.2 + 0.8 * 5) + np.log(0.2 + 0.8 * 0.1))
    beside = 2 * half * np.log(0.2 + 0.4 * 5 + 0.4 * 0.1)
    assert tracker._two_explain(others, own, share) == pytest.approx(beside - alone, rel=1e-5)
    densities[:, here + 1] = 5.0  # one place explains all
    assert tracker._two_explain(others, own, share) < 0


def test_who_starts_to_walk_must_explain_more_than_two(
    tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And who is parted by filters of who stands, more still; a walker goes on all the same."""
    far = Fit(to_vectors([60.0, 0.0]), 3.0, np.array([20.0, 0.0]), 0.0, np.zeros(0, np.float32))
    near = Fit(to_vectors([30.0, 0.0]), 3.0, np.zeros(2), 0.0, np.zeros(0, np.float32))
    monkeypatch.setattr(Patch, "fits", lambda *args: (near, far, 20.0))
    monkeypatch.setattr(tracker._places, "lay", lambda *args: None)

    def walks(two: float, *, proven: bool = False, walked: bool = False) -> bool:
        track = made_track(1, (30.0, 0.0))
        track.upheld_at = 9.0 if proven else 1.0
        track.velocity = np.array([20.0 * walked, 0.0])
        tracker.tracks = [track]
        monkeypatch.setattr(tracker, "_two_explain", lambda *args: two)
        tracker._place(0, np.zeros(0), np.zeros(0), 0.5, 10.0)
        return track.walks

    assert walks(10.0)
    assert not walks(30.0)
    assert not walks(10.0, proven=True)
    assert walks(30.0, proven=True, walked=True)


def test_two_on_one_cone_of_a_room_are_two(ready: ea.Atlas, atlas_head: ea.Head) -> None:
    """Who were one track, and one talker there is one."""
    known = to_vectors(atlas_head.directions)
    wanted = to_vectors(np.array([[50.0, -20.0], [110.0, 30.0]]))
    pair = atlas_head.directions[(wanted @ known.T).argmax(axis=1)]
    sounds = [ea.synthetic_speech(7.0, seed=seed) for seed in (3, 4)]
    room = ea.Room(t60_seconds=0.3)
    for count in (2, 1):
        scene = ea.render_scene(atlas_head, sounds[:count], pair[:count], room=room)
        live = ready.live()
        report = live.push(scene.mixture.samples)
        assert sum(source.confirmed for source in report.sources) == count
