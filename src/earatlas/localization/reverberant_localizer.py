"""Hearing in rooms: the direct sound's posterior, joined with what the open-air model believes.

In: a recording's onsets and the open-air posterior. Out: one posterior that holds in the open, in noise
and in rooms that were never learned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from earatlas.features.onset_detector import Gate, OnsetBins
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Space, Sphere
from earatlas.hrtf.interaural_templates import Templates
from earatlas.localization.onset_likelihood import LEVELS, N_CLASSES, DirectSound
from earatlas.localization.score_calibration import BETAS, WIDTHS, Trust
from earatlas.ppam.posterior_batch import Judged
from earatlas.types import Array

__all__ = ["RoomHearing"]

_FEWEST_BINS = 20  # that say anything
_NONE, _ALL = 0.01, 0.99  # shares of the open-air posterior that are as good as none and all


@dataclass(frozen=True, eq=False)
class RoomHearing:
    """What a head needs to be used in any room."""

    sound: DirectSound
    trust: Trust  # of one sound
    crowd: Trust | None = None  # of one among others; None: an atlas of before it was measured
    doubted: float = 1.0  # misfit up to which the open-air answer is taken as it is

    def joined(
        self,
        opened: DirectionPosterior,
        misfit: float,
        onsets: OnsetBins,
        turns: Array | None = None,
    ) -> tuple[DirectionPosterior, float]:
        """The open-air posterior and that of the onsets in the proportion that was found to be best.

        `misfit` is that of the open-air model, in units of what is usual. Where that is no more
        than usual the sound is as it was learned, and nothing is mixed in: in the open the answers
        are those of the model alone, which is the better one there. (Of a head with too few
        directions to measure how sure it may be, nothing is usual: `doubted` is 0.)
        `turns` (B,): how far the head is turned in each bin, in degrees.

        The second value is what an onset tells of the best direction, in nats; NaN if nobody asked.
        """
        if not self._asks(misfit, onsets):
            return opened, math.nan
        sound = self.sound
        look = sound.look(onsets) if turns is None else sound.turned_look(onsets, turns)
        share, nats = self.trust.open_share(look.features, misfit), float(look.features[0])
        if share > _ALL:
            return opened, nats
        return _mixed(opened, self.trust.posterior(sound.space, look), share), nats

    def joined_many(
        self, opened: Judged, onsets: Sequence[OnsetBins]
    ) -> list[tuple[DirectionPosterior, float]]:
        """The same of many sounds that overlap, whose onsets are all given, in order of time."""
        asked = [
            n for n, misfit in enumerate(opened.misfits) if self._asks(float(misfit), onsets[n])
        ]
        shares, nats = np.ones(len(onsets)), np.full(len(onsets), math.nan)
        posteriors: dict[int, DirectionPosterior] = {}
        if asked:
            most = self.sound.gate.most_bins
            looks = self.sound.looks([onsets[n].by_frequency().strongest(most) for n in asked])
            for n, look in zip(asked, looks, strict=True):
                shares[n] = self.trust.open_share(look.features, float(opened.misfits[n]))
                nats[n] = look.features[0]
            told = [(n, look) for n, look in zip(asked, looks, strict=True) if shares[n] <= _ALL]
            own = self.trust.posteriors(self.sound.space, [look for _, look in told])
            posteriors = dict(zip([n for n, _ in told], own, strict=True))
        wanted = np.flatnonzero(shares >= _NONE)
        for n, posterior in zip(wanted.tolist(), opened.posteriors(wanted), strict=True):
            posteriors[n] = (
                _mixed(posterior, posteriors[n], shares[n]) if n in posteriors else posterior
            )
        return [(posteriors[n], float(nats[n])) for n in range(len(onsets))]

    def _asks(self, misfit: float, onsets: OnsetBins) -> bool:
        """Whether onsets have something to say beside the open-air model."""
        return misfit > self.doubted and len(onsets) >= _FEWEST_BINS

    def to_arrays(self) -> dict[str, Array]:
        """All numbers, for a file; `from_arrays` is the inverse."""
        sound, trust = self.sound, self.trust
        return {
            "rooms.directions": sound.templates.directions,
            "rooms.level_db": sound.templates.level_db,
            "rooms.delay_seconds": sound.templates.delay_seconds,
            "rooms.phase_radians": sound.templates.phase_radians,
            "rooms.whiten": np.stack([sound.whiten.real, sound.whiten.imag]),
            "rooms.log_densities": sound.log_densities.astype(np.float64),
            **{f"rooms.{name}": array for name, array in _numbers(trust)},
            **{f"rooms.crowd_{name}": array for name, array in _numbers(self.crowd)},
        }

    def to_dict(self) -> dict[str, Any]:
        """What else there is, as JSON values."""
        sound = self.sound
        return {
            "gate": asdict(sound.gate),
            "spacing_degrees": sound.spacing_degrees,
            "doubted": self.doubted,
        }

    @classmethod
    def from_arrays(
        cls, space: Space, arrays: dict[str, Array], about: dict[str, Any]
    ) -> RoomHearing:
        """What `to_arrays` and `to_dict` described; a ValueError if its parts do not fit."""
        mine = {name[6:]: value for name, value in arrays.items() if name.startswith("rooms.")}
        gate = Gate(**about["gate"])
        F, N = len(gate.rows), len(mine["directions"])
        whiten = mine["whiten"][0] + 1j * mine["whiten"][1]
        shapes = {
            "level_db": (N, F),
            "phase_radians": (N, F),
            "delay_seconds": (N,),
            "log_densities": (N_CLASSES, LEVELS),
        }
        if not (
            whiten.shape == (F, 2, 2)
            and all(mine[k].shape == s for k, s in shapes.items())
            and all(np.isfinite(array).all() for array in mine.values())
            and 0 < float(about["spacing_degrees"]) <= 180
        ):
            raise ValueError("its parts for rooms do not fit each other")
        Sphere().check(mine["directions"])
        templates = Templates(
            mine["directions"],
            gate.frequencies_hz,
            mine["level_db"],
            mine["delay_seconds"],
            mine["phase_radians"],
        )
        sound = DirectSound(
            space=space,
            templates=templates,
            spacing_degrees=float(about["spacing_degrees"]),
            whiten=whiten,
            log_densities=mine["log_densities"].astype(np.float32),
            gate=gate,
        )
        crowd = _trust(mine, "crowd_") if "crowd_shares" in mine else None
        return cls(sound, _trust(mine), crowd, float(about["doubted"]))

    def rounded(self) -> RoomHearing:
        """The same in numbers that float32 holds: half the file, and saving loses nothing."""
        arrays = {
            name: array.astype(np.float32).astype(np.float64)
            for name, array in self.to_arrays().items()
        }
        return RoomHearing.from_arrays(self.sound.space, arrays, self.to_dict())


def _numbers(trust: Trust | None) -> list[tuple[str, Array]]:
    """The arrays of a trust by name; none of none."""
    return [] if trust is None else [(f.name, getattr(trust, f.name)) for f in fields(trust)]


def _trust(arrays: dict[str, Array], prefix: str = "") -> Trust:
    """The trust whose arrays have these names; a ValueError if they do not fit."""
    mine = {field.name: arrays[prefix + field.name] for field in fields(Trust)}
    n = len(mine["shares"])
    shapes = {
        "features": (n, 3),
        "scale": (3,),
        "shares": (n, len(BETAS), len(WIDTHS)),
        "weights": (4,),
    }
    if not (
        all(mine[name].shape == shape for name, shape in shapes.items())
        and min(mine["scale"].min(), mine["shares"].sum(axis=(1, 2)).min()) > 0
        and mine["shares"].min() >= 0
    ):
        raise ValueError("what it says of trust does not fit")
    return Trust(**mine)


def _mixed(a: DirectionPosterior, b: DirectionPosterior, share: float) -> DirectionPosterior:
    """share a + (1 - share) b; a share that is as good as none is none."""
    if share < _NONE:
        return b
    a = a.pruned(1e-9)

    def both(x: Array, y: Array) -> Array:
        return np.concatenate([x, y])

    return DirectionPosterior(
        a.space,
        both(a.centres, b.centres),
        both(share * a.weights, (1 - share) * b.weights),
        both(a.means, b.means),
        both(a.covariances, b.covariances),
    )
