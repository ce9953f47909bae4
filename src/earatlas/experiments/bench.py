"""What experiments are run on: a head on the paper's plane, and the training sets T1 and T2.

In: a `Bench`, which is small and can be sent to another process. Out: the head and all that is
made from it, once a process. Without files the head is the simulated one at the 10,800 directions
of the paper's CAMIL recordings (`simulated`, in the open; `simulated-room`, turned in a room).

    T1   every direction within azimuth ±160 and elevation ±60 degrees: the paper's 9,600
    T2   as many of them, at random, as make the spacing 5 degrees: the paper's 1,530
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.errors import InputError
from earatlas.experiments.simulated_camil import simulated_camil
from earatlas.features.layout import CueLayout
from earatlas.geometry.angles import azimuth_error, elevation_error
from earatlas.geometry.spaces import Cylinder, Space, Sphere
from earatlas.hrtf.head import Head, ImpulseResponses
from earatlas.hrtf.loading import open_head
from earatlas.hrtf.simulated import camil_directions, simulated_head
from earatlas.types import Array, Indices

__all__ = ["BUILT_IN_HEADS", "LAYOUTS", "PAGE_HEADS", "Bench", "errors_of"]


LAYOUTS = {
    "ILD": CueLayout(ipd_band_hz=None),
    "IPD": CueLayout.low_ipd(),
    "ILPD": CueLayout(),
}
BUILT_IN_HEADS = ("simulated", "simulated-room")
PAGE_HEADS = ("simulated", "ku100", "cipic_003", "cipic_021")  # that findings speak of
_SPLITS = 17  # no split that settings were chosen on (benchmarks/protocol.py has seeds alone)
_FEWEST = 200  # directions on the plane
_T2_DEGREES = 5.0


@dataclass(frozen=True)
class Bench:
    """A head, a folder of speech, and how thoroughly to measure."""

    head: str = "simulated"
    speech: Path | None = None
    quick: bool = False
    share: float = 1.0  # of the paper's repetitions

    def repeats(self, paper: int, quick: int = 1) -> int:
        """How often to repeat what the paper repeats so many times."""
        return quick if self.quick else max(round(self.share * paper), 1)

    @property
    def whole(self) -> Head:
        """The head with all its directions."""
        return _whole(self.head, self.quick)

    @property
    def plane(self) -> Head:
        """The head's directions on the paper's plane."""
        return _plane(self.head, self.quick)

    @property
    def on_grid(self) -> bool:
        """Whether it is the head that stands for CAMIL."""
        return self.head in BUILT_IN_HEADS

    @property
    def space(self) -> Space:
        """Where all its directions live: CAMIL's on a cylinder."""
        return Cylinder() if self.on_grid else Sphere()

    @cached_property
    def about(self) -> dict[str, Any]:
        """Name, size and a fingerprint: a file that has changed is another data set."""
        head = self.whole
        ears = head.ears
        values = ears.samples if isinstance(ears, ImpulseResponses) else ears.values
        digest = hashlib.sha256(head.directions.tobytes() + values.tobytes()).hexdigest()
        return {"head": head.name, "directions": len(head), "fingerprint": digest[:8]}

    def cues(self, cue: str = "ILPD") -> Array:
        """Mean interaural vectors (N, D) on the plane."""
        return _cues(self.head, self.quick, cue)

    def halves(self, seed: int) -> tuple[Indices, Indices]:
        """Which directions of the plane to learn, and which to ask for.

        Half of them each, as in the paper; heads with fewer than 4,000 learn four fifths, or the
        paper's 64 components would have a dozen directions each.
        """
        N = len(self.plane)
        order = np.random.default_rng((_SPLITS, seed)).permutation(N)
        cut = N // 2 if N > 4000 else 4 * N // 5
        return order[:cut], order[cut:]

    def decimated(self, degrees: float, seed: int) -> tuple[Indices, Indices]:
        """A random subset with about this spacing, at most four fifths, and the rest."""
        N, spacing = len(self.plane), self.plane.spacing_degrees
        if self.on_grid:  # in pan and tilt, as the paper counts
            spacing = 6.0 if self.quick else 2.0
        share = min((spacing / degrees) ** 2, 0.8)
        order = np.random.default_rng((seed, round(100 * degrees))).permutation(N)
        return order[: round(share * N)], order[round(share * N) :]

    def training_set(self, name: str) -> tuple[Indices, Indices]:
        """T1 or T2, and the directions that T2 does not have."""
        degrees = _T2_DEGREES if not (self.quick and self.on_grid) else 3 * _T2_DEGREES
        known, asked = self.decimated(degrees, 0)
        return (np.arange(len(self.plane)) if name == "T1" else known), asked


@lru_cache(maxsize=2)
def _whole(head: str, quick: bool) -> Head:
    every = 3 if quick else 1
    if head == "simulated":
        x = camil_directions().reshape(180, 60, 2)[::every, every // 2 :: every]
        return simulated_head(x.reshape(-1, 2))
    if head == "simulated-room":
        return simulated_camil(every)
    path = Path(head)
    table = path / "positions.csv"
    return open_head(table if path.is_dir() and table.is_file() else head)


@lru_cache(maxsize=2)
def _plane(head: str, quick: bool) -> Head:
    whole = _whole(head, quick)
    azimuth, elevation = np.abs(whole.directions).T
    inside = whole.subset((azimuth <= 160) & (elevation <= 60))
    if len(inside) < _FEWEST or inside.space.dims != 2:
        raise InputError(
            f"head must have at least {_FEWEST} directions at several elevations within azimuth "
            f"±160 and elevation ±60, got {len(inside)} of '{whole.name}'. Use a head that was "
            "measured all round."
        )
    return inside


@lru_cache(maxsize=4)
def _cues(head: str, quick: bool, cue: str) -> Array:
    return _plane(head, quick).cues(LAYOUTS[cue])


def errors_of(true: Array, found: Array) -> tuple[Array, Array]:
    """Absolute azimuth and elevation errors (N,) of answers on the plane, which has no ends."""
    on_sphere = np.clip(found, (-180, -90), (180, 90))
    return azimuth_error(true, on_sphere), elevation_error(true, on_sphere)
