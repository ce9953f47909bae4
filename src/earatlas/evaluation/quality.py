"""Separation quality: SDR, SIR, SAR and SI-SDR.

The inputs are the image of each source at both ears and the estimates. The outputs are decibels for
each source at each ear, and the assignment of estimates to sources.

    images     (M, 2, n)   true images s_m: the signal of source m alone at both ears
    estimates  (J, 2, n)   estimated images e_j; J = M if the number of sources is known
    m, j       true and estimated sources

BSS-eval (source version, separately at each ear) allows the true image to pass any filter with 512
taps. P_m projects onto the delayed copies of s_m, P onto those of all sources:

    SDR = |P_m e|² / |e - P_m e|²       source to distortion
    SIR = |P_m e|² / |P e - P_m e|²     source to interference; the paper's STIR
    SAR = |P e|² / |e - P e|²           sources to artefacts
    SI-SDR                              the SDR with one tap: a gain, no filter

Decibels are limited to ±`LIMIT_DB`, beyond which rounding errors dominate and a perfect or silent
estimate would make every mean infinite. A silent estimate thus has -`LIMIT_DB` in all measures, and
a single source has an SIR of `LIMIT_DB`.

References
----------
.. [1] E. Vincent, R. Gribonval and C. Févotte, "Performance measurement in blind audio source
   separation", IEEE Trans. Audio, Speech, Lang. Process., 14(4), 2006.
.. [2] J. Le Roux, S. Wisdom, H. Erdogan and J. R. Hershey, "SDR – half-baked or well done?", Proc.
   IEEE ICASSP, 2019.

"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.evaluation.assignment import Assignment, best_assignment, nan_mean
from earatlas.types import Array, Indices

__all__ = [
    "FILTER_LENGTH",
    "LIMIT_DB",
    "Quality",
    "QualityMeans",
    "assign_by_sdr",
    "assign_estimates",
    "assigned_quality",
    "check_matched",
    "check_mixture",
    "check_pair",
    "mixture_quality",
    "pairwise_metrics",
    "separation_quality",
]

# Evidence: docs/figures/settings/evaluation.md, "quality".
LIMIT_DB = 100.0  # dB, largest absolute value of all measures
FILTER_LENGTH = 512  # taps of the distortion filter of BSS-eval


class QualityMeans(NamedTuple):
    """Means over sources and ears, in dB."""

    sdr_db: float
    sir_db: float
    sar_db: float
    si_sdr_db: float


@dataclass(frozen=True, eq=False, slots=True)
class Quality:
    """Separation quality of each source at each ear, NaN for missed sources.

    Attributes
    ----------
    sdr_db : array, shape (M, 2)
        Signal-to-distortion ratio in dB.
    sir_db : array, shape (M, 2)
        Signal-to-interference ratio in dB, the paper's STIR.
    sar_db : array, shape (M, 2)
        Signal-to-artefacts ratio in dB.
    si_sdr_db : array, shape (M, 2)
        Scale-invariant signal-to-distortion ratio in dB.

    """

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
        """Return the improvement in dB over another quality of the same sources."""
        return Quality(
            self.sdr_db - before.sdr_db,
            self.sir_db - before.sir_db,
            self.sar_db - before.sar_db,
            self.si_sdr_db - before.si_sdr_db,
        )

    def mean(self) -> QualityMeans:
        """Return the means over both ears of the sources that were not missed."""
        return QualityMeans(*(nan_mean(getattr(self, f.name)) for f in fields(self)))


def separation_quality(
    images: ArrayLike, estimates: ArrayLike, *, filter_length: int = FILTER_LENGTH
) -> Quality:
    """Compute SDR, SIR, SAR and SI-SDR of estimates in the order of the true sources.

    Parameters
    ----------
    images : array_like, shape (M, 2, n)
        True image of each source at both ears.
    estimates : array_like, shape (M, 2, n)
        Estimated images in the same order; see `assign_estimates` for other orders.
    filter_length : int
        Taps of the distortion filter that the true images may pass.

    Returns
    -------
    quality : Quality
        Decibels per source and ear.

    Raises
    ------
    InputError
        If shapes do not match, or if an image is silent.

    References
    ----------
    .. [1] E. Vincent, R. Gribonval and C. Févotte, "Performance measurement in blind audio source
       separation", IEEE Trans. Audio, Speech, Lang. Process., 14(4), 2006.
    .. [2] J. Le Roux, S. Wisdom, H. Erdogan and J. R. Hershey, "SDR – half-baked or well done?",
       Proc. IEEE ICASSP, 2019.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.random.default_rng(0).normal(size=(2, 2, 4000))
    >>> estimates = images + 0.1 * images[::-1]
    >>> separation_quality(images, estimates, filter_length=1)
    Quality(2 sources, means: SDR 20.0, SIR 20.0, SAR 100.0, SI-SDR 20.0 dB)

    """
    true, estimated, order = check_matched(images, estimates, None, filter_length)
    pairs = pairwise_metrics(true, estimated, filter_length)
    return assigned_quality(pairs, Assignment(order, len(true)))


def mixture_quality(
    images: ArrayLike, mixture: ArrayLike, *, filter_length: int = FILTER_LENGTH
) -> Quality:
    """Compute the quality of the unprocessed mixture as the estimate of every source.

    Parameters
    ----------
    images : array_like, shape (M, 2, n)
        True image of each source at both ears.
    mixture : array_like, shape (2, n)
        Both channels of the mixture.
    filter_length : int
        Taps of the distortion filter.

    Returns
    -------
    quality : Quality
        Decibels per source and ear, the reference for improvements.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.random.default_rng(0).normal(size=(2, 2, 4000))
    >>> mixture_quality(images, images.sum(axis=0), filter_length=1)
    Quality(2 sources, means: SDR -0.1, SIR -0.1, SAR 100.0, SI-SDR -0.1 dB)

    """
    true, mixed = check_pair(images, check_mixture(mixture)[None], filter_length, "mixture")
    pairs = pairwise_metrics(true, mixed, filter_length)
    return assigned_quality(pairs, Assignment(np.zeros(len(true), dtype=np.intp), 1))


def assign_estimates(
    images: ArrayLike, estimates: ArrayLike, *, filter_length: int = FILTER_LENGTH
) -> Assignment:
    """Assign estimates to sources with the largest sum of SDRs over sources and ears.

    An estimate is assigned to the same source at both ears.

    Parameters
    ----------
    images : array_like, shape (M, 2, n)
        True image of each source at both ears.
    estimates : array_like, shape (J, 2, n)
        Estimated images.
    filter_length : int
        Taps of the distortion filter.

    Returns
    -------
    assignment : Assignment
        Index of the estimate of each source.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.random.default_rng(0).normal(size=(2, 2, 4000))
    >>> assign_estimates(images, images[::-1], filter_length=1)
    Assignment(true 0: estimate 1, true 1: estimate 0)

    """
    true, estimated = check_pair(images, estimates, filter_length)
    return assign_by_sdr(pairwise_metrics(true, estimated, filter_length)["sdr_db"])


def _check_sounds(values: ArrayLike, name: str) -> Array:
    """Return signals as a finite array (sources, 2, samples), or raise InputError."""
    try:
        x = np.asarray(values, dtype=np.float64)
    except ValueError as error:  # a list of signals of different lengths
        raise InputError(
            f"{name} must be signals of one length, got {error}. Cut or pad them."
        ) from error
    if x.ndim != 3 or x.shape[1] != 2 or 0 in x.shape:
        raise InputError(
            f"{name} must have shape (sources, 2, samples), got {x.shape}. "
            "Stack two channels per source."
        )
    if not np.isfinite(x).all():
        m, ear, sample = np.argwhere(~np.isfinite(x))[0]
        raise InputError(
            f"{name} must be finite, got {x[m, ear, sample]} in source {m}, channel {ear}, "
            f"sample {sample}. Check how it was computed."
        )
    return x


def check_mixture(mixture: ArrayLike) -> Array:
    """Return both channels (2, n) of a mixture, or raise InputError."""
    x = np.asarray(mixture, dtype=np.float64)
    if x.ndim != 2 or len(x) != 2:
        raise InputError(
            f"mixture must have shape (2, samples), got {x.shape}. Give both channels."
        )
    return x


def check_pair(
    images: ArrayLike, estimates: ArrayLike, filter_length: int, name: str = "estimates"
) -> tuple[Array, Array]:
    """Return valid reference images, and estimates of the same length, or raise InputError."""
    true, estimated = _check_sounds(images, "images"), _check_sounds(estimates, name)
    if estimated.shape[-1] != true.shape[-1]:
        raise InputError(
            f"{name} must be as long as images, got {estimated.shape[-1]} and {true.shape[-1]} "
            "samples. Cut or pad them."
        )
    if filter_length < 1 or filter_length != int(filter_length):
        raise InputError(
            f"filter_length must be a whole number of at least 1, got {filter_length}. "
            f"BSS-eval uses {FILTER_LENGTH}."
        )
    if true.shape[-1] < filter_length:
        raise InputError(
            f"images must have at least filter_length = {filter_length} samples, "
            f"got {true.shape[-1]}. Give longer signals."
        )
    silent = np.argwhere(~true.any(axis=-1))
    if len(silent):
        m, ear = silent[0]
        raise InputError(
            f"images must have sound at both ears, got silence for source {m} in channel {ear}. "
            "Leave that source out: the measures are undefined for silence."
        )
    return true, estimated


def check_matched(
    images: ArrayLike, estimates: ArrayLike, assignment: Assignment | None, filter_length: int = 1
) -> tuple[Array, Array, Indices]:
    """Return images, estimates, and the index (M,) of the estimate of each image, -1 if missed.

    Without an assignment, the estimates must be in the order of the images.
    """
    true, estimated = check_pair(images, estimates, filter_length)
    if assignment is not None:
        return true, estimated, assignment.found
    if len(estimated) != len(true):
        raise InputError(
            f"estimates must be as many as images, got {len(estimated)} and {len(true)}. "
            "Assign them first (assign_estimates), or use score."
        )
    return true, estimated, np.arange(len(true))


def pairwise_metrics(images: Array, estimates: Array, filter_length: int) -> dict[str, Array]:
    """Return every measure of `Quality` for every pair of image and estimate, (M, J, 2) each.

    With the squared cosine c = |P e|² / |e|² of the angle between e and a subspace, each measure is
    c / (1 - c). All pairs cost little more than M pairs, because the factorizations are shared.
    """
    # Imported here, because it imports scipy.optimize. `bss_eval_sources` is not suitable: it may
    # assign an estimate to different sources at the two ears, and without its permutation search
    # it fails with NumPy 2.
    from fast_bss_eval.numpy import square_cosine_metrics

    # fast_bss_eval does not normalize signals below 1e-6, but a gain must not change the result.
    s, e = _to_full_scale(images), _to_full_scale(estimates)
    # Without diagonal loading, the normal equations are singular for two equal images.
    ears = [
        square_cosine_metrics(
            s[:, ear], e[:, ear], filter_length=int(filter_length), load_diag=1e-14
        )
        for ear in range(2)
    ]
    own = np.stack([c for c, _ in ears], axis=-1)
    every = np.stack([c for _, c in ears], axis=-1)
    tiny = np.finfo(np.float64).tiny  # avoids 0 / 0 for a silent estimate
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
    """Return 10 log10(c / (1 - c)) of squared cosines c, within ±LIMIT_DB."""
    double = np.finfo(np.float64)
    c = np.clip(cosine, double.tiny, 1 - double.epsneg)  # rounding may exceed [0, 1]
    decibels: Array = np.clip(10 * np.log10(c / (1 - c)), -LIMIT_DB, LIMIT_DB)
    return decibels


def assigned_quality(pairs: dict[str, Array], assignment: Assignment) -> Quality:
    """Return the measures of the assigned pairs."""
    m = np.arange(len(assignment.found))
    hit = assignment.found[:, None] >= 0
    return Quality(**{k: np.where(hit, v[m, assignment.found], np.nan) for k, v in pairs.items()})


def assign_by_sdr(sdr_db: Array) -> Assignment:
    """Return the assignment with the largest sum of SDRs (M, J, 2)."""
    return best_assignment(-sdr_db.mean(axis=-1))
