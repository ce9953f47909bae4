"""Simulated head: a rigid sphere with two different ears, computed for any direction.

The sound pressure of a plane wave on a rigid sphere is known exactly [1]_. It depends on a single
angle, so that a bare sphere cannot distinguish the directions of a cone. Pinnae and shoulders are
modelled by a few point scatterers beside each ear. Each adds an echo whose delay depends on the
direction, and the two ears differ, so that interaural cues also depend on elevation.

The input is directions (N, 2), the output impulse responses (N, 2, taps). The computation is
deterministic and a smooth function of the unit vector towards the source, so that the poles and the
seam at ±180 degrees are not special.

    s   (N, 3)    unit vectors towards the sources: x front, y left, z up
    e   (3,)      unit vector from the centre of the head towards an ear
    p   (3,)      offset of a scatterer from its ear
    f   (F,)      frequencies in Hz, from 0 to half the sampling rate
    C   (M, F)    coefficients of the sphere series: order m at frequency f
    P   (N, M)    Legendre polynomials P_m(s·e)
    H   (N, F)    transfer function of one ear relative to the free field at the centre of the
                  head, H = (P C) (1 + sum of echoes)

The time convention is exp(+j 2π f t), as in numpy: outgoing waves are spherical Hankel functions of
the second kind, and a phase that falls with frequency is a delay.

References
----------
.. [1] R. O. Duda and W. L. Martens, "Range dependence of the response of a spherical head model",
   Journal of the Acoustical Society of America, 104(5), 1998.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.polynomial.legendre import legvander
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.angles import to_vectors
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.head import Head, ImpulseResponses
from earatlas.types import Array, Complex

__all__ = [
    "LEFT_EAR",
    "RIGHT_EAR",
    "SPEED_OF_SOUND",
    "Ear",
    "Scatterer",
    "SimulatedHeadSettings",
    "camil_directions",
    "simulated_head",
    "simulated_responses",
    "sphere_transfer",
]

SPEED_OF_SOUND = 343.0  # metres per second, in air at 20 degrees Celsius


# Evidence: docs/figures/settings/hrtf.md, "simulated".
@dataclass(frozen=True, slots=True)
class SimulatedHeadSettings:
    """Parameters of the sphere and of the synthesis of its responses."""

    radius_m: float = 0.0875  # of the sphere; average adult head
    response_seconds: float = 5e-3  # duration after which a response has decayed
    delay_seconds: float = 1e-3  # at the centre of the head; keeps the responses causal
    max_cue_hz: float = 8000.0  # upper limit of the cues; spectra are exact up to there
    fade_start: float = 0.8  # fraction of half the sampling rate at which spectra begin to fade

    @property
    def min_rate_hz(self) -> float:
        """Lowest sampling rate in Hz at which the fade begins above the cues."""
        return 2.0 * self.max_cue_hz / self.fade_start


DEFAULT_SETTINGS = SimulatedHeadSettings()


@dataclass(frozen=True, slots=True)
class Scatterer:
    """A point scatterer: echo g (1 - p·s/|p|)/2 B(f) exp(-j 2π f (|p| - p·s)/c).

    p is the offset from the ear. A source behind the scatterer reaches it and the ear without
    detour and gives no echo; a source on the opposite side gives an echo delayed by 2|p|/c. B is a
    first-order high pass with the corner frequency c/(2π radius), because objects that are small
    compared with the wavelength reflect little.
    """

    offset_m: tuple[float, float, float]  # front, left, up, from the ear
    gain: float  # relative to the direct sound, at high frequency, for a source on the other side
    radius_m: float

    def __post_init__(self) -> None:
        """Raise InputError if the scatterer is at the position of the ear."""
        if not np.linalg.norm(self.offset_m) > 0.0:
            raise InputError(
                f"offset_m must be away from the ear, got {self.offset_m}. "
                "Leave the scatterer out, or pass its position in metres."
            )


@dataclass(frozen=True, slots=True)
class Ear:
    """An ear: a point on the sphere, and the scatterers around it."""

    azimuth_degrees: float
    elevation_degrees: float
    scatterers: tuple[Scatterer, ...] = ()


# Chosen by trial, not measured: distant directions have different cues, and no echo cancels the
# direct sound.
LEFT_EAR = Ear(
    azimuth_degrees=92.0,
    elevation_degrees=-4.0,
    scatterers=(
        Scatterer((-0.021, 0.017, 0.004), gain=0.34, radius_m=0.020),  # rim of the pinna, behind
        Scatterer((-0.028, 0.006, 0.021), gain=0.55, radius_m=0.015),  # helix, above
        Scatterer((0.016, 0.004, 0.006), gain=0.20, radius_m=0.012),  # tragus, in front
        Scatterer((-0.030, 0.060, -0.125), gain=0.30, radius_m=0.060),  # shoulder
    ),
)


RIGHT_EAR = Ear(
    azimuth_degrees=-104.0,
    elevation_degrees=-9.0,
    scatterers=(
        Scatterer((-0.037, -0.013, -0.007), gain=0.40, radius_m=0.020),  # rim
        Scatterer((-0.003, -0.004, 0.040), gain=0.60, radius_m=0.015),  # helix
        Scatterer((-0.003, -0.004, -0.040), gain=0.37, radius_m=0.012),  # lobe, below
        Scatterer((0.010, -0.050, -0.150), gain=0.15, radius_m=0.060),  # shoulder
    ),
)


def simulated_responses(
    directions: ArrayLike,
    *,
    rate: int = 48_000,
    taps: int = 256,
    ears: tuple[Ear, Ear] = (LEFT_EAR, RIGHT_EAR),
    settings: SimulatedHeadSettings = DEFAULT_SETTINGS,
) -> Array:
    """Compute the impulse responses of a simulated head: sphere times (direct sound + echoes).

    Parameters
    ----------
    directions : array_like of shape (N, 2)
        Azimuth and elevation in degrees.
    rate : int, default 48000
        Sampling rate in Hz, at least 20000.
    taps : int, default 256
        Length of the responses in samples, at least 5 ms; more only adds zeros.
    ears : (Ear, Ear), optional
        Left and right ear. Ears without scatterers give a bare sphere.
    settings : SimulatedHeadSettings, optional
        Radius of the head, delay and duration of the responses.

    Returns
    -------
    ndarray of shape (N, 2, taps)
        Impulse responses, left and right. All have a common delay, 1 ms at the centre of the head.

    Raises
    ------
    InputError
        If the directions, the rate or the number of taps are invalid.

    Examples
    --------
    >>> simulated_responses([[90.0, 0.0], [0.0, 90.0]]).shape
    (2, 2, 256)
    """
    angles = Sphere().check(directions)
    length = _response_length(rate, taps, settings)
    f = np.fft.rfftfreq(length, 1.0 / rate).astype(np.float64)
    common = _fade(f, settings.fade_start) * np.exp(-2j * np.pi * f * settings.delay_seconds)
    s = to_vectors(angles)
    responses = np.zeros((len(s), 2, taps))
    for channel, ear in enumerate(ears):
        e = to_vectors(np.array([ear.azimuth_degrees, ear.elevation_degrees]))
        transfer = sphere_transfer(s @ e, f, settings.radius_m) * _echo_factor(ear, s, f) * common
        responses[:, channel, :length] = np.fft.irfft(transfer, n=length, axis=1)
    return responses


def camil_directions() -> Array:
    """Return the grid of the paper (10800, 2): azimuth -178..180, elevation -59..59, step 2."""
    azimuths, elevations = np.arange(-178.0, 181.0, 2.0), np.arange(-59.0, 60.0, 2.0)
    return np.stack(np.meshgrid(azimuths, elevations, indexing="ij"), axis=-1).reshape(-1, 2)


def sphere_transfer(
    incidence_cosines: Array, frequencies: Array, radius_m: float = DEFAULT_SETTINGS.radius_m
) -> Complex:
    """Return the transfer function (N, F) of a rigid sphere, relative to the free field.

    H = -j/x² sum_m j^m (2m + 1) P_m(cos) / h_m'(x),  x = 2π f a/c,  H = 1 at f = 0,
    with the radius a and the spherical Hankel function h_m of the second kind. `incidence_cosines`
    (N,) are the cosines of the angle of incidence, `frequencies` (F,) are in Hz.
    """
    from scipy.special import spherical_jn, spherical_yn  # imported here because it is slow

    x = 2.0 * np.pi * frequencies * radius_m / SPEED_OF_SOUND
    # Beyond m = x by a few x^(1/3), the terms fall faster than exponentially; with this number of
    # terms the remainder is below 1e-15.
    x_max = x.max(initial=0.0)
    m = np.arange(int(np.ceil(x_max + 8.0 * np.cbrt(x_max) + 12.0)))
    coefficients = np.zeros((len(m), len(x)), dtype=np.complex128)
    coefficients[0, x == 0.0] = 1.0
    nonzero = x > 0.0
    x = x[nonzero]
    powers = np.array([1, 1j, -1, -1j])[m % 4] * (2 * m + 1)
    # y_m overflows for m >> x, and its derivative becomes inf or NaN; such terms are below the
    # smallest double and are set to zero.
    with np.errstate(over="ignore", invalid="ignore"):
        slope = spherical_jn(m[:, None], x, derivative=True) - 1j * spherical_yn(
            m[:, None], x, derivative=True
        )
        terms = -1j * powers[:, None] / (slope * x**2)
    coefficients[:, nonzero] = np.where(np.isfinite(slope), terms, 0.0)
    transfer: Complex = legvander(incidence_cosines, len(m) - 1) @ coefficients
    return transfer


def _echo_factor(ear: Ear, s: Array, f: Array) -> Complex:
    """Return 1 + the sum of the echoes of the scatterers of an ear, (N, F)."""
    total = np.ones((len(s), len(f)), dtype=np.complex128)
    for scatterer in ear.scatterers:
        p = np.array(scatterer.offset_m)
        distance = np.linalg.norm(p)
        detour = 1.0 - s @ p / distance  # relative to |p|: 0 behind the scatterer, 2 opposite
        ratio = 2j * np.pi * f * scatterer.radius_m / SPEED_OF_SOUND  # j f / corner frequency
        high_pass = scatterer.gain * ratio / (1.0 + ratio)
        phase = np.multiply.outer(detour * distance / SPEED_OF_SOUND, -2j * np.pi * f)
        total += (detour / 2.0)[:, None] * high_pass * np.exp(phase)
    return total


def _fade(f: Array, start: float) -> Array:
    """Return the fade (F,) to zero at half the sampling rate, as half a cosine period."""
    position = np.clip((f / f[-1] - start) / (1.0 - start), 0.0, 1.0)
    fade: Array = 0.5 + 0.5 * np.cos(np.pi * position)
    return fade


def _response_length(rate: int, taps: int, settings: SimulatedHeadSettings) -> int:
    """Return the length of a response in samples, an even number; raise InputError if invalid."""
    if not rate >= settings.min_rate_hz:
        raise InputError(
            f"rate must be at least {settings.min_rate_hz:.0f} Hz for cues up to "
            f"{settings.max_cue_hz / 1000:g} kHz, got {rate}. Use 48000 and resample."
        )
    length = 2 * round(settings.response_seconds * rate / 2.0)
    if taps < length:
        raise InputError(
            f"taps must be at least {length} at {rate} Hz "
            f"({1000 * settings.response_seconds:g} ms), got {taps}. Increase taps or lower the "
            "rate: a shorter response would cut the echo of the shoulder."
        )
    return length


def simulated_head(directions: ArrayLike | None = None) -> Head:
    """Return a simulated head: a rigid sphere [1]_ with pinnae and shoulders. No data are needed.

    Parameters
    ----------
    directions : array_like of shape (N, 2), optional
        Azimuth and elevation in degrees. By default, a lattice over the whole sphere with a spacing
        of about 4 degrees.

    Returns
    -------
    Head
        The head, with impulse responses at 48 kHz.

    Raises
    ------
    InputError
        If the directions are invalid.

    References
    ----------
    .. [1] R. O. Duda and W. L. Martens, "Range dependence of the response of a spherical head
       model", Journal of the Acoustical Society of America, 104(5), 1998.

    Examples
    --------
    >>> import earatlas as ea
    >>> head = ea.simulated_head([[90.0, 0.0], [0.0, 0.0]])
    >>> head.responses().samples.shape
    (2, 2, 256)
    """
    x = Sphere().grid(4.0) if directions is None else Sphere().check(directions)
    rate = 48_000
    return Head(
        name="simulated",
        directions=x,
        ears=ImpulseResponses(simulated_responses(x, rate=rate), float(rate)),
        licence="MIT, as this package",
        provenance="simulated: rigid sphere, asymmetric ears, pinna and shoulder scatterers",
    )
