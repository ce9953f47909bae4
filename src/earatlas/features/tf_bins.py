"""The bins of a recording that were heard, sorted by frequency: what inference over sources reads.

In: spectra of both ears and the floor that each bin must pass. Out: `HeardBins`, a flat list of N
bins with the cues that each one has. Speech leaves nine bins of ten empty, so everything that is
done a bin is done on N values and not on F times T.

    f_n, t_n   (N,)    frequency and frame of bin n; f_n never falls
    y_n        (N,)    its level difference, and the cosine and sine of its phase difference
    w_mn       (M, N)  how much bin n belongs to source m

The bins of one frequency are neighbours, and so are those of a band: a sum over the frames of a
cue is a sum over a stretch of the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from earatlas.features.cues import bin_power
from earatlas.features.layout import CueLayout, level_differences, phase_differences
from earatlas.features.statistics import CueStatistics
from earatlas.features.stft import squared_size
from earatlas.types import Array, Indices, Single, Spectra

__all__ = ["HeardBins", "coherence", "wide_layout"]

_TINY = 1e-200  # keeps the logarithm of a silent bin finite
_SILENT = 1e-30  # product of two powers, of the loudest: 150 dB below, nothing is coherent
_ANY_ILD = 12.0  # dB, about what directions of a head have
_PHASE_NOISE = 0.05  # variance of a cosine or sine


def wide_layout(layout: CueLayout) -> CueLayout:
    """The layout with phase on all bins: too irregular to learn above 2 kHz, but heard."""
    return replace(layout, ipd_band_hz=(0.0, layout.rate / 2))


def coherence(spectra: Spectra, reach: int = 2) -> Single:
    """How much of each bin (F, T) one source can explain, from `reach` frames on either side.

    |Σ R L*|² / (Σ |L|² Σ |R|²) over neighbouring frames: 1 where the ears differ by one fixed
    ratio, less where several sources, reflections or noise are heard at once.
    """
    from scipy.ndimage import uniform_filter1d  # a tenth of a second, and only mixtures need it

    # At one level, in single precision: half the time, and a share of 1 is off by 1e-6.
    loudest = max(float(np.abs(spectra.real).max()), float(np.abs(spectra.imag).max())) or 1.0
    left, right = (spectra[:, 1:] / loudest).astype(np.complex64)
    cross = right * left.conj()
    parts = (cross.real, cross.imag, squared_size(left), squared_size(right))
    re, im, a, b = (uniform_filter1d(part, 2 * reach + 1, axis=1, mode="nearest") for part in parts)
    re *= re
    im *= im
    re += im
    a *= b
    share: Single = np.divide(re, a, out=np.zeros_like(re), where=a > _SILENT)
    return share


@dataclass(frozen=True, eq=False)
class HeardBins:
    """N bins in order of frequency; `values[i]` are the cues of kind i in that kind's band."""

    layout: CueLayout
    frames: int  # T
    f: Indices  # (N,)
    t: Indices  # (N,)
    level_db: Array  # (N,) of the weaker ear, re a full-scale sine
    values: tuple[Array, ...]  # ILD, cos IPD, sin IPD of the bins in their bands

    def __repr__(self) -> str:
        return f"HeardBins({len(self.f)} of {self.layout.n_frequencies * self.frames} bins)"

    @classmethod
    def of_spectra(cls, spectra: Spectra, layout: CueLayout, floors_db: Array) -> HeardBins:
        """The bins of two-channel spectra (2, B, T) whose weaker ear passes its floor (F,)."""
        power = bin_power(spectra, layout.window).min(axis=0)
        f, t = np.nonzero(power >= 10.0 ** (floors_db[:, None] / 10))
        return cls.at(spectra, layout, f, t)

    @classmethod
    def at(cls, spectra: Spectra, layout: CueLayout, f: Indices, t: Indices) -> HeardBins:
        """The bins (f_n, t_n), f_n ascending, whatever their level."""
        left, right = spectra[:, f + 1, t]
        left_power, right_power = squared_size(left), squared_size(right)
        weaker = (np.minimum(left_power, right_power) + _TINY) * (4.0 / layout.window) ** 2
        band = slice(*_stretch(f, layout.ild_frequencies))
        ild = level_differences(left_power[band], right_power[band])
        band = slice(*_stretch(f, layout.ipd_frequencies))
        # One silent ear leaves no phase at all: a cosine and sine of 0, which pull nowhere.
        size = np.sqrt((left_power[band] + _TINY) * (right_power[band] + _TINY))
        cos, sin = phase_differences(right[band] * left[band].conj(), size)
        return cls(layout, spectra.shape[-1], f, t, 10 * np.log10(weaker), (ild, cos, sin))

    @classmethod
    def joined(cls, parts: Sequence[HeardBins]) -> HeardBins:
        """The bins of consecutive stretches of a recording as those of one."""
        frames = np.cumsum([0, *(part.frames for part in parts)])
        f = np.concatenate([part.f for part in parts])
        t = np.concatenate([part.t + start for part, start in zip(parts, frames, strict=False)])
        order = np.lexsort((t, f))
        values = []
        for i in range(3):
            # A kind's bins are a stretch of each part: put them where their bins are, then sort.
            whole = np.zeros(len(f))
            begin = 0
            for part in parts:
                bins = part.kinds[i].bins
                whole[begin + bins.start : begin + bins.stop] = part.values[i]
                begin += len(part)
            first, last = _stretch(f[order], _bands(parts[0].layout)[i])
            values.append(whole[order][first:last])
        level = np.concatenate([part.level_db for part in parts])[order]
        return cls(parts[0].layout, int(frames[-1]), f[order], t[order], level, tuple(values))

    def __len__(self) -> int:
        return len(self.f)

    def narrowed(self, layout: CueLayout) -> HeardBins:
        """The same bins with the cues of a layout whose bands lie within this one's."""
        values = []
        for old, new, y in zip(_bands(self.layout), _bands(layout), self.values, strict=True):
            before = _stretch(self.f, old)[0]
            first, last = _stretch(self.f, new)
            values.append(y[first - before : last - before])
        return replace(self, layout=layout, values=tuple(values))

    def subset(self, rows: Indices) -> HeardBins:
        """Some of the bins; `rows` are ascending places in the list."""
        values = []
        for kind, y in zip(self.kinds, self.values, strict=True):
            first, last = np.searchsorted(rows, (kind.bins.start, kind.bins.stop))
            values.append(y[rows[first:last] - kind.bins.start])
        return HeardBins(
            self.layout, self.frames, self.f[rows], self.t[rows], self.level_db[rows], tuple(values)
        )

    @cached_property
    def kinds(self) -> tuple[_Kind, ...]:
        """Where each kind of cue stands: its bins, its cues, and the frames a cue has."""
        layout, kinds, cue = self.layout, [], 0
        for bins in _bands(layout):
            first, last = _stretch(self.f, bins)
            counts = np.bincount(
                self.f[first:last] - (bins[0] if len(bins) else 0), minlength=len(bins)
            )
            kinds.append(
                _Kind(
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
        """(F,) how many frames of each frequency were heard."""
        return np.bincount(self.f, minlength=self.layout.n_frequencies)

    def per_frequency(self, w: Array) -> Array:
        """Σ_t of w (M, N): (M, F)."""
        return _stretch_sums(w, self.counts)

    def statistics(self, w: Array) -> CueStatistics:
        """Q, R and E (M, D) of weights (M, N)."""
        Q, R, E = (np.zeros((len(w), self.layout.n_cues)) for _ in range(3))
        for kind, y in zip(self.kinds, self.values, strict=True):
            own = w[:, kind.bins]
            Q[:, kind.cues] = _stretch_sums(own, kind.counts)
            own = own * y
            R[:, kind.cues] = _stretch_sums(own, kind.counts)
            E[:, kind.cues] = _stretch_sums(own * y, kind.counts)
        return CueStatistics(Q, R, E, float(self.frames))

    def quadratic(self, square: Array, linear: Array, constant: Array) -> Array:
        """Σ_{d of f_n} (square_md y² + linear_md y + constant_md) at every bin: (M, N)."""
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

    def anywhere_log_likelihood(self) -> Array:
        """log p (N,) of a bin that comes from no source: any phase, a wide range of levels.

        A phase is a point on the circle but sources have it as two numbers in the plane: the radius
        has the density that a source of ordinary phase noise gives it.
        """
        ild = self.layout.cue_kinds == "ild"
        square = np.where(ild, -0.5 / _ANY_ILD**2, 0.0)
        phase = -0.5 * np.log(2 * np.pi) - 0.25 * np.log(2 * np.pi * _PHASE_NOISE)
        constant = np.where(ild, -0.5 * np.log(2 * np.pi * _ANY_ILD**2), phase)
        logs: Array = self.quadratic(square[None], np.zeros((1, len(ild))), constant[None])[0]
        return logs

    def spread_out(self, w: Array, elsewhere: float = 0.0) -> Array:
        """w (M, N) as (M, F, T), with `elsewhere` where nothing was heard."""
        out = np.full((len(w), self.layout.n_frequencies, self.frames), elsewhere)
        out[:, self.f, self.t] = w
        return out


@dataclass(frozen=True, eq=False)
class _Kind:
    bins: slice  # of the N
    cues: slice  # of the D
    counts: Indices  # (cues of the kind,) frames of each
    first: int  # frequency of the first cue


def _bands(layout: CueLayout) -> tuple[Indices, Indices, Indices]:
    """The frequencies of each kind of cue: ILD, cosine and sine of the IPD."""
    return layout.ild_frequencies, layout.ipd_frequencies, layout.ipd_frequencies


def _stretch(f: Indices, band: Indices) -> tuple[int, int]:
    """First and one past the last place in the sorted f that lies within a band of bins."""
    if not len(band):
        return 0, 0
    first, last = np.searchsorted(f, (band[0], band[-1] + 1))
    return int(first), int(last)


def _stretch_sums(w: Array, counts: Indices) -> Array:
    """Sums (M, S) over consecutive stretches of w (M, N); `counts` (S,) are their lengths."""
    out = np.zeros((len(w), len(counts)))
    filled = counts > 0  # reduceat takes an empty stretch for its first element
    starts = np.cumsum(counts) - counts
    if filled.any():
        out[:, filled] = np.add.reduceat(w, starts[filled], axis=1)
    return out
