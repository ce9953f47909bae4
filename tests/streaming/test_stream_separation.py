"""Sounds of a live stream's tracks: the same input whatever the windows, also between two kinds."""

import numpy as np
import pytest

from earatlas.separation.demixing.steering_vectors import Moments
from earatlas.streaming.expected_cues import Expected
from earatlas.streaming.filterbank import Bank
from earatlas.streaming.fir_demixing import Lasting
from earatlas.streaming.fir_filters import Firs, fitted, taps_of
from earatlas.streaming.online_steering import RECENT_SECONDS, Columns, Looking
from earatlas.streaming.recent_frames import Recent
from earatlas.streaming.renderer import Delay, Parting
from earatlas.types import Array, Complex

HERTZ = np.arange(1.0, 65.0) * 62.5
DELAY = Delay(0.016, 3, 8, 3, 16, 4)


def test_windows_and_filters_take_over_between_two_hops() -> None:
    """Two sounds add up to what was heard: in windows of both kinds, by long filters, and between.

    The pair stands in the open, then in a room, moves, stands again, and is heard in the open.
    """
    rng = np.random.default_rng(4)
    parting = Parting(8000, DELAY, HERTZ, 3)
    bank, hops = parting.bank, 130
    x = rng.normal(size=(2, hops * bank.hop))
    out, ways = [], []
    for k in range(hops):
        if k in (30, 110):
            parting.enter(k == 30)
            assert parting.bank.heard == bank.heard
            assert parting.bank.window_hops == (8 if k == 30 else 3)
        if k % 5 == 0:
            kept = parting.kept([np.full((2, 4, 1), i) for i in range(k)]) if k else None
            masks = None if kept is None else rng.uniform(size=(2, len(HERTZ), kept.shape[-1]))
            parting.update({7: 2, 9: 0}, masks, 0.5 if 50 <= k < 70 else 0.0)
        block = x[:, k * bank.hop : (k + 1) * bank.hop]
        ways.append(parting.by_windows)
        masks = rng.uniform(size=(2, len(HERTZ))) if parting.by_windows else None
        out.append(parting.push(block, masks, (2, 0)))
    assert [k for k in range(1, hops) if ways[k] != ways[k - 1]] == [21, 30, 31, 50, 71, 110, 111]
    sounds = np.concatenate(out, axis=-1)
    assert not sounds[1].any()
    late = bank.heard - bank.hop
    heard = slice(bank.window, -late)
    np.testing.assert_allclose(
        sounds.sum(axis=0)[:, late:][:, bank.window :], x[:, heard], atol=1e-9
    )
    assert np.abs(sounds[0] - sounds[2]).max() > 0.1


def test_who_takes_the_place_of_one_of_a_pair_has_none_of_its_sound() -> None:
    """When the row of one of the two is given to another, it is silent; the other one goes on."""
    rng = np.random.default_rng(5)
    parting = Parting(8000, DELAY, HERTZ, 3)

    def pushed(rows: tuple[int, ...]) -> Array:
        masks = rng.uniform(size=(len(rows), len(HERTZ))) if parting.by_windows else None
        return parting.push(rng.normal(size=(2, parting.bank.hop)), masks, rows)

    for k in range(40):
        if k == 30:
            parting.enter(True)
            nothing = np.zeros((2, 4, 1), dtype=np.complex128)
            frames = parting.kept([nothing] * k).shape[-1]
            parting.update({7: 2, 9: 0}, rng.uniform(size=(2, len(HERTZ), frames)), 0.0)
        last = pushed((2, 0) if k >= 30 else ())
    assert last[0].any()
    assert last[2].any()
    parting.clear(1)
    assert not parting.by_windows
    parting.clear(2)
    assert parting.by_windows
    parting.update({9: 0}, None, 0.0)
    sounds = np.array([pushed((0,)) for _ in range(8)])
    assert not sounds[:, 1:].any()
    assert (np.abs(sounds[:, 0]).max(axis=(1, 2)) > 0.1).all()


def test_another_pair_fades_in() -> None:
    """Where one of two gives way to a third, no sound jumps; and the new pair stands again."""
    rng = np.random.default_rng(15)
    parting = Parting(8000, DELAY, HERTZ, 3)
    hop, pair = parting.bank.hop, {7: 2, 9: 0}
    t = np.arange(120 * hop) / 8000
    x = np.stack([np.sin(2 * np.pi * 90 * t), 3 * np.cos(2 * np.pi * 70 * t)])
    out, ways = [], []
    for k in range(120):
        pair = {7: 2, 4: 1} if k >= 60 else pair
        if k % 5 == 0:
            nothing = np.zeros((2, 4, 1), dtype=np.complex128)
            kept = parting.kept([nothing] * k).shape[-1] if k else 0
            masks = rng.uniform(size=(2, len(HERTZ), kept)) if k else None
            parting.update(pair, masks, 0.0)
        ways.append(parting.by_windows)
        masks = np.full((2, len(HERTZ)), 0.5) if parting.by_windows else None
        out.append(parting.push(x[:, k * hop : (k + 1) * hop], masks, tuple(pair.values())))
    assert [ways[k] for k in (59, 60, 119)] == [False, True, False]
    sounds = np.concatenate(out, axis=-1)[..., 30 * hop :]
    np.testing.assert_allclose(np.abs(np.diff(sounds)).max(), 0.0, atol=0.8)
    assert np.abs(sounds[0, :, : 20 * hop]).max() > 0.5
    assert not sounds[0, :, -20 * hop :].any()
    assert np.abs(sounds[1, :, -20 * hop :]).max() > 0.5


def test_frames_of_before_are_those_of_the_masks() -> None:
    """After the change, filters have the spectra of every other hop, and masks go with them."""
    rng = np.random.default_rng(8)
    parting = Parting(8000, DELAY, HERTZ, 2)
    hop = parting.bank.hop
    blocks = rng.normal(size=(37, 2, hop))
    for block in blocks:
        parting.push(block, np.zeros((0, len(HERTZ))), ())
    parting.enter(True)
    columns = parting.filters.columns
    assert len(columns._frames) == 18  # of 37, every other
    np.testing.assert_array_equal(columns.kept_of(10), [0, 2, 4, 6, 8])
    np.testing.assert_array_equal(columns.kept_hops[-3:], [-5, -3, -1])
    window = parting.bank.windows()[0]
    ending = np.concatenate(list(blocks[28:36]), axis=1)  # the eight hops up to the 36th
    left, right = np.fft.rfft(ending * window)[:, 1:]
    across = left * right.conj()
    last = columns._frames.moments(1, np.ones((2, len(left)))).values[..., 0]
    expected = np.stack([abs(left) ** 2, abs(right) ** 2, across.real, across.imag], axis=1)
    np.testing.assert_allclose(last, expected, rtol=1e-5, atol=1e-5)
    assert len(columns._frames) < RECENT_SECONDS / parting.bank.hop_seconds


def test_recent_frames_are_kept_in_their_order_in_units_of_the_ears() -> None:
    """Moments and lower spectra of the last frames, when there were few and when many."""
    rng = np.random.default_rng(12)
    frames = rng.normal(size=(17, 2, 5)) + 1j * rng.normal(size=(17, 2, 5))
    ears = rng.uniform(1, 3, size=(2, 5))
    recent = Recent(5, 4, low=3)
    for count, frame in enumerate(frames, start=1):
        recent.keep(frame)
        T = min(count, 4)
        assert len(recent) == T
        recent_frames = frames[count - T : count] / ears
        X: Complex = np.asarray(recent_frames.transpose(1, 2, 0), dtype=np.complex128)
        np.testing.assert_allclose(recent.lower(T, ears), X[:, :3], rtol=1e-5)
        oracle = Moments.of(X).values
        np.testing.assert_allclose(recent.moments(T, ears).values, oracle, rtol=1e-4, atol=1e-5)


def test_where_two_are_tells_which_is_which() -> None:
    """With phases, by level alone, and not at all where nothing is known."""
    level = np.array([[6.0, 6.0, np.nan, 3.0], [-4.0, -4.0, np.nan, 3.0]])
    phase = np.array([[0.3, np.nan, np.nan, 0.5], [1.4, np.nan, np.nan, 0.5]])
    expected = Expected(level, phase)
    ears = np.array([[1.0, 2.0, 1.0, 3.0], [2.0, 1.0, 5.0, 1.0]])
    turn = np.where(np.isnan(phase), [[2.0], [-1.0]], phase)  # of what is not known, any
    ratios = 10 ** (np.nan_to_num(level) / 20) * np.exp(1j * turn)
    A = np.stack([np.ones_like(ratios), ratios]).transpose(2, 0, 1) / ears.T[:, :, None]
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    order, exchanged = expected.order(A, ears), expected.order(A[..., ::-1], ears)
    assert (order[:2] > 5).all()
    assert (exchanged[:2] < -5).all()
    np.testing.assert_allclose(order[2:], 0.0, atol=1e-12)
    rows = np.array([3, 0])
    np.testing.assert_allclose(expected.at(rows).order(A[rows], ears[:, rows]), order[rows])


def convolved(h: Array, x: Array, before: int) -> Array:
    """y(n) = Σ_l h(l) x(n - l), l from -before on: loops."""
    y = np.zeros_like(x)
    for n in range(x.shape[1]):
        for row, matrix in enumerate(h):
            then = n - (row - before)
            if 0 <= then < x.shape[1]:
                y[:, n] += matrix @ x[:, then]
    return y


def test_filters_hop_by_hop_are_a_convolution() -> None:
    """Each sample `before` samples late; after a change the new filters, with a hop between."""
    rng = np.random.default_rng(2)
    hop, before = 5, 4
    old, new = rng.normal(size=(2, 11, 2, 2))
    x = rng.normal(size=(2, 60))
    firs = Firs(hop, len(old))
    firs.change(old)
    out = []
    for k in range(12):
        if k == 6:
            firs.change(new)
        firs.hear(x[:, k * hop : (k + 1) * hop])
        out.append(firs.sound())
    y = np.concatenate(out, axis=1)[:, before:]
    one, other = (convolved(h, x, before)[:, :-before] for h in (old, new))
    change = 6 * hop - before
    np.testing.assert_allclose(y[:, :change], one[:, :change], atol=1e-12)
    np.testing.assert_allclose(y[:, change + hop :], other[:, change + hop :], atol=1e-12)
    rise = (np.arange(hop) + 0.5) / hop
    between = slice(change, change + hop)
    expected = rise * other[:, between] + (1 - rise) * one[:, between]
    np.testing.assert_allclose(y[:, between], expected, atol=1e-12)


def test_filters_may_be_heard_later_than_they_could_be() -> None:
    """The same samples, so many later: those of a shorter future within the same delay."""
    rng = np.random.default_rng(6)
    x, h = rng.normal(size=(2, 60)), rng.normal(size=(9, 2, 2))
    soon, late = Firs(5, len(h)), Firs(5, len(h), 7)
    sounds = []
    for firs in (soon, late):
        firs.change(h)
        out = []
        for k in range(12):
            firs.hear(x[:, 5 * k : 5 * (k + 1)])
            out.append(firs.sound())
        sounds.append(np.concatenate(out, axis=1))
    np.testing.assert_allclose(sounds[1][:, 7:], sounds[0][:, :-7], atol=1e-12)


def test_taps_are_those_of_the_spectrum_that_are_heard() -> None:
    """In the middle as they are, at either end faded."""
    rng = np.random.default_rng(3)
    h = rng.normal(size=(48, 2, 2))
    taps = taps_of(np.fft.rfft(h, axis=0), 12, 24, 1 / 6)
    assert len(taps) == 12 + 24
    np.testing.assert_allclose(taps[2 : 12 + 20], np.concatenate([h[-10:], h[:20]]), atol=1e-12)
    assert (np.abs(taps[0]) < np.abs(h[-12])).all()
    assert (np.abs(taps[-1]) < np.abs(h[23])).all()


def test_who_has_walked_is_parted_by_what_came_after() -> None:
    """Columns are those of the frames since the motion, and long after it still no others."""
    rng = np.random.default_rng(21)
    bank = Bank.of(8000, hop_seconds=0.016, window_hops=4, heard_hops=4)
    columns = Columns(bank, HERTZ, Looking(1, ((5, 1),) * 4, ((5, 1),), 3))
    F, hops = bank.window // 2, round(RECENT_SECONDS / bank.hop_seconds)
    before, after = (_any_columns(rng, F) for _ in range(2))
    loud = rng.uniform(size=(2, 2 * hops)) < 0.5

    def heard(first: int, last: int, A: Complex) -> None:
        for k in range(first, last):
            y = (0.02 + loud[:, k]) * (rng.normal(size=(F, 2)) + 1j * rng.normal(size=(F, 2)))
            assert columns.due()
            columns.keep(np.einsum("fam,fm->af", A, y))

    def mixed(last: int, moved: float) -> float:
        """Of the sources as they are after the motion, how much is in the other one, typically."""
        q = np.where(loud[:, max(last - hops, 0) : last], 0.95, 0.05)
        masks = np.tile(q[:, None], (1, F, 1)) if columns.needs_masks((3, 5)) else None
        columns.update((3, 5), masks, moved)
        assert columns.A is not None
        parted = np.abs(np.linalg.solve(columns.ears.T[:, :, None] * columns.A, after))[:, 0]
        return float(np.median(parted.min(axis=1) / parted.max(axis=1)))

    heard(0, 200, before)
    assert mixed(200, 0.0) > 0.2
    mixed(200, 0.4)
    mixed(200, 0.4)
    for first in range(200, 2 * hops - 40, 40):
        heard(first, first + 40, after)
        assert mixed(first + 40, 0.0) < 0.05


def _any_columns(rng: np.random.Generator, F: int) -> Complex:
    A = rng.normal(size=(F, 2, 2)) + 1j * rng.normal(size=(F, 2, 2)) + 4 * np.eye(2)
    return np.asarray(A, dtype=np.complex128)


def test_fitted_taps_are_those_of_least_squares() -> None:
    """J falls with every step to that of the equations of all frequencies at once."""
    rng = np.random.default_rng(13)
    N, before, after = 16, 3, 6
    H = np.fft.fft(rng.normal(size=(N, 2, 2)), axis=0)
    ears = np.fft.fft(rng.normal(size=(N, 2, 2)), axis=0)
    Phi = ears @ ears.conj().swapaxes(1, 2)
    half = slice(N // 2 + 1)
    mean = np.trace(Phi[half], axis1=1, axis2=2).real.mean()
    roots = np.linalg.cholesky(Phi / mean + 1e-4 * np.eye(2))  # (H - ĥ) Φ (H - ĥ)ᴴ is a square
    turns = np.exp(-2j * np.pi * np.outer(np.arange(N), np.arange(-before, after)) / N)
    A = np.einsum("fl,fik->fkil", turns, roots).reshape(2 * N, -1)  # of an ear's taps (i, l)
    b = np.einsum("fei,fik->fke", H, roots).reshape(2 * N, 2)

    def J(h: Array) -> float:
        miss: Complex = A @ h.transpose(2, 0, 1).reshape(-1, 2) - b  # taps (i, l) of each ear
        return float((np.abs(miss) ** 2).sum())

    exact = np.linalg.lstsq(np.r_[A.real, A.imag], np.r_[b.real, b.imag], rcond=None)[0]
    oracle = exact.reshape(2, before + after, 2).transpose(1, 2, 0)  # (l, e, i)
    start = taps_of(H[half], before, after, 1 / 6)
    taps = [fitted(H[half], Phi[half], start, before, steps) for steps in (0, 1, 3, 18)]
    np.testing.assert_allclose(taps[0], start)
    np.testing.assert_allclose(taps[-1], oracle, rtol=1e-6)
    assert (np.diff([J(h) for h in taps]) < 0).all()


@pytest.fixture(scope="module")
def in_room() -> tuple[Array, Array]:
    """Two noises that come and go, each over ways of 90 ms to both ears: mixture and images."""
    rng = np.random.default_rng(9)
    n = 5 * 8000
    loud = np.repeat(rng.uniform(size=(2, n // 800)) < 0.5, 800, axis=1)
    sounds = rng.normal(size=(2, n)) * (0.05 + loud)
    answers = rng.normal(size=(2, 2, 720)) * np.exp(-np.arange(720) / 150)
    answers[:, :, 0] += [[6.0, 2.0], [1.0, 5.0]]
    images = np.array(
        [[np.convolve(s, h)[:n] for h in own] for s, own in zip(sounds, answers, strict=True)]
    )
    return images.sum(axis=0), images


def test_long_filters_part_more_than_the_windows_that_they_begin_with(
    in_room: tuple[Array, Array],
) -> None:
    """From shares of windows of 64 ms; the sound is the first one's, at the stream's delay."""
    mixture, images = in_room
    bank = Bank.of(8000, hop_seconds=0.016, window_hops=4, heard_hops=4)
    shorter = Columns(bank, HERTZ, Looking(1, ((9, 3),) * 4, ((5, 3),), 3))
    lasting = Lasting(bank, HERTZ, 16, in_room=True)
    window, hop = bank.windows()[0], bank.hop
    out = []
    for k in range(mixture.shape[1] // hop):
        block = mixture[:, k * hop : (k + 1) * hop]
        lasting.hear(block)
        start = max((k + 1) * hop - bank.window, 0)
        frame = np.zeros((2, bank.window))
        frame[:, bank.window - ((k + 1) * hop - start) :] = mixture[:, start : (k + 1) * hop]
        assert shorter.due()
        shorter.keep(np.fft.rfft(frame * window)[:, 1:])
        if k % 40 == 39:  # masks: who is louder then
            ends = hop * (k + 1 + shorter.kept_hops)
            power = [[(i[:, max(e - 400, 0) : e] ** 2).sum() for e in ends] for i in images]
            first = (np.asarray(power[0]) > power[1]).astype(float)
            q = np.tile(np.stack([first, 1 - first])[:, None], (1, bank.window // 2, 1))
            shorter.update((3, 5), q, 0.0)
            lasting.update((3, 5), shorter, 0.0)
            assert lasting.ready
        if lasting.ready:
            out.append(lasting.sound())
    sound = np.concatenate(out, axis=1)
    late = mixture.shape[1] // hop * hop - sound.shape[1] - (bank.heard - hop)
    image = images[0][:, late : late + sound.shape[1]]
    half = slice(sound.shape[1] // 2, None)

    def sdr(found: Array) -> float:
        miss = image[:, half] - found[:, half]
        return 10 * float(np.log10((image[:, half] ** 2).sum() / (miss**2).sum()))

    assert sdr(mixture[:, late : late + sound.shape[1]]) < 2
    assert 8 < sdr(sound) < 30
