"""Rendering of a live stream: the signals add up to the input in all windows and transitions."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import earatlas as ea
from earatlas.parts import SpreadComputation, complete
from earatlas.streaming.online_steering import SteeringSettings
from earatlas.streaming.renderer import LatencyProfile, StreamRenderer
from earatlas.streaming.stages import RenderStage, TrackPositions, _UpdateStep
from earatlas.types import Array

FREQUENCIES_HZ = np.arange(1.0, 65.0) * 62.5
LATENCY = LatencyProfile(0.016, 3, 8, 3, 16, 4)


def update(
    renderer: StreamRenderer, tracks: dict[int, int], masks: Array | None, forgetting: float
) -> None:
    """Update the filters of tracks at once."""
    renderer.apply(complete(renderer.update_parts(tracks, masks, forgetting)))


def set_reverberant(renderer: StreamRenderer, reverberant: bool) -> None:
    """Prepare windows for other sound at once; they are used from the next update on."""
    renderer.prepare(*complete(renderer.recent_windows_parts(reverberant=reverberant)))


@pytest.mark.parametrize("delay_hops", [0, 5, 40])
def test_renderer_changes_between_stft_and_fir_output(delay_hops: int) -> None:
    """The signals of two tracks add up to the input in all modes and transitions.

    The pair is static and anechoic, then reverberant, moves, is static again, and is anechoic.
    """
    rng = np.random.default_rng(4)
    latency = replace(LATENCY, delay_hops=delay_hops)
    renderer = StreamRenderer(8000, latency, FREQUENCIES_HZ, 3)
    filterbank, hops = renderer.filterbank, 130
    x = rng.normal(size=(2, hops * filterbank.hop))
    out, stft_used = [], []
    for k in range(hops):
        if k in (30, 110):
            set_reverberant(renderer, k == 30)
            bank = renderer.newest_windows.filterbank
            assert bank.latency_samples == filterbank.latency_samples
            assert bank.window_hops == (8 if k == 30 else 3)
        if k % 5 == 0:
            windows = renderer.newest_windows
            kept = windows.select_kept([np.full((2, 4, 1), i) for i in range(k)]) if k else None
            size = (2, len(FREQUENCIES_HZ), 0 if kept is None else kept.shape[-1])
            masks = None if kept is None else rng.uniform(size=size)
            update(renderer, {7: 2, 9: 0}, masks, 0.5 if 50 <= k < 70 else 0.0)
        block = x[:, k * filterbank.hop : (k + 1) * filterbank.hop]
        stft_used.append(renderer.needs_frame_masks)
        masks = rng.uniform(size=(2, len(FREQUENCIES_HZ))) if renderer.needs_frame_masks else None
        out.append(renderer.push(block, masks, (2, 0)))
    changes = [k for k in range(1, hops) if stft_used[k] != stft_used[k - 1]]
    assert changes == [21, 30, 31, 50, 71, 110, 111]
    signals = np.concatenate(out, axis=-1)
    assert not signals[1].any()
    late = filterbank.latency_samples - filterbank.hop
    append_frames = slice(filterbank.window, -late)
    np.testing.assert_allclose(
        signals.sum(axis=0)[:, late:][:, filterbank.window :], x[:, append_frames], atol=1e-9
    )
    assert np.abs(signals[0] - signals[2]).max() > 0.1


def render_noise(
    renderer: StreamRenderer, rng: np.random.Generator, rows: tuple[int, ...], hops: int
) -> None:
    """Render hops of noise with random masks for the tracks of the rows."""
    for _ in range(hops):
        size = (len(rows), len(FREQUENCIES_HZ))
        masks = rng.uniform(size=size) if renderer.needs_frame_masks else None
        renderer.push(rng.normal(size=(2, renderer.filterbank.hop)), masks, rows)


def random_masks(renderer: StreamRenderer, rng: np.random.Generator, M: int) -> Array:
    """Return random masks (M, mask frequencies, T) of the kept frames."""
    T = len(renderer.newest_windows.demixer.steering.kept_hops)
    return rng.uniform(size=(M, len(FREQUENCIES_HZ), T))


def test_diffuse_ratio_is_measured_for_pairs_only() -> None:
    """Two tracks that remain of three have no ratio until their filters are updated."""
    rng = np.random.default_rng(31)
    renderer = StreamRenderer(8000, LATENCY, FREQUENCIES_HZ, 3)
    render_noise(renderer, rng, (), 24)
    update(renderer, {7: 2, 9: 0, 4: 1}, random_masks(renderer, rng, 3), 0.0)
    assert renderer.diffuse_ratio is None
    renderer.keep_only((7, 9))
    assert renderer.diffuse_ratio is None
    update(renderer, {7: 2, 9: 0}, random_masks(renderer, rng, 2), 0.0)
    assert renderer.diffuse_ratio is not None


def test_reused_row_is_silent() -> None:
    """A row that is given to another track is silent, and the other row continues."""
    rng = np.random.default_rng(5)
    renderer = StreamRenderer(8000, LATENCY, FREQUENCIES_HZ, 3)

    def push_noise(rows: tuple[int, ...]) -> Array:
        masks = (
            rng.uniform(size=(len(rows), len(FREQUENCIES_HZ)))
            if renderer.needs_frame_masks
            else None
        )
        return renderer.push(rng.normal(size=(2, renderer.filterbank.hop)), masks, rows)

    for k in range(40):
        if k == 30:
            set_reverberant(renderer, True)
            empty = np.zeros((2, 4, 1), dtype=np.complex128)
            frames = renderer.newest_windows.select_kept([empty] * k).shape[-1]
            update(renderer, {7: 2, 9: 0}, rng.uniform(size=(2, len(FREQUENCIES_HZ), frames)), 0.0)
        last = push_noise((2, 0) if k >= 30 else ())
    assert last[0].any()
    assert last[2].any()
    renderer.clear_row(1)
    assert not renderer.needs_frame_masks
    renderer.clear_row(2)
    assert renderer.needs_frame_masks
    update(renderer, {9: 0}, None, 0.0)
    signals = np.array([push_noise((0,)) for _ in range(8)])
    assert not signals[:, 1:].any()
    assert (np.abs(signals[:, 0]).max(axis=(1, 2)) > 0.1).all()


def test_filters_for_other_rows_are_dropped() -> None:
    """Filters for another pair do not replace those that became active during their update."""
    rng = np.random.default_rng(32)
    renderer = StreamRenderer(8000, LATENCY, FREQUENCIES_HZ, 3)
    render_noise(renderer, rng, (), 30)
    update(renderer, {7: 2, 9: 0}, random_masks(renderer, rng, 2), 0.0)
    begun = SpreadComputation(
        renderer.update_parts({7: 2, 4: 1}, random_masks(renderer, rng, 2), 0.0), np.inf
    )
    render_noise(renderer, rng, (2, 0), 1)
    assert not renderer.needs_frame_masks  # the filters of the first pair are active
    assert begun.advance()
    renderer.apply(begun.result)
    assert renderer.needs_frame_masks


def test_prepared_windows_contain_every_hop() -> None:
    """Hops that arrive while windows are computed, and before their first update, are not lost."""
    rng = np.random.default_rng(33)
    renderer = StreamRenderer(8000, LATENCY, FREQUENCIES_HZ, 3)
    render_noise(renderer, rng, (), 30)
    begun = renderer.recent_windows_parts(reverberant=True)
    render_noise(renderer, rng, (), 3)
    computed = complete(begun)
    render_noise(renderer, rng, (), 2)
    renderer.prepare(*computed)
    render_noise(renderer, rng, (), 4)
    at_once, _ = complete(renderer.recent_windows_parts(reverberant=True))
    prepared = renderer.newest_windows
    for found, expected in (
        (prepared.demixer.steering, at_once.demixer.steering),
        (prepared.fir_demixer.steering, at_once.fir_demixer.steering),
    ):
        assert len(found._frames) == len(expected._frames)
        np.testing.assert_array_equal(
            np.concatenate(found._frames.moments.parts, axis=2),
            np.concatenate(expected._frames.moments.parts, axis=2),
        )
        np.testing.assert_array_equal(found.kept_hops, expected.kept_hops)


def test_removed_track_ends_the_fir_output() -> None:
    """FIR filters separate a pair, so a track that remains alone is rendered by masks."""
    rng = np.random.default_rng(34)
    renderer = StreamRenderer(8000, LATENCY, FREQUENCIES_HZ, 3)
    render_noise(renderer, rng, (), 30)
    update(renderer, {7: 2, 9: 0}, random_masks(renderer, rng, 2), 0.0)
    render_noise(renderer, rng, (2, 0), 1)
    assert not renderer.needs_frame_masks
    renderer.keep_only((7,))
    assert renderer.needs_frame_masks


def test_motion_voids_the_fir_filters() -> None:
    """Those of a pair that has moved are estimated anew, without the frames before the motion."""
    rng = np.random.default_rng(35)
    renderer = StreamRenderer(8000, LATENCY, FREQUENCIES_HZ, 3)
    render_noise(renderer, rng, (), 60)
    update(renderer, {7: 2, 9: 0}, random_masks(renderer, rng, 2), 0.0)
    steering = renderer.newest_windows.fir_demixer.steering
    assert steering.n_updates((7, 9)) == 1
    before = steering.begin_update((7, 9), 0.0).n_valid
    update(renderer, {7: 2, 9: 0}, random_masks(renderer, rng, 2), 0.9)
    assert steering.n_updates((7, 9)) == 0
    assert steering.begin_update((7, 9), 0.0).n_valid < before


def test_change_of_pair_is_crossfaded() -> None:
    """If a track of the pair is replaced, no signal jumps, and FIR filters return."""
    rng = np.random.default_rng(15)
    renderer = StreamRenderer(8000, LATENCY, FREQUENCIES_HZ, 3)
    hop, pair = renderer.filterbank.hop, {7: 2, 9: 0}
    t = np.arange(120 * hop) / 8000
    x = np.stack([np.sin(2 * np.pi * 90 * t), 3 * np.cos(2 * np.pi * 70 * t)])
    out, stft_used = [], []
    for k in range(120):
        pair = {7: 2, 4: 1} if k >= 60 else pair
        if k % 5 == 0:
            empty = np.zeros((2, 4, 1), dtype=np.complex128)
            kept = renderer.newest_windows.select_kept([empty] * k).shape[-1] if k else 0
            masks = rng.uniform(size=(2, len(FREQUENCIES_HZ), kept)) if k else None
            update(renderer, pair, masks, 0.0)
        stft_used.append(renderer.needs_frame_masks)
        masks = np.full((2, len(FREQUENCIES_HZ)), 0.5) if renderer.needs_frame_masks else None
        out.append(renderer.push(x[:, k * hop : (k + 1) * hop], masks, tuple(pair.values())))
    assert [stft_used[k] for k in (59, 60, 119)] == [False, True, False]
    signals = np.concatenate(out, axis=-1)[..., 30 * hop :]
    np.testing.assert_allclose(np.abs(np.diff(signals)).max(), 0.0, atol=0.8)
    assert np.abs(signals[0, :, : 20 * hop]).max() > 0.5
    assert not signals[0, :, -20 * hop :].any()
    assert np.abs(signals[1, :, -20 * hop :]).max() > 0.5


def test_known_pair_is_updated_after_another_pair() -> None:
    """A pair that returns has its own steering vectors, although FIR filters of another are used.

    Its update needs no masks; those of the other pair would be used for it otherwise.
    """
    rng = np.random.default_rng(6)
    renderer = StreamRenderer(8000, LATENCY, FREQUENCIES_HZ, 3)
    first, second = {1: 0, 2: 1}, {1: 0, 3: 2}
    update(renderer, first, None, 0.0)
    for k in range(90):
        renderer.push(
            rng.normal(size=(2, renderer.filterbank.hop)),
            rng.uniform(size=(2, len(FREQUENCIES_HZ))) if renderer.needs_frame_masks else None,
            (0, 1 if k < 40 else 2),
        )
        if k in (20, 30, 50, 60, 70, 80):
            empty = np.zeros((2, 4, 1), dtype=np.complex128)
            frames = renderer.newest_windows.select_kept([empty] * (k + 1)).shape[-1]
            masks = rng.uniform(size=(2, len(FREQUENCIES_HZ), frames))
            update(renderer, first if k < 40 else second, masks, 0.0)
    assert not renderer.needs_frame_masks
    update(renderer, first, None, 0.0)
    assert renderer.newest_windows.demixer.steering.track_ids == (1, 2)
    assert renderer.needs_frame_masks


def test_kept_frames_match_the_mask_frames() -> None:
    """After the change, every other hop is kept, and mask frames are selected accordingly."""
    rng = np.random.default_rng(8)
    renderer = StreamRenderer(8000, LATENCY, FREQUENCIES_HZ, 2)
    hop = renderer.filterbank.hop
    blocks = rng.normal(size=(37, 2, hop))
    for block in blocks:
        renderer.push(block, np.zeros((0, len(FREQUENCIES_HZ))), ())
    set_reverberant(renderer, True)
    steering = renderer.newest_windows.demixer.steering
    assert len(steering._frames) == 18  # every other of 37
    np.testing.assert_array_equal(steering.kept_rows(10), [0, 2, 4, 6, 8])
    np.testing.assert_array_equal(steering.kept_hops[-3:], [-5, -3, -1])
    window = renderer.newest_windows.filterbank.windows()[0]
    ending = np.concatenate(list(blocks[28:36]), axis=1)  # the eight hops up to the 36th
    left, right = np.fft.rfft(ending * window)[:, 1:]
    across = left * right.conj()
    last = steering._frames.moments.parts[-1][..., -1]
    expected = np.stack([abs(left) ** 2, abs(right) ** 2, across.real, across.imag], axis=1)
    np.testing.assert_allclose(last, expected, rtol=1e-5, atol=1e-5)
    assert (
        len(steering._frames) < SteeringSettings().recent_seconds / renderer.filterbank.hop_seconds
    )


def test_motion_before_a_dropped_update_counts_for_the_next() -> None:
    """A room that is recognized ends an update; what a track had moved until then is not lost."""
    stage = RenderStage(8000, LATENCY, ea.CueLayout.low_ild(), 3)
    place = {1: np.zeros(2), 2: np.ones(2)}
    stage.begin_update(TrackPositions(place, {1: 0.5, 2: 0.0}), reverberant=False)
    stage.select([], 1.0, reverberant=True)
    stage.begin_update(TrackPositions(place, {1: 0.2, 2: 0.1}), reverberant=True)
    assert stage._update is not None
    assert stage._update.positions.forgetting == pytest.approx({1: 0.6, 2: 0.1})
    # An update that is dropped later has already forgotten what the motion voids.
    stage._update.step = _UpdateStep.FILTERS
    stage.select([], 2.0, reverberant=False)
    stage.begin_update(TrackPositions(place, {1: 0.2, 2: 0.1}), reverberant=False)
    assert stage._update.positions.forgetting == pytest.approx({1: 0.2, 2: 0.1})


def confirmed_tracks(*ids: int) -> list[Any]:
    """Return the attributes of tracks that the selection needs."""
    return [
        SimpleNamespace(
            id=i, gain=1.0, last_hit_at=0.0, hits=9, gain_ratio=1.0, low_likelihood_steps=0
        )
        for i in ids
    ]


def test_removed_track_ends_its_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """The renderer keeps the other track, and an update for both is dropped."""
    stage = RenderStage(8000, LATENCY, ea.CueLayout.low_ild(), 3)
    stage.select(confirmed_tracks(1, 2), 0.1, reverberant=False)
    stage.begin_update(TrackPositions({}, {1: 0.0, 2: 0.0}), reverberant=False)
    kept: list[tuple[int, ...]] = []
    stage.ids = (1, 2)
    monkeypatch.setattr(stage.renderer, "keep_only", kept.append)
    assert stage.select(confirmed_tracks(1), 0.2, reverberant=False)
    assert stage._update is None
    assert [stage.ids, *kept] == [(1,)] * 2


@pytest.mark.parametrize(("ids", "factor"), [((1, 2), 1), ((1, 2, 3), 2)])
def test_several_tracks_are_updated_half_as_often(ids: tuple[int, ...], factor: int) -> None:
    """An update is due for new tracks, and then at regular intervals."""
    stage, due = RenderStage(8000, LATENCY, ea.CueLayout.low_ild(), 3), list[int]()
    interval = factor * stage._settings.update_interval_steps
    for step in range(1, 3 * interval + 1):
        if stage.select(confirmed_tracks(*ids), 0.1, reverberant=False):
            due.append(step)
            stage.begin_update(TrackPositions({}, dict.fromkeys(ids, 0.0)), reverberant=False)
            stage._update = None
    assert due == [1, interval, 2 * interval, 3 * interval]
