"""A stand-in for the paper's CAMIL recordings: a head, turned in a simulated room.

In: a head, every how many azimuths and elevations, and the room. Out: what both ears hear at the
paper's 10,800 directions; of the simulated head, as a `Head` of binaural room responses. As there,
a loudspeaker stands 2.7 m before a head that pans and tilts: every reflection keeps its delay and
strength, and its direction turns with the direct sound. Reflections of the first 50 ms are in,
which the window of 64 ms holds; later ones are not.

    H (N, 2, F)   transfer functions of the head in the open = Y c, by least squares
    Y (N, S)      spherical harmonics; a turn in azimuth multiplies order m by exp(j m azimuth)
    c (S, 2, F)   their coefficients
"""

from __future__ import annotations

import numpy as np
from scipy.special import sph_harm_y

from earatlas.features.cues import transfer_functions
from earatlas.features.layout import CueLayout
from earatlas.geometry.angles import to_directions
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.head import Head, ImpulseResponses
from earatlas.hrtf.simulated import SPEED_OF_SOUND, camil_directions, simulated_head
from earatlas.simulation.image_source import Room, image_sources
from earatlas.types import Array, Complex, Indices

__all__ = ["simulated_camil", "turned_spectra"]


ROOM = Room((7.0, 6.0, 3.0), t60_seconds=0.5, listener_metres=(3.1, 2.3, 1.4))
_METRES = 2.7
_EARLY_SECONDS = 0.05
# Of the harmonics. Of the simulated head what they leave over is 150 dB down at 4 kHz, 30 dB at
# 8 kHz; of ku100's 2702 responses 40 dB at 1 kHz, 26 dB at 8 kHz.
_ORDER = 30
_LATTICE_DEGREES = 5.0


def _harmonics(directions: Array) -> tuple[Complex, Indices]:
    """Spherical harmonics (N, S) at directions, sorted by their order m, and these (S,)."""
    pairs = [(m, n) for m in range(-_ORDER, _ORDER + 1) for n in range(abs(m), _ORDER + 1)]
    m, n = np.array(pairs).T
    azimuth, elevation = np.radians(directions).T
    return sph_harm_y(n, m, np.pi / 2 - elevation[:, None], azimuth[:, None]), m


def turned_spectra(head: Head, every: int = 1, room: Room | None = ROOM) -> tuple[Array, Complex]:
    """Every so many of the paper's directions (N, 2), and what both ears hear there (N, 2, F).

    The head turns, not the source: every reflection keeps its delay and turns with the direct
    sound. `room` None is the head in the open.
    """
    f = CueLayout().frequencies_hz
    x = camil_directions().reshape(180, 60, 2)[::every, every // 2 :: every]
    ears = head.responses()
    H = transfer_functions(ears.samples, ears.rate, f)
    Y, m = _harmonics(head.directions)
    c = np.linalg.lstsq(Y, H.reshape(len(head), -1), rcond=None)[0]
    ahead = np.array([_METRES, 0.0, 0.0])
    offsets, shares = (ahead[None], np.ones(1)) if room is None else image_sources(room, ahead)
    metres = np.linalg.norm(offsets, axis=1)
    delays = (metres - _METRES) / SPEED_OF_SOUND
    early = delays < _EARLY_SECONDS
    gains = (shares * _METRES / metres)[early, None]
    heard = gains * np.exp(-2j * np.pi * delays[early, None] * f)  # (I, F)
    orders, starts = np.unique(m, return_index=True)
    turns = np.exp(1j * np.radians(np.outer(x[:, 0, 0], orders)))
    spectra = np.empty((*x.shape[:2], 2, len(f)), dtype=np.complex128)
    for row, tilt in enumerate(np.radians(x[0, :, 1])):
        cos, sin = np.cos(tilt), np.sin(tilt)
        lift = np.array([[cos, 0, -sin], [0, 1, 0], [sin, 0, cos]])
        arriving = _harmonics(to_directions(offsets[early] @ lift.T))[0].T @ heard  # (S, F)
        by_order = np.add.reduceat(np.tile(arriving, 2) * c, starts, axis=0)
        spectra[:, row] = (turns @ by_order).reshape(len(x), 2, -1)
    return x.reshape(-1, 2), spectra.reshape(-1, 2, len(f))


def simulated_camil(every: int = 1, room: Room | None = ROOM) -> Head:
    """The head in a room, or in the open, at every so many of the paper's directions."""
    layout = CueLayout()
    x, heard = turned_spectra(simulated_head(Sphere().grid(_LATTICE_DEGREES)), every, room)
    # 0 Hz is in no cue.
    spectra = np.concatenate([np.abs(heard[..., :1]), heard], axis=-1)
    return Head(
        name="simulated-room",
        directions=x,
        ears=ImpulseResponses(np.fft.irfft(spectra, layout.window), float(layout.rate)),
        licence="MIT, as this package",
        provenance="the simulated head turned before a loudspeaker in a simulated room",
    )
