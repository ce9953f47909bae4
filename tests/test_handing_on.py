"""Ways through a long recording: sources are handed on from piece to piece."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import earatlas as ea
from earatlas.atlas import Atlas
from earatlas.hearing.onsets import OnsetStream
from earatlas.separation.handing_on import _hand_on, _Track
from earatlas.separation.moving import HOP_SECONDS, Wanted, Way
from earatlas.space.angles import great_circle_error, to_vectors

RATE = 16_000
SECONDS = 24.0
THERE_AND_BACK = ea.Route((0, 8, 16, 24), ((70, 5), (-60, 5), (65, 5), (-40, 5)))
STAND = (-80.0, 0.0)
COUNTED = Wanted(SECONDS, None, 6)


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
        _hand_on(tracks, first, ways[::-1] if turn else ways, COUNTED)
    assert len(tracks) == 2
    walker, stander = (track.whole(40) for track in tracks)
    assert walker.moves
    assert not stander.moves
    np.testing.assert_allclose(walker.at(walker.seconds)[:, 0], walk, atol=1e-6)
    assert np.ptp(stander.at(stander.seconds)[:, 0]) < 1e-9


def test_one_who_was_silent_is_where_he_was_heard_last() -> None:
    """Not heard in a piece: he waits. Somebody far from all of them is new; if told, he is not."""
    for wanted, count in ((COUNTED, 3), (replace(COUNTED, n_sources=2), 2)):
        tracks: list[_Track] = []
        _hand_on(tracks, 0, [way(np.full(16, 50.0)), way(np.full(16, -50.0))], wanted)
        _hand_on(tracks, 12, [way(np.full(16, 50.0))], wanted)
        _hand_on(tracks, 24, [way(np.full(16, 50.0)), way(np.full(16, -48.0))], wanted)
        assert [len(track.parts) for track in tracks] == [3, 2]
        _hand_on(tracks, 36, [way(np.full(16, 50.0)), way(np.full(16, 170.0))], wanted)
        assert len(tracks) == count
        away = tracks[1].whole(52)
        # Where nobody told of him the place is that of before, and nothing tells of him.
        np.testing.assert_allclose(away.at(4.5)[0, 0], -50.0, atol=2.1)
        assert away.weights[18] == 0.0


def test_pieces_are_handed_over_in_the_middle_of_what_they_share() -> None:
    """Of eight windows that two pieces know, four are the first's and four the second's."""
    tracks: list[_Track] = []
    _hand_on(tracks, 0, [way(np.full(16, 10.0), moves=True)], COUNTED)
    _hand_on(tracks, 8, [way(np.full(16, 20.0), moves=True)], COUNTED)
    whole = tracks[0].whole(24)
    np.testing.assert_allclose(whole.at(whole.seconds)[:, 0], [10.0] * 12 + [20.0] * 12)
    assert whole.onset_bins == 160.0


def test_stretches_have_the_onsets_of_their_time(atlas: Atlas) -> None:
    """Each stretch those since the last one; asking for them changes nothing of all."""
    rooms = atlas.rooms
    assert rooms is not None
    gate = replace(rooms.sound.gate, most_bins=300)
    sound = np.stack([ea.murmur(3.0, seed=1), ea.murmur(3.0, seed=2)])
    asked, plain = OnsetStream(gate, stretches=True), OnsetStream(gate)
    parts, ends = [], [0]
    for piece in np.split(sound, 3, axis=1):
        asked.push(piece)
        plain.push(piece)
        parts.append(asked.stretch())
        ends.append(asked.frames)
    for begin, end, part in zip(ends[:-1], ends[1:], parts, strict=True):
        assert 20 < len(part) <= 300
        assert begin <= part.t.min()
        assert part.t.max() < end
    for stream in (asked, plain):
        stream.finish()
    np.testing.assert_array_equal(asked.bins().t, plain.bins().t)
    np.testing.assert_allclose(parts[0].lighter().z, parts[0].z, rtol=1e-6)


@pytest.fixture(scope="module")
def long_walk(atlas_head: ea.Head) -> ea.SimulatedScene:
    """24 s of one who walks to and fro, beside one who stands."""
    sounds = [ea.murmur(SECONDS, seed=m) for m in (4, 5)]
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
    sounds = [ea.murmur(20.0, seed=m) for m in (1, 2)]
    scene = ea.render_scene(atlas_head, sounds, [(55.0, 10.0), (-40.0, -5.0)])
    found = atlas.separate(scene.mixture)
    monkeypatch.setattr("earatlas.separation.separator.handed_on", lambda *_: [])
    before = atlas.separate(scene.mixture)
    assert not any(source.moves for source in found.sources)
    for a, b in zip(found.sources, before.sources, strict=True):
        np.testing.assert_array_equal(a.audio.samples, b.audio.samples)
        np.testing.assert_array_equal(a.direction, b.direction)
