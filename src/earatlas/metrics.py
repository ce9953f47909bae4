"""How good a separation or a localization is, where the truth is known.

In: each source's image at both ears and its direction, and what was found. Out: decibels for every
source at each ear, degrees for every source, and which found source is which true one.

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
from numpy.typing import ArrayLike, NDArray

from earatlas.cues import squared_size
from earatlas.directions import Sphere, azimuth_error, elevation_error, great_circle_error
from earatlas.errors import InputError

__all__ = [
    "LIMIT_DB",
    "Assignment",
    "DirectionErrors",
    "DirectionMeans",
    "Quality",
    "QualityMeans",
    "Score",
    "assign_directions",
    "assign_sounds",
    "direction_errors",
    "mixture_quality",
    "oracle_masks",
    "score",
    "separation_quality",
]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

LIMIT_DB = 100.0
_TAPS = 512  # BSS-eval's filter length
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
        return QualityMeans(*(_mean(getattr(self, f.name)) for f in fields(self)))


@dataclass(frozen=True, eq=False, slots=True)
class Assignment:
    """Which found source is which true one, each used at most once.

    >>> Assignment(np.array([2, -1, 0]), n_found=3)
    Assignment(0 is found 2, 1 is missed, 2 is found 0, found 1 is false)
    """

    found: Indices  # (M,) index of the found source, -1 where the true one was missed
    n_found: int

    def __repr__(self) -> str:
        pairs = [
            f"{m} is missed" if j < 0 else f"{m} is found {j}" for m, j in enumerate(self.found)
        ]
        return f"Assignment({', '.join(pairs + [f'found {j} is false' for j in self.false])})"

    @property
    def missed(self) -> tuple[int, ...]:
        """True sources that nothing was found for."""
        return tuple(np.flatnonzero(self.found < 0).tolist())

    @property
    def false(self) -> tuple[int, ...]:
        """Found sources that are no true one."""
        return tuple(np.setdiff1d(np.arange(self.n_found), self.found).tolist())

    def take(self, values: ArrayLike) -> Array:
        """Values (J, ...) of the found sources in the order of the true ones, NaN for missed."""
        v = np.asarray(values, dtype=np.float64)
        out = np.full((len(self.found), *v.shape[1:]), np.nan)
        hit = self.found >= 0
        out[hit] = v[self.found[hit]]
        return out


class DirectionMeans(NamedTuple):
    """Means over sources, in degrees."""

    azimuth_degrees: float
    elevation_degrees: float
    great_circle_degrees: float


@dataclass(frozen=True, eq=False, slots=True)
class DirectionErrors:
    """Absolute errors of each true source's direction; NaN where it was missed."""

    azimuth_degrees: Array  # (M,) the short way round; means little near a pole
    elevation_degrees: Array  # (M,)
    great_circle_degrees: Array  # (M,)

    def __repr__(self) -> str:
        azimuth, elevation, arc = self.mean()
        return (
            f"DirectionErrors({len(self.azimuth_degrees)} sources, means: azimuth {azimuth:.1f}, "
            f"elevation {elevation:.1f}, great circle {arc:.1f} degrees)"
        )

    def mean(self) -> DirectionMeans:
        """Means over the sources that were found."""
        return DirectionMeans(*(_mean(getattr(self, f.name)) for f in fields(self)))


@dataclass(frozen=True, eq=False, slots=True)
class Score:
    """A separation against the truth, in the order of the true sources.

    Sound is judged under the assignment with the best SDR, directions under the one with the least
    error, each on its own: neither is blamed for a mistake of the other. That alone would hide a
    source whose sound comes with its neighbour's direction, so `agree` says whether the two
    assignments are the same.
    """

    by_sound: Assignment
    quality: Quality
    mixture: Quality  # the same figures with the mixture as every estimate: "before"
    by_direction: Assignment | None  # None: no directions were given
    errors: DirectionErrors | None

    def __repr__(self) -> str:
        after, gain = self.quality.mean(), self.improvement.mean()
        words = [
            f"SDR {after.sdr_db:.1f} dB ({gain.sdr_db:+.1f})",
            f"SIR {after.sir_db:.1f} dB ({gain.sir_db:+.1f})",
            f"{len(self.by_sound.missed)} missed",
            f"{len(self.by_sound.false)} false",
        ]
        if self.errors is not None:
            words.insert(2, f"off by {self.errors.mean().great_circle_degrees:.1f} degrees")
        if self.agree is False:
            words.append("sounds and directions are swapped")
        return f"Score({len(self.by_sound.found)} sources: {', '.join(words)})"

    @property
    def improvement(self) -> Quality:
        """Quality over that of the mixture, in dB."""
        return self.quality - self.mixture

    @property
    def agree(self) -> bool | None:
        """Whether sounds and directions are assigned alike; None without directions."""
        if self.by_direction is None:
            return None
        return bool(np.array_equal(self.by_sound.found, self.by_direction.found))


def separation_quality(
    images: ArrayLike, estimates: ArrayLike, *, filter_length: int = _TAPS
) -> Quality:
    """Quality of estimates (M, 2, n) in the order of the true images (M, 2, n)."""
    true, found = _check_pair(images, estimates, filter_length)
    if len(found) != len(true):
        raise InputError(
            f"estimates must be as many as images, got {len(found)} and {len(true)}. "
            "Assign them first (assign_sounds), or use score."
        )
    pairs = _all_pairs(true, found, filter_length)
    return _quality(pairs, Assignment(np.arange(len(true)), len(true)))


def mixture_quality(
    images: ArrayLike, mixture: ArrayLike, *, filter_length: int = _TAPS
) -> Quality:
    """Quality of doing nothing: the mixture (2, n) as the estimate of every image (M, 2, n)."""
    true, mixed = _check_pair(images, _check_mixture(mixture)[None], filter_length, "mixture")
    pairs = _all_pairs(true, mixed, filter_length)
    return _quality(pairs, Assignment(np.zeros(len(true), dtype=np.intp), 1))


def assign_sounds(
    images: ArrayLike, estimates: ArrayLike, *, filter_length: int = _TAPS
) -> Assignment:
    """The assignment of estimates (J, 2, n) to images (M, 2, n) with the best SDR.

    Its sum over sources and both ears: an estimate is the same source at both ears.
    """
    true, found = _check_pair(images, estimates, filter_length)
    return _best_sdr(_all_pairs(true, found, filter_length)["sdr_db"])


def assign_directions(directions: ArrayLike, found: ArrayLike) -> Assignment:
    """The assignment of found directions (J, 2) to true ones (M, 2) with the least error.

    Its sum of great-circle distances. J may be any number, 0 too.
    """
    x, y = Sphere().check(directions, "directions"), _check_found(found)
    return _assign(great_circle_error(x[:, None], y[None]))


def direction_errors(
    directions: ArrayLike, found: ArrayLike, assignment: Assignment | None = None
) -> DirectionErrors:
    """Errors of found directions (J, 2) for each true one (M, 2); None: the best assignment."""
    x, y = Sphere().check(directions, "directions"), _check_found(found)
    assignment = assignment or assign_directions(x, y)
    if (len(assignment.found), assignment.n_found) != (len(x), len(y)):
        raise InputError(
            f"assignment must be of {len(x)} true and {len(y)} found sources, got one of "
            f"{len(assignment.found)} and {assignment.n_found}. Make it from the same directions."
        )
    y = assignment.take(y)
    return DirectionErrors(azimuth_error(x, y), elevation_error(x, y), great_circle_error(x, y))


def score(
    images: ArrayLike,
    estimates: ArrayLike,
    mixture: ArrayLike,
    *,
    directions: ArrayLike | None = None,
    found_directions: ArrayLike | None = None,
    filter_length: int = _TAPS,
) -> Score:
    """Everything about a separation: estimates (J, 2, n) of images (M, 2, n) in a mixture (2, n).

    With `directions` (M, 2) and `found_directions` (J, 2), both or none, the errors of these too.
    Where J is not M, the sources that were missed have NaN and count in no mean.
    """
    true, found = _check_pair(images, estimates, filter_length)
    _, mixed = _check_pair(true, _check_mixture(mixture)[None], filter_length, "mixture")
    if (directions is None) != (found_directions is None):
        given, lacking = "directions", "found_directions"
        if directions is None:
            given, lacking = lacking, given
        raise InputError(
            f"{lacking} must come with {given}, got {given} alone. Give both, or neither."
        )
    by_direction, errors = None, None
    if directions is not None and found_directions is not None:
        x, y = Sphere().check(directions, "directions"), _check_found(found_directions)
        _check_count(x, true, "directions", "images")
        _check_count(y, found, "found_directions", "estimates")
        by_direction = assign_directions(x, y)
        errors = direction_errors(x, y, by_direction)
    # The mixture is one more estimate: the costly part, the images' normal equations, is shared.
    pairs = _all_pairs(true, np.concatenate([found, mixed]), filter_length)
    by_sound = _best_sdr(pairs["sdr_db"][:, :-1])
    last = np.full(len(true), len(found))
    return Score(
        by_sound=by_sound,
        quality=_quality(pairs, by_sound),
        mixture=_quality(pairs, Assignment(last, len(found) + 1)),
        by_direction=by_direction,
        errors=errors,
    )


def oracle_masks(spectra: ArrayLike) -> Array:
    """Binary masks (M, F, T) from the true images' spectra (M, 2, F, T): the paper's "oracle".

    A bin goes, for both ears, to the source with the most power there, both ears summed. Masks sum
    to 1; a bin where all are equal (or silent) goes to the first of them.
    """
    s = np.asarray(spectra)
    if s.ndim != 4 or s.shape[1] != 2 or len(s) == 0:
        raise InputError(
            "spectra must have shape (M, 2, F, T): sources, ears, bins, frames, "
            f"got {s.shape}. Stack stft of each image."
        )
    if not np.isfinite(s).all():
        raise InputError("spectra must be finite, got NaN or infinity. Check the images.")
    power = squared_size(s).sum(axis=1)
    masks: Array = (np.argmax(power, axis=0) == np.arange(len(s))[:, None, None]).astype(np.float64)
    return masks


def _mean(values: Array) -> float:
    """Mean of what is not NaN; NaN if nothing is left."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


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


def _check_mixture(mixture: ArrayLike) -> Array:
    x = np.asarray(mixture, dtype=np.float64)
    if x.ndim != 2 or len(x) != 2:
        raise InputError(
            f"mixture must have shape (2, samples), got {x.shape}. Give both channels."
        )
    return x


def _check_pair(
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
            f"BSS-eval has {_TAPS}."
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


def _check_found(found: ArrayLike) -> Array:
    """Found directions (J, 2); none at all is an answer too."""
    y = np.asarray(found, dtype=np.float64)
    return y.reshape(0, 2) if y.size == 0 else Sphere().check(y, "found_directions")


def _check_count(points: Array, sounds: Array, name: str, sounds_name: str) -> None:
    if len(points) != len(sounds):
        raise InputError(
            f"{name} must be as many as {sounds_name}, got {len(points)} and {len(sounds)}. "
            "Give one a source."
        )


def _all_pairs(images: Array, estimates: Array, filter_length: int) -> dict[str, Array]:
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


def _quality(pairs: dict[str, Array], assignment: Assignment) -> Quality:
    """The figures of the assigned pairs."""
    m = np.arange(len(assignment.found))
    hit = assignment.found[:, None] >= 0
    return Quality(**{k: np.where(hit, v[m, assignment.found], np.nan) for k, v in pairs.items()})


def _best_sdr(sdr_db: Array) -> Assignment:
    return _assign(-sdr_db.mean(axis=-1))


def _assign(cost: Array) -> Assignment:
    """The pairs of least total cost (M, J), as many as there can be."""
    from scipy.optimize import linear_sum_assignment

    m, j = linear_sum_assignment(cost)
    found = np.full(len(cost), -1, dtype=np.intp)
    found[m] = j
    return Assignment(found, cost.shape[1])
