"""Sounds of a live stream's tracks: the same input whatever the windows, also between two kinds."""

import numpy as np

from earatlas.live.filters import RECENT_SECONDS
from earatlas.live.parting import Delay, Parting

HERTZ = np.arange(1.0, 65.0) * 62.5


def test_windows_of_a_room_take_over_between_two_hops() -> None:
    """Two sounds add up to what was heard, before, while and after; each at its place."""
    rng = np.random.default_rng(4)
    parting = Parting(8000, Delay(0.016, 3, 8, 3), HERTZ, 3)
    bank, hops = parting.bank, 60
    x = rng.normal(size=(2, hops * bank.hop))
    out = []
    for k in range(hops):
        if k in (20, 45):
            parting.enter(k == 20)
            assert parting.bank.heard == bank.heard
            assert parting.bank.window_hops == (8 if k == 20 else 3)
        if k % 5 == 0:
            kept = parting.kept([np.full((2, 4, 1), i) for i in range(k)]) if k else None
            masks = None if kept is None else rng.uniform(size=(2, len(HERTZ), kept.shape[-1]))
            parting.filters.update((7, 9), masks, 0.0)
        block = x[:, k * bank.hop : (k + 1) * bank.hop]
        out.append(parting.push(block, rng.uniform(size=(2, len(HERTZ))), (2, 0), 3))
    sounds = np.concatenate(out, axis=-1)
    assert not sounds[1].any()
    late = bank.heard - bank.hop
    heard = slice(bank.window, -late)
    np.testing.assert_allclose(
        sounds.sum(axis=0)[:, late:][:, bank.window :], x[:, heard], atol=1e-9
    )
    assert np.abs(sounds[0] - sounds[2]).max() > 0.1


def test_frames_of_before_are_those_of_the_masks() -> None:
    """After the change, filters have the spectra of every other hop, and masks go with them."""
    rng = np.random.default_rng(8)
    parting = Parting(8000, Delay(0.016, 3, 8, 3), HERTZ, 2)
    hop = parting.bank.hop
    blocks = rng.normal(size=(37, 2, hop))
    for block in blocks:
        parting.push(block, np.zeros((0, len(HERTZ))), (), 2)
    parting.enter(True)
    frames = parting.filters._frames
    assert len(frames) == 18  # of 37, every other; of three seconds all would be too many
    rows = parting.filters.kept_of(10)
    np.testing.assert_array_equal(rows, [0, 2, 4, 6, 8])
    window = parting.bank.windows()[0]
    ending = np.concatenate(list(blocks[28:36]), axis=1)  # the eight hops up to the 36th
    np.testing.assert_allclose(frames[-1], np.fft.rfft(ending * window)[:, 1:], rtol=1e-9)
    assert len(frames) < RECENT_SECONDS / parting.bank.hop_seconds
