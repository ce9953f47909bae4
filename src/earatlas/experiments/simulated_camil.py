"""Simulated replacement of the paper's CAMIL recordings: a head rotated in a reverberant room.

The inputs are a head, the decimation of azimuths and elevations, and the room. The outputs are the
spectra at both ears at the paper's 10,800 directions and, for the simulated head, a `Head` of
binaural room impulse responses. As in the paper, a loudspeaker is 2.7 m in front of a head that
pans and tilts: every reflection keeps its delay and amplitude, and its direction rotates with the
direct sound. Reflections of the first 50 ms are included, which fit into the window of 64 ms. The
cues of a direction are means over a recording of its own: one second of white noise, with
background noise at both ears. The responses and their cues take minutes, so that
`simulated_camil_arrays` stores them in the cache folder of the user, under a hash of the code that
makes them.

    H (N, 2, F)   anechoic transfer functions of the head = Y c, by least squares
    Y (N, S)      spherical harmonics; a rotation in azimuth multiplies order m by exp(j m azimuth)
    c (S, 2, F)   coefficients
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.signal import oaconvolve
from scipy.special import sph_harm_y

from earatlas.code_hash import code_hash
from earatlas.experiments.array_cache import cached_arrays
from earatlas.features.audio import Audio
from earatlas.features.cues import mean_cues
from earatlas.features.impulse_responses import transfer_functions
from earatlas.features.layout import CueLayout
from earatlas.geometry.angles import to_directions
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.head import Head, ImpulseResponses
from earatlas.hrtf.simulated import SPEED_OF_SOUND, camil_directions, simulated_head
from earatlas.simulation.image_source import Room, image_sources
from earatlas.simulation.placement import EARLY_SECONDS
from earatlas.types import Array, Complex, Indices, Single

__all__ = [
    "ALL_CUES",
    "ROOM",
    "RotatedHeadSettings",
    "cached_simulated_camil",
    "recorded_noise_cues",
    "rotated_head_spectra",
    "simulated_camil",
    "simulated_camil_arrays",
]


# Shoebox room: dimensions and position of the head in metres.
ALL_CUES = CueLayout(ipd_band_hz=(0.0, 8000.0))  # contains all other layouts
ROOM = Room((7.0, 6.0, 3.0), t60_seconds=0.5, listener_metres=(3.1, 2.3, 1.4))


# Evidence: docs/figures/settings/experiments.md, "simulated_camil".
@dataclass(frozen=True, slots=True)
class RotatedHeadSettings:
    """The measurement of the paper, and the interpolation of the head by spherical harmonics."""

    distance_metres: float = 2.7  # from the head to the loudspeaker
    early_seconds: float = EARLY_SECONDS  # latest reflection
    order: int = 30  # highest order of the spherical harmonics
    lattice_degrees: float = 5.0  # spacing of the directions to which the harmonics are fitted
    noise_seconds: float = 1.0  # white noise per direction
    snr_db: float = 30.0  # of the noise, and of talkers, to the background noise of the room


_DEFAULTS = RotatedHeadSettings()


def _harmonics(directions: Array, order: int) -> tuple[Complex, Indices]:
    """Return spherical harmonics (N, S) at directions, sorted by order m, and the orders (S,)."""
    pairs = [(m, n) for m in range(-order, order + 1) for n in range(abs(m), order + 1)]
    m, n = np.array(pairs).T
    azimuth, elevation = np.radians(directions).T
    return sph_harm_y(n, m, np.pi / 2 - elevation[:, None], azimuth[:, None]), m


def _directions(every: int) -> Array:
    """Return every n-th azimuth and elevation of the paper, (azimuths, elevations, 2)."""
    return camil_directions().reshape(180, 60, 2)[::every, every // 2 :: every]


def rotated_head_spectra(
    head: Head,
    every: int = 1,
    room: Room | None = ROOM,
    settings: RotatedHeadSettings = _DEFAULTS,
) -> tuple[Array, Complex]:
    """Return every n-th of the paper's directions (N, 2) and the spectra at both ears (N, 2, F).

    The head rotates, not the source: every reflection keeps its delay and rotates with the direct
    sound. `room` None is anechoic.
    """
    f = CueLayout().frequencies_hz
    x = _directions(every)
    ears = head.responses()
    H = transfer_functions(ears.samples, ears.rate, f)
    Y, m = _harmonics(head.directions, settings.order)
    c = np.linalg.lstsq(Y, H.reshape(len(head), -1), rcond=None)[0]
    ahead = np.array([settings.distance_metres, 0.0, 0.0])
    offsets, amplitudes = (ahead[None], np.ones(1)) if room is None else image_sources(room, ahead)
    metres = np.linalg.norm(offsets, axis=1)
    delays = (metres - settings.distance_metres) / SPEED_OF_SOUND
    early = delays < settings.early_seconds
    gains = (amplitudes * settings.distance_metres / metres)[early, None]
    arrivals = gains * np.exp(-2j * np.pi * delays[early, None] * f)  # (I, F)
    orders, starts = np.unique(m, return_index=True)
    turns = np.exp(1j * np.radians(np.outer(x[:, 0, 0], orders)))
    spectra = np.empty((*x.shape[:2], 2, len(f)), dtype=np.complex128)
    for row, tilt in enumerate(np.radians(x[0, :, 1])):
        cos, sin = np.cos(tilt), np.sin(tilt)
        lift = np.array([[cos, 0, -sin], [0, 1, 0], [sin, 0, cos]])
        Y_tilted, _ = _harmonics(to_directions(offsets[early] @ lift.T), settings.order)
        arriving = Y_tilted.T @ arrivals  # (S, F)
        by_order = np.add.reduceat(np.tile(arriving, 2) * c, starts, axis=0)
        spectra[:, row] = (turns @ by_order).reshape(len(x), 2, -1)
    return x.reshape(-1, 2), spectra.reshape(-1, 2, len(f))


def simulated_camil(
    every: int = 1, room: Room | None = ROOM, settings: RotatedHeadSettings = _DEFAULTS
) -> Head:
    """Return the simulated head in a room, or anechoic, at every n-th of the paper's directions."""
    layout = CueLayout()
    head = simulated_head(Sphere().grid(settings.lattice_degrees))
    x, ear_spectra = rotated_head_spectra(head, every, room, settings)
    # The value at 0 Hz is arbitrary, because no cue uses it.
    spectra = np.concatenate([np.abs(ear_spectra[..., :1]), ear_spectra], axis=-1)
    return _head(x, np.fft.irfft(spectra, layout.window))


def _head(directions: Array, samples: Array) -> Head:
    return Head(
        name="simulated-room",
        directions=directions,
        ears=ImpulseResponses(samples, float(CueLayout().rate)),
        licence="MIT, as this package",
        provenance="the simulated head rotated in front of a loudspeaker in a simulated room",
    )


@lru_cache(maxsize=2)
def simulated_camil_arrays(every: int = 1) -> dict[str, Single]:
    """Return `samples` (N, 2, taps) of the head in the room and its `cues` (N, D) in ALL_CUES.

    They are read from the cache folder, or made and stored there.
    """
    name = f"simulated-room-{every}-{code_hash(_make_arrays)}"
    return cached_arrays(name, lambda: _make_arrays(every))


def _make_arrays(every: int) -> dict[str, Single]:
    samples = simulated_camil(every).responses().samples.astype(np.float32)
    cues = recorded_noise_cues(samples.astype(np.float64))
    return {"samples": samples, "cues": cues.astype(np.float32)}


def recorded_noise_cues(
    samples: Array, settings: RotatedHeadSettings = _DEFAULTS, seed: int = 0
) -> Array:
    """Return the mean cues (N, D) of a recording of white noise per direction, in ALL_CUES.

    Every direction has noise of its own, and background noise that is independent at the two ears.
    """
    rate, taps = CueLayout().rate, samples.shape[-1]
    n = round(settings.noise_seconds * rate)
    cues = np.empty((len(samples), ALL_CUES.n_cues))
    for i, response in enumerate(samples):
        rng = np.random.default_rng((seed, i))
        filtered = oaconvolve(rng.normal(size=(1, n + taps)), response, axes=1)[:, taps : taps + n]
        background = rng.normal(size=filtered.shape)
        background *= np.sqrt(np.mean(filtered**2)) * 10 ** (-settings.snr_db / 20)
        cues[i] = mean_cues(Audio(filtered + background, rate), ALL_CUES)
    return cues


def cached_simulated_camil(every: int = 1) -> Head:
    """Return `simulated_camil(every)` in single precision, from the cache folder if possible."""
    samples = simulated_camil_arrays(every)["samples"].astype(np.float64)
    return _head(_directions(every).reshape(-1, 2), samples)
