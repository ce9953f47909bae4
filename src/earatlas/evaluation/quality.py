"""How good a separation sounds, where the truth is known: SDR, SIR, SAR and SI-SDR.

In: each source's image at both ears, and what was found. Out: decibels for every source at each
ear, and which found sound is which true one.

    images     (M, 2, n)   true images s_m: what source m alone puts into both ears
    estimates  (J, 2, n)   found images e_j; J = M where the count is known
    m, j       true and found sources

BSS-eval (Vincent, Gribonval and Févotte 2006; its source version, each ear apart) lets the truth
pass through any filter of 512 taps. P_m projects on the delayed copies of s_m, P on those of all:

    SDR = |P_m e|² / |e - P_m e|²       the source over everything else
    SIR = |P_m e|² / |P e - P_m e|²     over the other sources; the paper's STIR
    SAR = |P e|² / |e - P e|²           all sources over noise and artefacts
    SI-SDR                              the SDR with one tap: a gain, no filter

Decibels are kept within ±`LIMIT_DB`: beyond it rounding would speak, and a perfect or a silent
estimate would make every mean infinite. A silent estimate thus has -`LIMIT_DB` throughout (nothing
of the source is there), and a source that is alone has an SIR of `LIMIT_DB`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.evaluation.assignment import Assignment, best_assignment, known_mean
from earatlas.types import Array, Indices

__all__ = [
    "LIMIT_DB",
    "TAPS",
    "Quality",
    "QualityMeans",
    "all_pairs",
    "assign_sounds",
    "best_by_sdr",
    "check_mixture",
    "check_order",
    "check_pair",
    "mixture_quality",
    "quality_of",
    "separation_quality",
]

LIMIT_DB = 100.0
TAPS = 512  # BSS-eval's filter length
# On the unit diagonal of the normal equations. Without it two equal images are a singular matrix;
# with it an SDR of 80 dB is off by 5e-6 dB, and lower ones by less.
_LOADING = 1e-14


class QualityMeans(NamedTuple):
    """Means over sources and ears, in dB."""

    sdr_db: float
    sir_db: float
    sar_db: float
    si_sdr_db: float


@dataclass(frozen=True, eq=False, slots=True)
class Quality:
    """How much of each estimate is its source; rows of sources that were missed are NaN."""

    sdr_db: Array  # (M, 2) sources, ears
    sir_db: Array  # (M, 2) the paper's STIR
    sar_db: Array  # (M, 2)
    si_sdr_db: Array  # (M, 2)

    def __repr__(self) -> str:
        sdr, sir, sar, si_sdr = self.mean()
        return (
            f"Quality({len(self.sdr_db)} sources, means: SDR {sdr:.1f}, SIR {sir:.1f}, "
            f"SAR {sar:.1f}, SI-SDR {si_sdr:.1f} dB)"
        )

    def __sub__(self, before: Quality) -> Quality:
        """The improvement in dB over another quality of the same sources."""
        return Quality(
            self.sdr_db - before.sdr_db,
            self.sir_db - before.sir_db,
            self.sar_db - before.sar_db,
            self.si_sdr_db - before.si_sdr_db,
        )

    def mean(self) -> QualityMeans:
        """Means over both ears of the sources that were found."""
        return QualityMeans(*(known_mean(getattr(self, f.name)) for f in fields(self)))


def separation_quality(
    images: ArrayLike, estimates: ArrayLike, *, filter_length: int = TAPS
) -> Quality:
    """Quality of estimates (M, 2, n) in the order of the true images (M, 2, n)."""
    true, found, order = check_order(images, estimates, None, filter_length)
    pairs = all_pairs(true, found, filter_length)
    return quality_of(pairs, Assignment(order, len(true)))


def mixture_quality(images: ArrayLike, mixture: ArrayLike, *, filter_length: int = TAPS) -> Quality:
    """Quality of doing nothing: the mixture (2, n) as the estimate of every image (M, 2, n)."""
    true, mixed = check_pair(images, check_mixture(mixture)[None], filter_length, "mixture")
    pairs = all_pairs(true, mixed, filter_length)
    return quality_of(pairs, Assignment(np.zeros(len(true), dtype=np.intp), 1))


def assign_sounds(
    images: ArrayLike, estimates: ArrayLike, *, filter_length: int = TAPS
) -> Assignment:
    """The assignment of estimates (J, 2, n) to images (M, 2, n) with the best SDR.

    Its sum over sources and both ears: an estimate is the same source at both ears.
    """
    true, found = check_pair(images, estimates, filter_length)
    return best_by_sdr(all_pairs(true, found, filter_length)["sdr_db"])


def _check_sounds(values: ArrayLike, name: str) -> Array:
    try:
        x = np.asarray(values, dtype=np.float64)
    except ValueError as error:  # a list of sounds that differ in length
        raise InputError(
            f"{name} must be sounds of one length, got {error}. Cut or pad them."
        ) from error
    if x.ndim != 3 or x.shape[1] != 2 or 0 in x.shape:
        raise InputError(
            f"{name} must have shape (sources, 2, samples), got {x.shape}. "
            "Stack two channels for every source."
        )
    if not np.isfinite(x).all():
        m, ear, sample = np.argwhere(~np.isfinite(x))[0]
        raise InputError(
            f"{name} must be finite, got {x[m, ear, sample]} in source {m}, channel {ear}, "
            f"sample {sample}. Find out where it comes from."
        )
    return x


def check_mixture(mixture: ArrayLike) -> Array:
    """Both channels (2, n) of a mixture, or an InputError."""
    x = np.asarray(mixture, dtype=np.float64)
    if x.ndim != 2 or len(x) != 2:
        raise InputError(
            f"mixture must have shape (2, samples), got {x.shape}. Give both channels."
        )
    return x


def check_pair(
    images: ArrayLike, estimates: ArrayLike, filter_length: int, name: str = "estimates"
) -> tuple[Array, Array]:
    """Images that BSS-eval can refer to, and estimates of the same length."""
    true, found = _check_sounds(images, "images"), _check_sounds(estimates, name)
    if found.shape[-1] != true.shape[-1]:
        raise InputError(
            f"{name} must be as long as images, got {found.shape[-1]} and {true.shape[-1]} "
            "samples. Cut or pad them."
        )
    if filter_length < 1 or filter_length != int(filter_length):
        raise InputError(
            f"filter_length must be a whole number of at least 1, got {filter_length}. "
            f"BSS-eval has {TAPS}."
        )
    if true.shape[-1] < filter_length:
        raise InputError(
            f"images must have at least filter_length = {filter_length} samples, "
            f"got {true.shape[-1]}. Give longer sounds."
        )
    silent = np.argwhere(~true.any(axis=-1))
    if len(silent):
        m, ear = silent[0]
        raise InputError(
            f"images must hold sound at both ears, got silence for source {m} in channel {ear}. "
            "Leave that source out: nothing can be like silence."
        )
    return true, found


def check_order(
    images: ArrayLike, estimates: ArrayLike, assignment: Assignment | None, filter_length: int = 1
) -> tuple[Array, Array, Indices]:
    """Both, and which estimate each image has (M,), -1 for none; without assignment, the same."""
    true, found = check_pair(images, estimates, filter_length)
    if assignment is not None:
        return true, found, assignment.found
    if len(found) != len(true):
        raise InputError(
            f"estimates must be as many as images, got {len(found)} and {len(true)}. "
            "Assign them first (assign_sounds), or use score."
        )
    return true, found, np.arange(len(true))


def all_pairs(images: Array, estimates: Array, filter_length: int) -> dict[str, Array]:
    """Every figure of `Quality` for every pair: (M, J, 2) each.

    With the squared cosine c = |P e|² / |e|² of the angle between e and a subspace, each of them is
    c / (1 - c). All pairs cost little more than M: the factorizations are the same.
    """
    # Here, not above: scipy.optimize comes with it. `bss_eval_sources` is not for us: it lets the
    # ears disagree on who is who, and without its permutation it fails under NumPy 2.
    from fast_bss_eval.numpy import square_cosine_metrics

    # fast_bss_eval does not normalize what is weaker than 1e-6; a gain must change nothing.
    s, e = _to_full_scale(images), _to_full_scale(estimates)
    ears = [
        square_cosine_metrics(
            s[:, ear], e[:, ear], filter_length=int(filter_length), load_diag=_LOADING
        )
        for ear in range(2)
    ]
    own = np.stack([c for c, _ in ears], axis=-1)
    every = np.stack([c for _, c in ears], axis=-1)
    tiny = np.finfo(np.float64).tiny  # 0 / 0 for a silent estimate, whose figures are all lowest
    energy = (s**2).sum(axis=-1)[:, None] * np.maximum((e**2).sum(axis=-1), tiny)
    gain = np.einsum("mcn,jcn->mjc", s, e) ** 2 / energy
    return {
        "sdr_db": _decibels(own),
        "sir_db": _decibels(own / np.maximum(every, tiny)),
        "sar_db": _decibels(every),
        "si_sdr_db": _decibels(gain),
    }


def _to_full_scale(x: Array) -> Array:
    peak = np.abs(x).max(axis=-1, keepdims=True)
    return x / np.where(peak > 0, peak, 1.0)


def _decibels(cosine: Array) -> Array:
    """10 log10(c / (1 - c)) of squared cosines c, within ±LIMIT_DB."""
    double = np.finfo(np.float64)
    c = np.clip(cosine, double.tiny, 1 - double.epsneg)  # rounding may reach 0, 1 and beyond
    decibels: Array = np.clip(10 * np.log10(c / (1 - c)), -LIMIT_DB, LIMIT_DB)
    return decibels


def quality_of(pairs: dict[str, Array], assignment: Assignment) -> Quality:
    """The figures of the assigned pairs."""
    m = np.arange(len(assignment.found))
    hit = assignment.found[:, None] >= 0
    return Quality(**{k: np.where(hit, v[m, assignment.found], np.nan) for k, v in pairs.items()})


def best_by_sdr(sdr_db: Array) -> Assignment:
    """The assignment with the largest sum of SDRs (M, J, 2)."""
    return best_assignment(-sdr_db.mean(axis=-1))
