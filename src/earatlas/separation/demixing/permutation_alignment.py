"""Which is which: one order of two sources for all frequencies.

Filters that are found at each frequency alone part two sources there, but do not know which is the
first. In: the images that such filters made and masks, both (2 sources, F frequencies, T frames).
Out: where the two are to be exchanged.

Frequencies are gathered in narrow bands of equal width in pitch. In band i, d_i (T,) says which
source dominates when: 1 the first, -1 the second, about 0 where both are silent. A voice moves many
bands at once, those near each other most, so bands in the same order have d_i and d_j alike; and
the masks, where they are sure, tell the order themselves. With s_i = ±1 the best order makes

    J(s) = Σ_ij s_i s_j k_ij c_ij + Σ_i s_i (b_i + w g_i)

greatest, c_ij the correlation of d_i and d_j over time, k_ij = exp(-|pitch_i - pitch_j| / reach),
b_i = the product of d_i and the masks' dominance. Far bands may well be opposed (one talker hisses
while the other hums), hence the reach; but where low bands are parted from all others by some that
tell nothing, only far ones are left (`Ties.far`). The search starts at the order that the masks
made, and as long as J grows exchanges the sources in that run of neighbouring bands where it grows
most.

Two voices that hold one pitch for a while sound there against what they do elsewhere, and came out
exchanged at that pitch and its harmonics: 12 dB where other mixtures have 30. But where each is
known to be, and what the head does to sound from there, tells the order too: g_i from -1 to 1 is
how much more like the expected columns the found ones are as they stand than exchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.features.stft import squared_size
from earatlas.types import Array, Complex, Mask

__all__ = ["FINE", "Ties", "exchanged", "expected_columns", "likeness"]

_KNEE_HERTZ = 1000.0  # pitch is log2(1 + frequency / knee): even below it, in octaves above
_REACH, _FAR_REACH = 0.25, 2.0  # in pitch
_MOST_LOOKS = 100
_ALIKE = 0.02  # of expected columns that differ by less, an error of the head is all that is seen


@dataclass(frozen=True)
class Ties:
    """What ties frequencies to each other."""

    band_hertz: float = 8.0  # the lowest band; the others are as wide in pitch
    roots: bool = False  # dominance by roots of powers
    silent: float = 0.1  # of a source's mean (root of) power: a dominance of less says little
    far: float = 0.0  # of all bands that count as `_FAR_REACH` says, beside the near ones


# For long windows, which have a bin each 4 Hz. Power at frequencies where the sources are in the
# wrong order, in % of all (48 pairs of talkers in simulated rooms of T60 0.22 to 0.6 s and of many
# shapes, half of them 15 to 35 degrees apart; kemar_full and cipic_021): 4.1 with `Ties()`, 3.7
# with bands half as wide, 3.7 with roots, 3.0 with both and less silence, 2.9 with far bands, too.
# Coarse bands first and then these: 3.1. The open: docs/figures.md, "Which is which".
FINE = Ties(band_hertz=4.0, roots=True, silent=0.03, far=0.03)


def exchanged(
    powers: Array, masks: Array, hertz: Array, told: Array | float = 0.0, ties: Ties | None = None
) -> Mask:
    """The frequencies (F,) at which the two sources of powers (2, F, T) are to change places.

    `told` (F,) is w g, what is known of the order besides.
    """
    ties = ties or Ties()
    pitch = np.log2(1 + hertz / _KNEE_HERTZ)
    band = np.floor(pitch / np.log2(1 + ties.band_hertz / _KNEE_HERTZ)).astype(np.intp)
    _, first, band = np.unique(band, return_index=True, return_inverse=True)
    counts = np.diff(np.append(first, len(hertz)))
    d, mask = (
        np.add.reduceat(values, first, axis=0) / counts[:, None]
        for values in (_dominance(powers, ties), _centred(masks[0] - masks[1]))
    )
    d /= np.maximum(np.sqrt((d**2).sum(axis=1, keepdims=True)), 1e-12)
    middle = np.add.reduceat(pitch, first) / counts
    near = _fading(middle, _REACH)
    if ties.far:
        near += ties.far * _fading(middle, _FAR_REACH)
    known = np.add.reduceat(np.broadcast_to(told, hertz.shape), first) / counts
    order = _best_order(near * (d @ d.T), (d * mask).sum(axis=1) + known)
    changed: Mask = order[band] < 0
    return changed


def expected_columns(ratios: Complex, ears: Array) -> tuple[Complex, Mask]:
    """Columns (F, 2, 2) of length 1 of two sources, and where (F,) they are known.

    `ratios` (2, F) are those of the right ear to the left, NaN where none is known; `ears` (2, F)
    levels in whose units the columns are to be.
    """
    known: Mask = np.asarray(np.isfinite(ratios).all(axis=0))
    own = np.where(known, ratios, 1.0)
    reaching = np.stack([np.ones_like(own), own]).transpose(2, 0, 1)
    columns = np.asarray(reaching / ears.T[:, :, None], dtype=np.complex128)
    columns /= np.linalg.norm(columns, axis=1, keepdims=True)
    return columns, known


def likeness(A: Complex, expected: Complex) -> Array:
    """g (F,): how much more columns A (F, 2, 2) are like the expected ones than exchanged.

    All columns have length 1. About 0 where both are expected to be alike.
    """
    along = squared_size(np.einsum("fam,fan->fmn", A.conj(), expected))
    more = along[:, 0, 0] + along[:, 1, 1] - along[:, 0, 1] - along[:, 1, 0]
    alike = squared_size((expected[..., 0].conj() * expected[..., 1]).sum(axis=1))
    g: Array = np.clip(0.5 * more / (1 - alike + _ALIKE), -1, 1)
    return g


def _fading(pitch: Array, reach: float) -> Array:
    """exp(-|pitch_i - pitch_j| / reach) (n, n) of a pitch (n,) that rises: products, no powers."""
    up = np.exp((pitch - pitch[0]) / reach)  # 3e5 at 8 kHz: far from any overflow
    fading = np.tril(np.outer(1 / up, up))
    fading += np.tril(fading, -1).T
    return fading


def _dominance(powers: Array, ties: Ties) -> Array:
    """(F, T) how much more of the first source there is, each at its own mean level."""
    mean = powers.mean(axis=2, keepdims=True)
    scaled = powers / np.where(mean > 0, mean, 1.0)
    first, second = np.sqrt(scaled) if ties.roots else scaled
    return _centred((first - second) / (first + second + ties.silent))


def _centred(values: Array) -> Array:
    centred: Array = values - values.mean(axis=1, keepdims=True)
    return centred


def _best_order(alike: Array, sure: Array) -> Array:
    """Signs s (n,) for which Σ s_i s_j alike_ij + Σ s_i sure_i can grow by no run of flips.

    To look at all runs takes longest. So of those that gain most from each band on, one look takes
    all that are apart from each other and still gain, beside those that were taken before, half of
    what they did: 113 orders of talkers in rooms and in the open came out the same as by the best
    one run a look but for six, of which three were better; it takes less than half the time.
    """
    n = len(sure)
    s, own = np.ones(n), np.array(sure, dtype=np.float64)
    J = alike - np.diag(np.diag(alike))  # s_i s_j alike_ij
    least = 1e-9 * float(np.abs(J).sum())
    square = np.zeros((n + 1, n + 1))
    no_run = np.where(np.tri(n + 1, dtype=bool), -np.inf, 0.0)
    for _ in range(_MOST_LOOKS):
        # A run keeps what ties it to itself, and loses twice what ties it to the rest.
        np.cumsum(J.cumsum(axis=0), axis=1, out=square[1:, 1:])
        inside, ties = np.diag(square), np.append(0.0, (2 * J.sum(axis=1) + own).cumsum())
        gain = no_run - 8 * square  # (begin, end) of every run of neighbours
        gain += 4 * inside - 2 * ties
        gain += (4 * inside + 2 * ties)[:, None]
        ends = gain.argmax(axis=1)
        gains = gain[np.arange(n + 1), ends]
        if not gains.max() > least:
            break
        free = np.ones(n, dtype=bool)
        for begin in np.argsort(-gains, kind="stable")[: int((gains > least).sum())]:
            run = slice(begin, ends[begin])
            if not free[run].all():
                continue
            now = -2 * own[run].sum() - 4 * (J[run].sum() - J[run, run].sum())
            if not free.all() and now < max(0.5 * gains[begin], least):
                continue
            free[run] = False
            for values in (s[run], own[run], J[run], J[:, run]):
                values *= -1
    return s
