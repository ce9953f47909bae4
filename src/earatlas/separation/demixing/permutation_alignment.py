"""Permutation alignment: one order of two sources for all frequencies.

Demixing filters that are estimated per frequency separate two sources, but their order is arbitrary
at each frequency (the permutation problem). Input: source powers and masks, both (2, F, T). Output:
the frequencies at which the two sources must be swapped.

Frequencies are grouped into narrow bands of equal width on a warped (pitch) scale. In band i, the
dominance d_i (T,) is 1 where the first source dominates, -1 where the second does, and about 0
where both are silent. Neighbouring bands of one talker rise and fall together, so bands in the same
order have correlated dominance, and reliable masks indicate the order themselves. With s_i = ±1 the
best order maximizes

    J(s) = Σ_ij s_i s_j k_ij c_ij + Σ_i s_i (b_i + w g_i)

    c_ij   correlation of d_i and d_j over time
    k_ij   exp(-|pitch_i - pitch_j| / reach): distant bands are less correlated
    b_i    correlation of d_i and the dominance of the masks
    g_i    from -1 to 1, agreement of the estimated steering vectors with the expected ones as they
           stand, relative to swapped (`ExpectedCues.agreement`)
    w      weight of the expected steering vectors

Distant bands may be anti-correlated (one talker has a fricative while the other has a vowel), hence
the limited reach; `PermutationSettings.far_weight` adds a weak coupling over long distances, for
low bands that are isolated by uninformative ones. The expected steering vectors resolve two talkers
who hold the same pitch for a while; they follow from the directions of the sources, by the
interaural ratio with its phase where phases were learned, and by its level elsewhere. The search
starts at the order of the masks and swaps, as long as J grows, the run of neighbouring bands for
which it grows most.

References
----------
.. [1] H. Sawada, S. Araki and S. Makino, "Underdetermined convolutive blind source separation via
   frequency bin-wise clustering and permutation alignment", IEEE Trans. Audio, Speech, and Language
   Processing 19(3), 2011.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.features.stft import squared_magnitude
from earatlas.types import Array, Complex, Indices, Mask

__all__ = [
    "FINE_PERMUTATION",
    "ExpectedCues",
    "PermutationSettings",
    "align_permutation",
    "count_bands",
]

# First bands whose runs are evaluated at once: fewer take more calls of NumPy, and with more, pairs
# of bands that are no runs are evaluated, too.
_BANDS_PER_BLOCK = 32


# Evidence: docs/figures/settings/separation.md, "demixing.permutation_alignment".
@dataclass(frozen=True, slots=True)
class PermutationSettings:
    """Settings of the coupling between frequency bands."""

    band_hz: float = 8.0  # width of the lowest band; the others have the same width in pitch
    amplitudes: bool = False  # dominance from amplitudes (roots of powers) instead of powers
    silence: float = 0.1  # relative to a source's mean power (or amplitude); damps d below it
    reach: float = 0.25  # decay of the coupling between bands, in pitch units
    far_reach: float = 2.0  # the same of the weak coupling over long distances
    far_weight: float = 0.0  # weight of the coupling over long distances
    pitch_knee_hz: float = 1000.0  # pitch is log2(1 + f / knee): linear below, octaves above
    expected_weight: float = 20.0  # w


FINE_PERMUTATION = PermutationSettings(  # for long windows, with one bin every 4 Hz
    band_hz=4.0, amplitudes=True, silence=0.03, far_weight=0.03
)


@dataclass(frozen=True, eq=False, slots=True)
class ExpectedCues:
    """Interaural cues of two sources that the head model predicts; NaN where not learned."""

    level_db: Array  # (2, F) interaural level, right over left
    phase_radians: Array  # (2, F) interaural phase, right over left

    def at(self, rows: Indices, ear_levels: Array) -> ExpectedCues:
        """Return the cues at some frequencies, of spectra divided by `ear_levels` (2, rows)."""
        offset_db = 20 * np.log10(ear_levels[0] / ear_levels[1])
        return ExpectedCues(self.level_db[:, rows] + offset_db, self.phase_radians[:, rows])

    def agreement(self, A: Complex) -> Array:
        """Return g (F,): how much better unit steering vectors A (F, 2, 2) agree than swapped.

        g is 0 where no cue is known, and about 0 where the cues of both sources coincide.
        """
        level_known, phase_known = (
            np.isfinite(cue).all(axis=0) for cue in (self.level_db, self.phase_radians)
        )
        amplitudes = 10 ** (np.where(level_known, self.level_db, 0.0) / 20)
        ratios = amplitudes.astype(np.complex128)
        by_level = np.where(level_known, _agreement(np.abs(A) + 0j, ratios), 0.0)
        ratios = ratios * np.exp(1j * np.where(phase_known, self.phase_radians, 0.0))
        by_phase = _agreement(A, ratios)
        return np.where(level_known & phase_known, by_phase, by_level)


def _agreement(A: Complex, ratios: Complex) -> Array:
    """Return the agreement g (F,) of A (F, 2, 2) with interaural ratios (2, F), right over left."""
    expected = np.stack([np.ones_like(ratios), ratios]).transpose(2, 0, 1)  # (F, 2, 2)
    expected = expected / np.sqrt(squared_magnitude(expected).sum(axis=1, keepdims=True))
    match = squared_magnitude(np.einsum("fam,fan->fmn", A.conj(), expected))
    excess = match[:, 0, 0] + match[:, 1, 1] - match[:, 0, 1] - match[:, 1, 0]
    collinearity = squared_magnitude((expected[..., 0].conj() * expected[..., 1]).sum(axis=1))
    # The loading limits g where the expected steering vectors nearly coincide.
    g: Array = np.clip(0.5 * excess / (1 - collinearity + 0.02), -1, 1)
    return g


def align_permutation(
    powers: Array,
    masks: Array,
    frequencies_hz: Array,
    agreement: Array | float = 0.0,
    settings: PermutationSettings | None = None,
) -> Mask:
    """Find the frequencies at which two sources must be swapped.

    Parameters
    ----------
    powers : array of shape (2, F, T)
        Powers of the two demixed sources.
    masks : array of shape (2, F, T)
        Soft masks, which indicate the order where they are reliable.
    frequencies_hz : array of shape (F,)
        Frequencies, ascending.
    agreement : float or array of shape (F,), default 0
        g: agreement with the expected steering vectors, positive if the order is right.
    settings : PermutationSettings, optional
        Settings of the coupling between bands.

    Returns
    -------
    boolean array of shape (F,)
        True where the two sources must be swapped.

    References
    ----------
    .. [1] H. Sawada, S. Araki and S. Makino, "Underdetermined convolutive blind source separation
       via frequency bin-wise clustering and permutation alignment", IEEE Trans. Audio, Speech, and
       Language Processing 19(3), 2011.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> envelopes = rng.random((2, 1, 200)) ** 4
    >>> powers = np.repeat(envelopes, 60, axis=1)
    >>> powers[:, 20:30] = powers[::-1, 20:30]
    >>> masks = np.repeat(envelopes / envelopes.sum(axis=0), 60, axis=1)
    >>> swap = align_permutation(powers, masks, 20.0 * np.arange(1, 61))
    >>> np.flatnonzero(swap)
    array([20, 21, 22, 23, 24, 25, 26, 27, 28, 29])
    """
    settings = settings or PermutationSettings()
    pitch = np.log2(1 + frequencies_hz / settings.pitch_knee_hz)
    _, first, band = np.unique(
        _bands(frequencies_hz, settings), return_index=True, return_inverse=True
    )
    counts = np.diff(np.append(first, len(frequencies_hz)))
    d, mask = (
        np.add.reduceat(values, first, axis=0) / counts[:, None]
        for values in (_dominance(powers, settings), _centred(masks[0] - masks[1]))
    )
    d /= np.maximum(np.sqrt((d**2).sum(axis=1, keepdims=True)), 1e-12)
    band_pitch = np.add.reduceat(pitch, first) / counts
    coupling = _exponential_coupling(band_pitch, settings.reach)
    if settings.far_weight:
        far = _exponential_coupling(band_pitch, settings.far_reach)
        coupling += settings.far_weight * far
    g = np.add.reduceat(np.broadcast_to(agreement, frequencies_hz.shape), first) / counts
    unary = (d * mask).sum(axis=1) + settings.expected_weight * g
    signs = _best_signs(coupling * (d @ d.T), unary)
    swap: Mask = signs[band] < 0
    return swap


def count_bands(frequencies_hz: Array, settings: PermutationSettings) -> int:
    """Return the number of bands, of which `align_permutation` compares all pairs."""
    return len(np.unique(_bands(frequencies_hz, settings)))


def _bands(frequencies_hz: Array, settings: PermutationSettings) -> Indices:
    """Return the number of the band (F,) of each frequency."""
    pitch = np.log2(1 + frequencies_hz / settings.pitch_knee_hz)
    band_width = np.log2(1 + settings.band_hz / settings.pitch_knee_hz)
    bands: Indices = np.floor(pitch / band_width).astype(np.intp)
    return bands


def _exponential_coupling(pitch: Array, reach: float) -> Array:
    """Return exp(-|pitch_i - pitch_j| / reach) (n, n) for ascending pitch (n,)."""
    up = np.exp((pitch - pitch[0]) / reach)  # at most 3e5 at 8 kHz, so it cannot overflow
    coupling = np.tril(np.outer(1 / up, up))
    coupling += np.tril(coupling, -1).T
    return coupling


def _dominance(powers: Array, settings: PermutationSettings) -> Array:
    """Return d (F, T) of powers (2, F, T), each source relative to its mean level."""
    mean = powers.mean(axis=2, keepdims=True)
    scaled = powers / np.where(mean > 0, mean, 1.0)
    first, second = np.sqrt(scaled) if settings.amplitudes else scaled
    return _centred((first - second) / (first + second + settings.silence))


def _centred(values: Array) -> Array:
    """Subtract the mean over time."""
    centred: Array = values - values.mean(axis=1, keepdims=True)
    return centred


def _best_signs(pairwise: Array, unary: Array) -> Array:
    """Return signs s (n,) for which J can be increased by no run of sign flips.

    J = Σ s_i s_j pairwise_ij + Σ s_i unary_i. The evaluation of all runs dominates the cost. One
    pass therefore flips several runs: from each first band the best run, in order of their gain, if
    it does not overlap runs that were flipped in this pass and still gains at least half as much.
    """
    n = len(unary)
    s, field = np.ones(n), np.array(unary, dtype=np.float64)
    J = np.array(pairwise)  # s_i s_j pairwise_ij
    np.fill_diagonal(J, 0.0)
    min_gain = 1e-9 * float(np.abs(J).sum())
    square, ends, gains = np.zeros((n + 1, n + 1)), np.empty(n + 1, np.intp), np.empty(n + 1)
    no_run = np.where(np.tri(_BANDS_PER_BLOCK, dtype=bool), -np.inf, 0.0)
    for _ in range(100):  # ends long before
        # A flip keeps the terms within the run, and changes the sign of all terms with the rest.
        for row, above, below in zip(J, square[:-1, 1:], square[1:, 1:], strict=True):
            np.add(above, row, out=below)
        linear = np.append(0.0, (2 * square[-1, 1:] + field).cumsum())
        np.cumsum(square[1:, 1:], axis=1, out=square[1:, 1:])
        inside = np.diag(square)
        at_begin, at_end = 4 * inside + 2 * linear, 4 * inside - 2 * linear
        for first in range(0, n + 1, _BANDS_PER_BLOCK):
            rows = slice(first, first + _BANDS_PER_BLOCK)  # a run ends behind its first band
            gain = -8 * square[rows, first:]
            gain += at_end[first:]
            size = len(gain)
            gain[:, :size] += no_run[:size, :size]
            best = gain.argmax(axis=1)
            ends[rows] = first + best
            gains[rows] = at_begin[rows] + gain[np.arange(size), best]
        if not gains.max() > min_gain:
            break
        free = np.ones(n, dtype=bool)
        for begin in np.argsort(-gains, kind="stable")[: int((gains > min_gain).sum())]:
            run = slice(begin, ends[begin])
            if not free[run].all():
                continue
            current_gain = -2 * field[run].sum() - 4 * (J[run].sum() - J[run, run].sum())
            if not free.all() and current_gain < max(0.5 * gains[begin], min_gain):
                continue
            free[run] = False
            for values in (s[run], field[run], J[run], J[:, run]):
                values *= -1
    return s
