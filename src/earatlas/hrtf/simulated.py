"""A head without measurements: a rigid sphere with two unlike ears, computed for any direction.

The sound pressure on a rigid sphere in a plane wave is known exactly (Rayleigh; Duda & Martens
1998). It depends on one angle only, so a bare sphere sounds the same on whole circles of
directions. What a real head adds, pinnae and shoulders, is added here as a few point scatterers
beside each ear: each repeats the sound after the detour it makes, and the detour depends on the
direction. That breaks the circles, smoothly, and the two ears are unlike, so that the *interaural*
cues tell elevation too.

In: directions (N, 2). Out: impulse responses (N, 2, taps). Nothing is random and every step is a
smooth function of the unit vector towards the source, so poles and the +-180 degree seam are
directions like any other.

    s   (N, 3)    unit vectors towards the sources, head frame: x front, y left, z up
    e   (3,)      unit vector towards an ear, from the centre of the head
    p   (3,)      a scatterer's offset from its ear
    f   (F,)      frequencies in Hz, from 0 to half the rate
    C   (M, F)    sphere series: order m at frequency f
    P   (N, M)    Legendre polynomials P_m(s.e)
    H   (N, F)    one ear's transfer function, relative to the free field at the head's centre,
                  H = (P C) (1 + sum of echoes)

The time convention is exp(+j 2 pi f t), numpy's: outgoing waves are spherical Hankel functions of
the second kind, and a phase that falls with frequency is a delay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.polynomial.legendre import legvander
from numpy.typing import ArrayLike
from scipy.special import spherical_jn, spherical_yn

from earatlas.errors import InputError
from earatlas.geometry.angles import to_vectors
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.head import Head, ImpulseResponses
from earatlas.types import Array, Complex

__all__ = [
    "LEFT_EAR",
    "RIGHT_EAR",
    "Ear",
    "Scatterer",
    "camil_directions",
    "simulated_head",
    "simulated_responses",
    "sphere_transfer",
]

HEAD_RADIUS_M = 0.0875  # the customary average adult head
SPEED_OF_SOUND = 343.0  # metres a second, air at 20 degrees Celsius
# A response has died away after this time: at 48 kHz its last millisecond is 65 dB down or more.
_RESPONSE_SECONDS = 5e-3
# The centre of the head hears the source this late. The facing ear is a/c = 0.26 ms earlier, and
# what rings before it needs room too, or it would wrap round to the end.
_DELAY_SECONDS = 1e-3
# From this share of half the rate on, spectra fade to nothing. With 0.9 the edge rings so
# long that the last millisecond is only 55 dB down.
_FADE_FROM = 0.8
# The cues reach up to 8 kHz, and the fade must start above them: 0.8 times half of this.
_MIN_RATE_HZ = 20_000


@dataclass(frozen=True, slots=True)
class Scatterer:
    """An echo g (1 - p.s/|p|)/2 B(f) exp(-j 2 pi f (|p| - p.s)/c), p the offset from the ear.

    A source on the scatterer's far side reaches both at once and casts no echo; one on the ear's
    side passes the ear, is thrown back and is heard 2|p|/c late. B is a first-order high pass with
    corner c/(2 pi radius): what is small against the wavelength reflects little.
    """

    offset_m: tuple[float, float, float]  # front, left, up, from the ear
    gain: float  # against the direct sound, of a source opposite, at high frequency
    radius_m: float

    def __post_init__(self) -> None:
        """Refuse a scatterer without a direction from its ear."""
        if not np.linalg.norm(self.offset_m) > 0.0:
            raise InputError(
                f"offset_m must be away from the ear, got {self.offset_m}. "
                "Leave the scatterer out, or give its place in metres."
            )


@dataclass(frozen=True, slots=True)
class Ear:
    """A point on the sphere that listens, and what stands around it."""

    azimuth_degrees: float
    elevation_degrees: float
    scatterers: tuple[Scatterer, ...] = ()


# Chosen by trial so that no two distant directions sound alike (the tests say how far that goes)
# and no echo cancels the direct sound. They are plausible, not measured from anyone.
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
) -> Array:
    """Impulse responses (N, 2, taps) of a simulated head: sphere times (direct sound + echoes).

    `directions` are (azimuth, elevation) in degrees, (N, 2). Channel 0 is left. All directions
    share one delay, 1 ms at the centre of the head. More `taps` than 5 ms only add zeros. `ears`
    are (left, right); leave out their scatterers and a bare sphere remains.

    >>> simulated_responses([[90.0, 0.0], [0.0, 90.0]]).shape
    (2, 2, 256)
    """
    angles = Sphere().check(directions)
    length = _checked_length(rate, taps)
    f = np.fft.rfftfreq(length, 1.0 / rate).astype(np.float64)
    common = _fade(f) * np.exp(-2j * np.pi * f * _DELAY_SECONDS)
    s = to_vectors(angles)
    responses = np.zeros((len(s), 2, taps))
    for channel, ear in enumerate(ears):
        e = to_vectors(np.array([ear.azimuth_degrees, ear.elevation_degrees]))
        transfer = sphere_transfer(s @ e, f) * _with_echoes(ear, s, f) * common
        responses[:, channel, :length] = np.fft.irfft(transfer, n=length, axis=1)
    return responses


def camil_directions() -> Array:
    """Grid of the paper (10800, 2): azimuths -178..180, elevations -59..59, every 2 degrees."""
    azimuths, elevations = np.arange(-178.0, 181.0, 2.0), np.arange(-59.0, 60.0, 2.0)
    return np.stack(np.meshgrid(azimuths, elevations, indexing="ij"), axis=-1).reshape(-1, 2)


def sphere_transfer(incidence_cosines: Array, frequencies: Array) -> Complex:
    """Pressure on a rigid sphere in a plane wave over that at its centre without it, (N, F).

    H = -j/x^2 sum_m j^m (2m + 1) P_m(cos) / h_m'(x),  x = 2 pi f a/c,  H = 1 at f = 0,
    with h_m the spherical Hankel function of the second kind.
    """
    x = 2.0 * np.pi * frequencies * HEAD_RADIUS_M / SPEED_OF_SOUND
    # Terms fall faster than exponentially once m is past x by a few x^(1/3), the width of the
    # turning point; so many leave a rest below 1e-15.
    top = x.max(initial=0.0)
    m = np.arange(int(np.ceil(top + 8.0 * np.cbrt(top) + 12.0)))
    coefficients = np.zeros((len(m), len(x)), dtype=np.complex128)
    coefficients[0, x == 0.0] = 1.0
    sounding = x > 0.0
    x = x[sounding]
    powers = np.array([1, 1j, -1, -1j])[m % 4] * (2 * m + 1)
    # y_m overflows where m >> x, and its derivative becomes inf or inf - inf: there the term is
    # below the smallest double, that is, zero.
    with np.errstate(over="ignore", invalid="ignore"):
        slope = spherical_jn(m[:, None], x, derivative=True) - 1j * spherical_yn(
            m[:, None], x, derivative=True
        )
        terms = -1j * powers[:, None] / (slope * x**2)
    coefficients[:, sounding] = np.where(np.isfinite(slope), terms, 0.0)
    transfer: Complex = legvander(incidence_cosines, len(m) - 1) @ coefficients
    return transfer


def _with_echoes(ear: Ear, s: Array, f: Array) -> Complex:
    """1 + the echoes of the ear's scatterers, (N, F)."""
    total = np.ones((len(s), len(f)), dtype=np.complex128)
    for scatterer in ear.scatterers:
        p = np.array(scatterer.offset_m)
        distance = np.linalg.norm(p)
        away = 1.0 - s @ p / distance  # 0 behind the scatterer ... 2 opposite
        tone = 2j * np.pi * f * scatterer.radius_m / SPEED_OF_SOUND
        high_pass = scatterer.gain * tone / (1.0 + tone)
        phase = np.multiply.outer(away * distance / SPEED_OF_SOUND, -2j * np.pi * f)
        total += (away / 2.0)[:, None] * high_pass * np.exp(phase)
    return total


def _fade(f: Array) -> Array:
    """1 up to a share of the highest frequency, then half a cosine period down to 0."""
    past = np.clip((f / f[-1] - _FADE_FROM) / (1.0 - _FADE_FROM), 0.0, 1.0)
    fade: Array = 0.5 + 0.5 * np.cos(np.pi * past)
    return fade


def _checked_length(rate: int, taps: int) -> int:
    """Count the samples that hold a response: even, so that half the rate is a bin."""
    if not rate >= _MIN_RATE_HZ:
        raise InputError(
            f"rate must be at least {_MIN_RATE_HZ} Hz, so that cues up to 8 kHz are whole, "
            f"got {rate}. Take 48000 and resample."
        )
    length = 2 * round(_RESPONSE_SECONDS * rate / 2.0)
    if taps < length:
        raise InputError(
            f"taps must be at least {length} at {rate} Hz (5 ms), got {taps}. "
            "A shorter response would cut the shoulder's echo; raise taps or lower the rate."
        )
    return length


def simulated_head(directions: ArrayLike | None = None) -> Head:
    """A simulated head, no data file needed: a rigid sphere with pinnae and shoulders.

    Without `directions`, a lattice over the whole sphere, about 4 degrees apart.
    """
    x = Sphere().grid(4.0) if directions is None else Sphere().check(directions)
    return Head(
        name="simulated",
        directions=x,
        ears=ImpulseResponses(simulated_responses(x), 48_000.0),
        licence="MIT, as this package",
        provenance="simulated: rigid sphere, asymmetric ears, pinna and shoulder scatterers",
    )
