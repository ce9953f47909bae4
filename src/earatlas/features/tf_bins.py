"""The observed time-frequency bins of a recording as a flat list, sorted by frequency.

The inputs are spectra of both ears and the floor that each bin must reach. The output is
`ObservedBins`, N bins with their cues, on which inference over sources operates. Typically nine of
ten bins of speech are unobserved, so N is much smaller than F times T.

    f_n, t_n   (N,)    frequency and frame of bin n; f_n is ascending
    y_n        (N,)    its ILD, and cosine and sine of its IPD
    w_mn       (M, N)  weight of bin n for source m

The bins of a frequency, and those of a band, are contiguous, so that a sum over the frames of a cue
is a sum over a slice of the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from earatlas.features.layout import CueLayout, level_differences, phase_differences
from earatlas.features.statistics import CueStatistics
from earatlas.features.stft import bin_power, squared_magnitude
from earatlas.numerics import moving_mean
from earatlas.types import Array, Indices, Single, Spectra

__all__ = ["ObservedBins", "full_band_layout", "interaural_coherence"]

# Evidence: docs/figures/settings/features.md, "tf_bins".
_TINY = 1e-200  # floor of powers: without it, silent bins give log(0)
_SILENT = 1e-30  # product of two relative powers (-150 dB each) below which there is no coherence
_DIFFUSE_ILD_DB = 12.0  # standard deviation of the ILD of the diffuse component
_PHASE_NOISE = 0.05  # variance of the cosine or sine of an IPD


def full_band_layout(layout: CueLayout) -> CueLayout:
    """Return the layout with the IPD of all bins, also above 2 kHz, where it is not learned."""
    return replace(layout, ipd_band_hz=(0.0, layout.rate / 2))


def interaural_coherence(spectra: Spectra, reach: int = 2) -> Single:
    """Return the squared interaural coherence (F, T) over `reach` frames on either side.

    |Σ R L*|² / (Σ |L|² Σ |R|²) is 1 where the ears differ by a constant ratio, as for a single
    source, and smaller where several sources, reflections or noise overlap.
    """
    # Normalized and in single precision, which takes half the time; the error is about 1e-6.
    peak = max(float(np.abs(spectra.real).max()), float(np.abs(spectra.imag).max())) or 1.0
    left, right = (spectra[:, 1:] / peak).astype(np.complex64)
    cross = right * left.conj()
    parts = (cross.real, cross.imag, squared_magnitude(left), squared_magnitude(right))
    re, im, a, b = (moving_mean(part, 2 * reach + 1, axis=1, mode="edge") for part in parts)
    re *= re
    im *= im
    re += im
    a *= b
    coherence: Single = np.divide(re, a, out=np.zeros_like(re), where=a > _SILENT)
    return coherence


@dataclass(frozen=True, eq=False)
class ObservedBins:
    """N observed bins sorted by frequency, with the cues of each kind."""

    layout: CueLayout
    frames: int  # T
    f: Indices  # (N,), ascending
    t: Indices  # (N,)
    level_db: Array  # (N,), of the weaker ear, re a full-scale sine
    values: tuple[Array, ...]  # ILD, cos IPD and sin IPD, each of the bins in its band

    def __repr__(self) -> str:
        return f"ObservedBins({len(self.f)} of {self.layout.n_frequencies * self.frames} bins)"

    @classmethod
    def from_spectra(cls, spectra: Spectra, layout: CueLayout, floors_db: Array) -> ObservedBins:
        """Return the bins of spectra (2, B, T) whose weaker ear reaches its floor (F,) in dB."""
        power = bin_power(spectra, layout.window).min(axis=0)
        f, t = np.nonzero(power >= 10.0 ** (floors_db[:, None] / 10))
        return cls.at(spectra, layout, f, t)

    @classmethod
    def at(cls, spectra: Spectra, layout: CueLayout, f: Indices, t: Indices) -> ObservedBins:
        """Return the bins (f_n, t_n), with ascending f_n, at any level."""
        left, right = spectra[:, f + 1, t]
        left_power, right_power = squared_magnitude(left), squared_magnitude(right)
        weaker = (np.minimum(left_power, right_power) + _TINY) * (4.0 / layout.window) ** 2
        band = slice(*_band_range(f, layout.ild_frequencies))
        ild = level_differences(left_power[band], right_power[band])
        band = slice(*_band_range(f, layout.ipd_frequencies))
        # If one ear is silent, cosine and sine are 0, which favours no direction.
        magnitude = np.sqrt((left_power[band] + _TINY) * (right_power[band] + _TINY))
        cos, sin = phase_differences(right[band] * left[band].conj(), magnitude)
        return cls(layout, spectra.shape[-1], f, t, 10 * np.log10(weaker), (ild, cos, sin))

    @classmethod
    def concatenate(cls, parts: Sequence[ObservedBins]) -> ObservedBins:
        """Concatenate the bins of consecutive parts of a recording."""
        frames = np.cumsum([0, *(part.frames for part in parts)])
        f = np.concatenate([part.f for part in parts])
        t = np.concatenate([part.t + start for part, start in zip(parts, frames, strict=False)])
        order = np.lexsort((t, f))
        values = []
        for i in range(3):
            # The bins of a kind are a slice of each part: insert their values, then sort.
            all_values = np.zeros(len(f))
            offset = 0
            for part in parts:
                bins = part.kinds[i].bins
                all_values[offset + bins.start : offset + bins.stop] = part.values[i]
                offset += len(part)
            first, last = _band_range(f[order], _bands(parts[0].layout)[i])
            values.append(all_values[order][first:last])
        level = np.concatenate([part.level_db for part in parts])[order]
        return cls(parts[0].layout, int(frames[-1]), f[order], t[order], level, tuple(values))

    def __len__(self) -> int:
        return len(self.f)

    def restricted_to(self, layout: CueLayout) -> ObservedBins:
        """Return the same bins with the cues of a layout whose bands lie within this one's."""
        values = []
        for old, new, y in zip(_bands(self.layout), _bands(layout), self.values, strict=True):
            start = _band_range(self.f, old)[0]
            first, last = _band_range(self.f, new)
            values.append(y[first - start : last - start])
        return replace(self, layout=layout, values=tuple(values))

    def subset(self, rows: Indices) -> ObservedBins:
        """Return some of the bins, given by ascending indices."""
        values = []
        for kind, y in zip(self.kinds, self.values, strict=True):
            first, last = np.searchsorted(rows, (kind.bins.start, kind.bins.stop))
            values.append(y[rows[first:last] - kind.bins.start])
        return ObservedBins(
            self.layout, self.frames, self.f[rows], self.t[rows], self.level_db[rows], tuple(values)
        )

    @cached_property
    def kinds(self) -> tuple[_CueKind, ...]:
        """The bins and cues of each kind: ILD, cosine and sine of the IPD."""
        layout, kinds, cue = self.layout, [], 0
        for bins in _bands(layout):
            first, last = _band_range(self.f, bins)
            counts = np.bincount(
                self.f[first:last] - (bins[0] if len(bins) else 0), minlength=len(bins)
            )
            kinds.append(
                _CueKind(
                    slice(first, last),
                    slice(cue, cue + len(bins)),
                    counts,
                    int(bins[0]) if len(bins) else 0,
                )
            )
            cue += len(bins)
        return tuple(kinds)

    @cached_property
    def counts(self) -> Indices:
        """Number of observed frames of each frequency (F,)."""
        return np.bincount(self.f, minlength=self.layout.n_frequencies)

    def statistics(self, w: Array) -> CueStatistics:
        """Return the statistics Q, R and E (M, D) for weights (M, N)."""
        Q, R, E = (np.zeros((len(w), self.layout.n_cues)) for _ in range(3))
        for kind, y in zip(self.kinds, self.values, strict=True):
            weighted = w[:, kind.bins]
            Q[:, kind.cues] = _slice_sums(weighted, kind.counts)
            weighted = weighted * y
            R[:, kind.cues] = _slice_sums(weighted, kind.counts)
            E[:, kind.cues] = _slice_sums(weighted * y, kind.counts)
        return CueStatistics(Q, R, E, float(self.frames))

    def quadratic(self, square: Array, linear: Array, constant: Array) -> Array:
        """Return Σ_d (square_md y² + linear_md y + constant_md) over the cues of a bin, (M, N)."""
        total = np.zeros((len(linear), len(self)))
        for kind, y in zip(self.kinds, self.values, strict=True):
            s, a, c = (
                np.repeat(coefficient[:, kind.cues], kind.counts, axis=1)
                for coefficient in (square, linear, constant)
            )
            s *= y
            s += a
            s *= y
            s += c
            total[:, kind.bins] += s
        return total

    def diffuse_log_likelihood(self) -> Array:
        """Return the log-likelihood (N,) of the diffuse component: uniform phase, wide ILD.

        A phase is a point on the unit circle, but the sources model it as a point in the plane. The
        density over the radius is that of a source with ordinary phase noise.
        """
        ild = self.layout.cue_kinds == "ild"
        square = np.where(ild, -0.5 / _DIFFUSE_ILD_DB**2, 0.0)
        phase = -0.5 * np.log(2 * np.pi) - 0.25 * np.log(2 * np.pi * _PHASE_NOISE)
        constant = np.where(ild, -0.5 * np.log(2 * np.pi * _DIFFUSE_ILD_DB**2), phase)
        logs: Array = self.quadratic(square[None], np.zeros((1, len(ild))), constant[None])[0]
        return logs


@dataclass(frozen=True, eq=False)
class _CueKind:
    """Position of one kind of cue within the bins and within the cue vector."""

    bins: slice  # rows of this kind among the N bins
    cues: slice  # positions of this kind among the D cues
    counts: Indices  # (n_cues,), observed frames of each cue
    first: int  # frequency index of the first cue


def _bands(layout: CueLayout) -> tuple[Indices, Indices, Indices]:
    """Return the frequency indices of each kind of cue: ILD, cosine and sine of the IPD."""
    return layout.ild_frequencies, layout.ipd_frequencies, layout.ipd_frequencies


def _band_range(f: Indices, band: Indices) -> tuple[int, int]:
    """Return the range [first, last) of the ascending f that lies within a band of bins."""
    if not len(band):
        return 0, 0
    first, last = np.searchsorted(f, (band[0], band[-1] + 1))
    return int(first), int(last)


def _slice_sums(w: Array, counts: Indices) -> Array:
    """Return the sums (M, S) over consecutive slices of w (M, N) of lengths `counts` (S,)."""
    out = np.zeros((len(w), len(counts)))
    nonempty = counts > 0  # np.add.reduceat does not return 0 for empty slices
    starts = np.cumsum(counts) - counts
    if nonempty.any():
        out[:, nonempty] = np.add.reduceat(w, starts[nonempty], axis=1)
    return out
