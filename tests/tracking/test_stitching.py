"""Ways through a long recording: sources are handed on from piece to piece."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import earatlas as ea
from earatlas.atlas import Atlas
from earatlas.features.onset_detector import Gate, OnsetBins, OnsetStream
from earatlas.geometry.angles import great_circle_error, to_vectors
from earatlas.tracking import stitching
from earatlas.tracking.offline import HOP_SECONDS, Wanted, Way
from earatlas.tracking.stitching import _hand_on, _pieces, _Track, handed_on

RATE = 16_000
SECONDS = 24.0
THERE_AND_BACK = ea.Trajectory((0, 8, 16, 24), ((70, 5), (-60, 5), (65, 5), (-40, 5)))
STAND = (-80.0, 0.0)
SOUND: Any = SimpleNamespace(gate=Gate())  # what is asked of it where ways are made by hand
NOWHERE = np.zeros((0, 2))


def way(azimuths: np.ndarray, *, moves: bool = False, onsets: float = 5.0) -> Way:
    """A way at so many degrees in each window."""
    W = len(azimuths)
    vectors = to_vectors(np.column_stack([azimuths, np.zeros(W)]))
    seconds = (np.arange(float(W)) + 0.5) * HOP_SECONDS
    return Way(seconds, vectors, np.full(W, 7.0), np.full(W, onsets), moves, 0.5, onsets * W)


def test_whoever_goes_on_is_the_same_in_whatever_order() -> None:
    """A walker and a stander, three pieces with their sources in another order each."""
    walk, stand = np.linspace(80, -80, 40), np.full(40, -30.0)
    tracks: list[_Track] = []
    for first, turn in ((0, False), (12, True), (24, False)):
        ways = [way(walk[first : first + 16], moves=True), way(stand[first : first + 16] + 0.1)]
        _hand_on(tracks, first, ways[::-1] if turn else ways)
    assert len(tracks) == 2
    walker, stander = (track.whole(40) for track in tracks)
    assert walker.moves
    assert not stander.moves
    np.testing.assert_allclose(walker.at(walker.seconds)[:, 0], walk, atol=1e-6)
    assert np.ptp(stander.at(stander.seconds)[:, 0]) < 1e-9


def test_one_who_was_silent_is_where_he_was_heard_last() -> None:
    """Not heard in a piece: he waits. Somebody far from all of them is new."""
    tracks: list[_Track] = []
    _hand_on(tracks, 0, [way(np.full(16, 50.0)), way(np.full(16, -50.0))])
    _hand_on(tracks, 12, [way(np.full(16, 50.0))])
    _hand_on(tracks, 24, [way(np.full(16, 50.0)), way(np.full(16, -48.0))])
    assert [len(track.parts) for track in tracks] == [3, 2]
    _hand_on(tracks, 36, [way(np.full(16, 50.0)), way(np.full(16, 170.0))])
    assert [len(track.parts) for track in tracks] == [4, 2, 1]
    away = tracks[1].whole(52)
    # Where nobody told of him the place is that of before, and nothing tells of him.
    np.testing.assert_allclose(away.at(4.5)[0, 0], -50.0, atol=2.1)
    assert away.weights[18] == 0.0


@pytest.mark.parametrize(("faint", "whose"), [(0.25, 0), (4.0, 1)])
def test_who_speaks_again_is_who_was_heard_more(faint: float, whose: int) -> None:
    """Two wait near by: the ghost of a piece is not he, though nearer; another talker is."""
    tracks: list[_Track] = []
    _hand_on(tracks, 0, [way(np.full(16, 40.0)), way(np.full(16, 45.0), onsets=faint)])
    _hand_on(tracks, 40, [way(np.full(16, 44.0))])
    assert [len(track.parts) for track in tracks] == [2 - whose, 1 + whose]


def test_who_is_with_another_for_a_moment_is_not_he() -> None:
    """A way begins at one who stops speaking, and is for most of its time with one who walks."""
    walk, stand = np.linspace(0, -60, 16), np.full(16, -80.0)
    early = np.array([5.0] * 4 + [0.0] * 12)
    stander = replace(way(stand), weights=early)
    walker = replace(way(walk, moves=True), weights=5.0 - 0.8 * early)
    tracks: list[_Track] = []
    _hand_on(tracks, 0, [stander, walker])
    _hand_on(tracks, 0, [way(np.concatenate([stand[:4], walk[4:]]), moves=True)])
    assert [len(track.parts) for track in tracks] == [1, 2]


def stretches(ends: list[float], silent: set[int], every: int = 1) -> list[OnsetBins]:
    """Stretches that end after so many seconds, with an onset in every so many frames or none."""
    gate, begin, out = Gate(), 0, []
    for k, seconds in enumerate(ends):
        end = int(seconds * gate.rate / gate.hop)
        t = np.arange(begin, begin if k in silent else end, every)
        n, begin = len(t), end
        z = np.zeros((n, 2), dtype=np.complex128)
        out.append(OnsetBins(np.zeros(n, dtype=np.intp), t, z, np.ones(n), np.ones(n), float(end)))
    return out


def test_a_silent_stretch_lasts_as_long_as_any_other() -> None:
    """Pieces of 44 s: where somebody is silent, and where the last onset is long before the end."""
    for silent in (set[int](), {1, 2}, {0}):
        pieces = list(_pieces(SOUND, stretches([12, 22, 32, 44], silent), 44.0))
        spans = [(piece.first * HOP_SECONDS, piece.seconds) for piece in pieces]
        assert spans == [(0.0, 12.0), (8.0, 14.0), (18.0, 14.0), (28.0, 16.0)]
    first, second = list(_pieces(SOUND, stretches([12.1, 22], set(), every=7), 22.0))
    # The last onset is in a window that has begun: it is one of the piece's.
    assert first.seconds == 12.25
    assert int(first.onsets.t.max() * 128 / RATE / HOP_SECONDS) == 48
    assert second.first == 49 - 16
    assert second.onsets.t.min() * 128 / RATE < 0.06


WALK = np.concatenate([np.linspace(80, -40, 72), np.linspace(-40, 80, 104)])  # 44 s


def heard_by_hand(monkeypatch: pytest.MonkeyPatch, others: dict[int, list[Way]]) -> None:
    """A walker of 44 s who is found in every piece, beside others in some; ghosts if so many."""
    firsts = iter([0, 32, 72, 112] * 2)

    def made(_sound: object, _onsets: object, _places: object, wanted: Wanted) -> list[Way]:
        first, W = next(firsts), round(wanted.seconds / HOP_SECONDS)
        found = [way(WALK[first : first + W], moves=True), *others.get(first, [])]
        if wanted.n_sources is None:
            return found[: wanted.most]
        ghosts = (np.full(W, 180.0 - 40 * k + first) for k in range(wanted.n_sources))
        return [*found, *(way(ghost, onsets=0.01) for ghost in ghosts)][: wanted.n_sources]

    monkeypatch.setattr(stitching, "ways_of", made)
    monkeypatch.setattr(stitching, "all_ways", made)


def handed(n_sources: int | None, most: int = 6) -> list[Way]:
    """What comes of those ways in four stretches of 44 s."""
    heard = stretches([12, 22, 32, 44], set())
    return handed_on(SOUND, heard, NOWHERE, Wanted(44.0, n_sources, most))


def test_the_right_number_leaves_a_walker_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside one who speaks in the first 12 s only: nobody is made up for him afterwards."""
    heard_by_hand(monkeypatch, {0: [way(np.full(48, -80.0))]})
    walker, stander = handed(2)
    np.testing.assert_allclose(walker.at(walker.seconds)[:, 0], WALK, atol=1e-6)
    np.testing.assert_allclose(stander.at(stander.seconds)[:, 0], -80.0)
    assert not stander.moves
    assert stander.weights[48:].max() == 0.0


@pytest.mark.parametrize("n_sources", [1, 3, 5])
def test_as_many_as_told(monkeypatch: pytest.MonkeyPatch, n_sources: int) -> None:
    """However little tells of them; the walker is one of them from beginning to end."""
    heard_by_hand(monkeypatch, {})
    ways = handed(n_sources)
    assert len(ways) == n_sources
    np.testing.assert_allclose(ways[0].at(ways[0].seconds)[:, 0], WALK, atol=1e-6)


def test_one_too_many_is_who_was_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who speaks again far from where he was is somebody else, unless the number says who."""
    others = {0: [way(np.full(48, -80.0))], 112: [way(np.full(64, -120.0))]}
    heard_by_hand(monkeypatch, others)
    assert len(handed(None)) == 3
    heard_by_hand(monkeypatch, others)
    walker, other = handed(2)
    np.testing.assert_allclose(walker.at(walker.seconds)[:, 0], WALK, atol=1e-6)
    np.testing.assert_allclose(other.at([1.0, 27.0, 29.0])[:, 0], [-80.0, -80.0, -120.0])


def test_ghosts_take_nobodys_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of no more than two, those who are heard: not the one who came first."""
    late = way(np.full(64, -120.0))
    heard_by_hand(monkeypatch, {0: [way(np.full(48, 170.0), onsets=0.1)], 112: [late]})
    ways = handed(None, most=2)
    assert [float(own.at(40.0)[0, 0]) for own in ways[1:]] == pytest.approx([-120.0])


def test_pieces_are_handed_over_in_the_middle_of_what_they_share() -> None:
    """Of eight windows that two pieces know, four are the first's and four the second's."""
    tracks: list[_Track] = []
    _hand_on(tracks, 0, [way(np.full(16, 10.0), moves=True)])
    _hand_on(tracks, 8, [way(np.full(16, 20.0), moves=True)])
    whole = tracks[0].whole(24)
    np.testing.assert_allclose(whole.at(whole.seconds)[:, 0], [10.0] * 12 + [20.0] * 12)
    assert whole.onset_bins == 160.0


def test_stretches_have_the_onsets_of_their_time(atlas: Atlas) -> None:
    """Each stretch those since the last one; asking for them changes nothing of all."""
    rooms = atlas.rooms
    assert rooms is not None
    gate = replace(rooms.sound.gate, most_bins=300)
    sound = np.stack([ea.synthetic_speech(3.0, seed=1), ea.synthetic_speech(3.0, seed=2)])
    asked, plain = OnsetStream(gate, stretches=True), OnsetStream(gate)
    parts, ends = [], [0]
    for piece in np.split(sound, 3, axis=1):
        asked.push(piece)
        plain.push(piece)
        parts.append(asked.stretch())
        ends.append(asked.frames)
        assert parts[-1].frames == asked.frames
    for begin, end, part in zip(ends[:-1], ends[1:], parts, strict=True):
        assert 20 < len(part) <= 300
        assert begin <= part.t.min()
        assert part.t.max() < end
    for stream in (asked, plain):
        stream.finish()
    np.testing.assert_array_equal(asked.bins().t, plain.bins().t)
    np.testing.assert_allclose(parts[0].lighter().z, parts[0].z, rtol=1e-6)


def test_walks_of_the_benchmark_last_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if that is not at a stop: nobody stands for the last seconds."""
    benchmarks = Path(__file__).parents[2] / "benchmarks"
    monkeypatch.syspath_prepend(benchmarks)
    places_of = runpy.run_path(str(benchmarks / "motion.py"))["places_of"]
    for seconds, stops in ((10.0, 3), (12.0, 4), (30.0, 7), (33.5, 8)):
        (walk,) = places_of("walker", np.random.default_rng(0), seconds)
        assert len(walk.seconds) == stops
        assert great_circle_error(*walk.at([seconds - 1, seconds])) > 15


@pytest.fixture(scope="module")
def long_walk(atlas_head: ea.Head) -> ea.SimulatedScene:
    """24 s of one who walks to and fro, beside one who stands."""
    sounds = [ea.synthetic_speech(SECONDS, seed=m) for m in (4, 5)]
    return ea.render_scene(atlas_head, sounds, [THERE_AND_BACK, STAND])


def test_a_long_walk_is_one_source(
    atlas: Atlas, long_walk: ea.SimulatedScene, tmp_path: Path
) -> None:
    """Beyond a block: one who walks is one source along all of his way, and sounds add up."""
    path = long_walk.mixture.write(tmp_path / "long.wav")
    scene, files = atlas.separate_file(path, tmp_path / "out")
    assert sorted(source.moves for source in scene.sources) == [False, True]
    walker, stander = sorted(scene.sources, key=lambda source: not source.moves)
    track = walker.track
    off = great_circle_error(THERE_AND_BACK.at(track.seconds), track.directions)[track.heard]
    assert 0.1 < np.median(off) < 6.0
    assert track.seconds[track.heard].max() > 22
    still = stander.track.directions[stander.track.heard]
    assert np.ptp(still, axis=0).max() == 0.0
    assert great_circle_error(np.array(STAND), still[0]) < 8.0
    assert np.diff(scene.free_energies).min() > 0
    total = sum(ea.read_audio(file).samples for file in files)
    np.testing.assert_allclose(total, ea.read_audio(path).samples, atol=2e-4)
    quality = []
    order = [scene.sources.index(source) for source in (walker, stander)]
    for image, m in zip(long_walk.images, order, strict=True):
        found = ea.read_audio(files[m]).samples
        quality.append(10 * np.log10((image**2).sum() / ((image - found) ** 2).sum()))
    assert min(quality) > 6.0
    assert max(quality) < 40.0


def test_long_standing_sources_are_as_before(
    atlas: Atlas, atlas_head: ea.Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody moves: whether ways are looked for changes nothing, not a bit."""
    sounds = [ea.synthetic_speech(20.0, seed=m) for m in (1, 2)]
    scene = ea.render_scene(atlas_head, sounds, [(55.0, 10.0), (-40.0, -5.0)])
    found = atlas.separate(scene.mixture)
    monkeypatch.setattr("earatlas.separation.separator.handed_on", lambda *_: [])
    before = atlas.separate(scene.mixture)
    assert not any(source.moves for source in found.sources)
    for a, b in zip(found.sources, before.sources, strict=True):
        np.testing.assert_array_equal(a.audio.samples, b.audio.samples)
        np.testing.assert_array_equal(a.direction, b.direction)
