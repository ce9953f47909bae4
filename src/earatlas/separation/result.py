"""Results of a separation: the sources of a recording, their directions and their signals.

A `Scene` holds the signal and the mask of every source in memory. A `SceneSummary` is the same
without signals and masks, for separations whose signals were written to files.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from earatlas.features.audio import Audio
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.localization.diagnostics import Doubt
from earatlas.separation.source_track import SourceLevels, SourceTrack, static_track
from earatlas.separation.spectrogram_summary import SpectrogramSummary
from earatlas.types import Array, Single
from earatlas.wording import UNKNOWN_DIRECTION, is_unknown

__all__ = ["Evidence", "LocatedSource", "Scene", "SceneSummary", "Source", "SourceSummary"]


@dataclass(frozen=True)
class Evidence:
    """Evidence for a source; NaN where its onsets were not analysed."""

    residual_ratio: float  # residual of the anechoic model; above 1 it does not fit
    onset_bins: float = math.nan  # expected number of its onset bins
    nats_per_bin: float = math.nan  # directional information of these, over diffuse sound
    gain: float = math.nan  # nats per onset of the recording that the source adds
    direct: bool = False  # whether the posterior is that of the onsets

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; None where the onsets were not analysed."""
        numbers = {
            "misfit": self.residual_ratio,
            "onset_bins": self.onset_bins,
            "nats_a_bin": self.nats_per_bin,
            "gain": self.gain,
        }
        rounded = {k: round(v, 3) if math.isfinite(v) else None for k, v in numbers.items()}
        return {**rounded, "direct": self.direct}


@dataclass(frozen=True, eq=False)
class LocatedSource:
    """The direction posterior of one source, with the evidence for it and doubts about it."""

    posterior: DirectionPosterior
    evidence: Evidence
    doubts: tuple[Doubt, ...]

    def track(self, levels: SourceLevels, m: int) -> SourceTrack:
        """Return the track of source m, which is static."""
        return static_track(self.posterior, levels, m)


@dataclass(frozen=True, eq=False)
class SourceSummary:
    """One source of a scene, without its signal.

    Attributes
    ----------
    name : str
        "source1", "source2", … .
    posterior : DirectionPosterior
        Posterior of its direction.
    share : float
        Fraction of the mixture's energy in its mask; the fractions of all sources sum to 1.
    track : SourceTrack
        Direction and level over time.
    evidence : Evidence
        Evidence that the source exists.
    doubts : tuple of Doubt
        Caveats about this source, each with the measured value and a remedy.
    """

    name: str
    posterior: DirectionPosterior  # posterior of the direction
    share: float  # fraction of the mixture's energy in its mask; all sources sum to 1
    track: SourceTrack = field(kw_only=True, repr=False)  # direction and level over time
    evidence: Evidence = field(kw_only=True, default=Evidence(math.nan))
    doubts: tuple[Doubt, ...] = field(kw_only=True, default=())  # caveats about this source

    def __repr__(self) -> str:
        where = f"({', '.join(f'{v:.1f}' for v in self.direction)}) degrees"
        where = where if self.direction_known else UNKNOWN_DIRECTION
        share = f"{100 * self.share:.0f} % of the energy"
        return f"{type(self).__name__}({self.name!r}, {where}, {share})"

    @property
    def direction_known(self) -> bool:
        """Whether the 90 % radius is small enough for the direction to be informative."""
        return not is_unknown(self.radius_90, self.posterior.space)

    @cached_property
    def direction(self) -> Array:
        """Most probable direction (C,), in degrees."""
        return self.posterior.best

    @cached_property
    def credible_90_area(self) -> float:
        """Size of the 90 % credible region, in square degrees (degrees on a circle)."""
        return self.posterior.credible_area(0.9)

    @cached_property
    def radius_90(self) -> float:
        """Distance from `direction` within which the source lies with 90 % probability, degrees."""
        return self.posterior.radius_90

    @property
    def moves(self) -> bool:
        """Whether the direction changes over time."""
        return self.track.moves

    def to_dict(self) -> dict[str, Any]:
        """Return the source as plain JSON values.

        Returns
        -------
        dict
            Keys `name`, `direction` (degrees), `share`, `radius_90` (degrees), `credible_90_area`
            (square degrees), `moves`, `track` (one entry per row), `evidence` and `doubts`.
        """
        radius, area = self.posterior.rounded_region_size(0.9)
        return {
            "name": self.name,
            "direction": [round(float(v), 2) for v in self.direction],
            "share": round(self.share, 4),
            "radius_90": radius,
            "credible_90_area": area,
            "moves": self.moves,
            "track": self.track.rows(),
            "evidence": self.evidence.to_dict(),
            "doubts": [str(doubt) for doubt in self.doubts],
        }


@dataclass(frozen=True, eq=False, repr=False)
class Source(SourceSummary):
    """One source of a scene, with its signal.

    Attributes
    ----------
    name : str
        "source1", "source2", … .
    posterior : DirectionPosterior
        Posterior of its direction.
    share : float
        Fraction of the mixture's energy in its mask; the fractions of all sources sum to 1.
    audio : Audio
        The separated signal at both ears.
    mask : ndarray of float32, shape (F, T)
        Soft mask of the bins above 0 Hz.
    track : SourceTrack
        Direction and level over time.
    evidence : Evidence
        Evidence that the source exists.
    doubts : tuple of Doubt
        Caveats about this source, each with the measured value and a remedy.

    Examples
    --------
    >>> import earatlas as ea
    >>> head = ea.simulated_head([[-40, 0], [40, 0]])
    >>> voices = [ea.synthetic_speech(0.6, seed=m) for m in range(2)]
    >>> mixture = ea.render_scene(head, voices, [[-40, 0], [40, 0]]).mixture
    >>> scene = ea.example_atlas().separate(mixture, n_sources=2, rendering="soft")
    >>> source = scene.sources[0]
    >>> source.name, source.moves, source.audio.samples.shape[0], source.mask.shape[0]
    ('source1', False, 2, 512)
    """

    audio: Audio  # both ears
    mask: Single = field(repr=False)  # (F, T) of the bins above 0 Hz


@dataclass(frozen=True, eq=False)
class SceneSummary:
    """The sources of a recording without their signals.

    Attributes
    ----------
    sources : tuple of SourceSummary
        The source with most coherent bins comes first.
    spectrogram : SpectrogramSummary
        Spectrograms of the mixture and the masks in bounded size.
    free_energies : tuple of float
        Free energy of VESSL after each iteration in nats; it does not decrease.
    seconds : float
        Duration of the recording.
    rate : int
        Sampling rate of the separated signals in Hz.
    doubts : tuple of Doubt
        Caveats that concern all sources.
    dry : bool
        Whether late reverberation was reduced; the signals then do not sum to the mixture.
    """

    sources: tuple[SourceSummary, ...]
    spectrogram: SpectrogramSummary
    free_energies: tuple[float, ...]  # one per iteration of VESSL; does not decrease
    seconds: float
    rate: int  # Hz, of the separated signals
    doubts: tuple[Doubt, ...] = field(kw_only=True, default=())  # caveats about all sources
    dry: bool = field(kw_only=True, default=False)  # late reverberation was reduced

    def __repr__(self) -> str:
        places = ", ".join(
            f"({', '.join(f'{v:.0f}' for v in s.direction)})" if s.direction_known else "(unknown)"
            for s in self.sources
        )
        name = type(self).__name__
        return f"{name}({self.seconds:.1f} s, {len(self.sources)} sources at {places} degrees)"

    @property
    def directions(self) -> Array:
        """Most probable directions (M, C), in degrees."""
        return np.stack([source.direction for source in self.sources])


@dataclass(frozen=True, eq=False, repr=False)
class Scene(SceneSummary):
    """The separated sources of a recording in memory.

    The signals sum to the mixture, unless `dry` is set.

    Attributes
    ----------
    sources : tuple of Source
        The sources with their signals; the one with most coherent bins comes first.
    spectrogram : SpectrogramSummary
        Spectrograms of the mixture and the masks in bounded size.
    free_energies : tuple of float
        Free energy of VESSL after each iteration in nats; it does not decrease.
    seconds : float
        Duration of the recording.
    rate : int
        Sampling rate of the separated signals in Hz.
    mixture : Audio
        The recording at the rate of the separated signals.
    doubts : tuple of Doubt
        Caveats that concern all sources.
    dry : bool
        Whether late reverberation was reduced; the signals then do not sum to the mixture.

    Examples
    --------
    >>> import numpy as np
    >>> import earatlas as ea
    >>> head = ea.simulated_head([[-40, 0], [40, 0]])
    >>> voices = [ea.synthetic_speech(0.6, seed=m) for m in range(2)]
    >>> mixture = ea.render_scene(head, voices, [[-40, 0], [40, 0]]).mixture
    >>> scene = ea.example_atlas().separate(mixture, n_sources=2, rendering="soft")
    >>> total = sum(source.audio.samples for source in scene.sources)
    >>> bool(np.allclose(total, scene.mixture.samples))
    True
    """

    sources: tuple[Source, ...]
    mixture: Audio  # the recording at the rate of the separated signals

    @property
    def masks(self) -> Single:
        """Soft masks (M, F, T)."""
        return np.stack([source.mask for source in self.sources])
