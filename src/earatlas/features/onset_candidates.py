"""Onset candidates: bins that rise above the decaying envelope of the preceding frames.

P  (t, F)   power of both ears      e  (F,)   envelope      δ   its decay per frame
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from earatlas.types import Array, Complex, Indices

__all__ = ["TINY_POWER", "DecayingEnvelope", "OnsetCandidates"]

# Evidence: docs/figures/settings/features.md, "onset_candidates".
TINY_POWER = 1e-20  # floor of powers: without it, silent bins give log(0)
_SILENCE_DB = -100.0  # lowest level of the envelope, re a full-scale sine
_MAX_GROWTH = 12  # decades of exponential growth that single precision can represent


@dataclass(frozen=True, eq=False)
class OnsetCandidates:
    """Bins that rise above the envelope; they are onsets if they also exceed the quiet level."""

    f: Indices  # (n,), index into the frequencies of the detector
    t: Indices  # (n,), frame since the start
    z: Complex  # (n, 2), spectra of the left and the right ear
    power: Array  # (n,), of both ears
    rise_db: Array  # (n,), above the envelope

    def __getitem__(self, rows: Indices) -> OnsetCandidates:
        return OnsetCandidates(
            self.f[rows], self.t[rows], self.z[rows], self.power[rows], self.rise_db[rows]
        )

    @classmethod
    def concatenate(cls, parts: Sequence[OnsetCandidates]) -> OnsetCandidates:
        """Concatenate several sets of candidates."""
        if not parts:
            empty = np.zeros(0, dtype=np.intp)
            pairs = np.zeros((0, 2), dtype=np.complex128)
            return cls(empty, empty, pairs, np.zeros(0), np.zeros(0))
        names = ("f", "t", "z", "power", "rise_db")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def best(self, count: int, now: int, forgetting: float) -> OnsetCandidates:
        """Return the `count` strongest candidates at frame `now`; older ones are discounted."""
        if len(self.f) <= count:
            return self
        merit = self.rise_db + (now - self.t) * (10 * np.log10(forgetting))
        # Ties are resolved by time and frequency, so that the block sizes do not matter.
        limit = np.partition(merit, -count)[-count]
        above, tied = np.flatnonzero(merit > limit), np.flatnonzero(merit == limit)
        tied = tied[np.lexsort((self.f[tied], self.t[tied]))[: count - len(above)]]
        return self[np.sort(np.concatenate([above, tied]))]


class DecayingEnvelope:
    """Envelope e_ft = max(P_ft, δ e_f,t-1), and the bins that rise above it.

    `full_scale_power` is the power of a full-scale sine in a bin.
    """

    def __init__(
        self, n_frequencies: int, *, decay: float, min_rise_db: float, full_scale_power: float
    ) -> None:
        self._decay = decay
        self._envelope: Array = np.zeros(n_frequencies)
        self._min_ratio = 10 ** (min_rise_db / 10)
        # Without a floor, any sound after digital silence would rise by an unlimited amount.
        self._silence = 10 ** (_SILENCE_DB / 10) * full_scale_power
        slope = -np.log10(decay)
        self._growth = 10 ** (slope * np.arange(max(int(_MAX_GROWTH / slope), 1) + 1.0))  # δ^-t
        self.count = 0  # frames so far

    def candidates(self, X: Complex, P: Array) -> OnsetCandidates:
        """Return the candidates of the next frames, spectra (2, t, F) with powers (t, F)."""
        before = self._decayed(P)
        np.maximum(before, self._silence, out=before)
        index = np.flatnonzero(self._min_ratio * before < P + TINY_POWER)
        n, f = np.divmod(index, P.shape[1])
        power = P.ravel().take(index)
        rise_db = 10 * np.log10((power + TINY_POWER) / before.ravel().take(index))
        found = OnsetCandidates(f, self.count + n, X[:, n, f].T, power, rise_db)
        self.count += len(P)
        return found

    def _decayed(self, P: Array) -> Array:
        """Return δ e_f,t-1 (t, F) for frames with powers (t, F), and update the envelope.

        Multiplied by δ^-t, the envelope is a running maximum:
        e_t δ^-t = max(P_t δ^-t, e_t-1 δ^-(t-1)).
        """
        growth = self._growth.astype(P.dtype)[:, None]
        out = np.empty_like(P)
        for start in range(0, len(P), len(growth) - 1):
            power = P[start : start + len(growth) - 1]
            t = len(power)
            e = np.concatenate([self._envelope[None], power * growth[1 : t + 1]])
            np.maximum.accumulate(e, axis=0, out=e)
            e /= growth[: t + 1]
            np.multiply(e[:-1], self._decay, out=out[start : start + t])
            self._envelope = e[-1]
        return out
