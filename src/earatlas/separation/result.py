"""Results of a separation: the sources of a recording, their directions and their signals.

A `Scene` holds the signal and the mask of every source in memory. A `SceneSummary` is the same
without signals and masks, for separations whose signals were written to files.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from earatlas.errors import InputError, check_path
from earatlas.features.audio import Audio
from earatlas.files import atomic_write_all
from earatlas.geometry.alternatives import Alternative
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.lateral_angle import LateralAngle
from earatlas.localization.diagnostics import Doubt
from earatlas.notebooks import HtmlView, data_frame
from earatlas.types import Array, Mask, Single
from earatlas.wording import (
    UNKNOWN_DIRECTION,
    coordinate_names,
    format_position,
    is_unknown,
    repr_alternatives,
    repr_doubts,
    unit_field,
)

if TYPE_CHECKING:
    import pandas

__all__ = [
    "Evidence",
    "Scene",
    "SceneSummary",
    "Source",
    "SourceSummary",
    "SourceTrack",
    "SpectrogramSummary",
]


@dataclass(frozen=True)
class Evidence:
    """Evidence for a source; NaN where it is not known."""

    residual_ratio: float  # residual of the anechoic model; above 1 it does not fit; NaN if moving
    onset_bins: float = math.nan  # expected number of its onset bins
    nats_per_bin: float = math.nan  # directional information of these, over diffuse sound
    gain: float = math.nan  # nats per onset of the recording that the source adds
    direct: bool = False  # whether the posterior is that of the onsets

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; None where they are not known."""
        numbers = {
            "misfit": self.residual_ratio,
            "onset_bins": self.onset_bins,
            "nats_a_bin": self.nats_per_bin,
            "gain": self.gain,
        }
        rounded = {k: round(v, 3) if math.isfinite(v) else None for k, v in numbers.items()}
        return {**rounded, "direct": self.direct}


@dataclass(frozen=True, eq=False)
class SourceTrack:
    """Direction and level of a source in W rows of time; NaN where it is silent."""

    seconds: Array  # (W,) centre of each row
    directions: Array  # (W, C) degrees; NaN where the source is silent
    radius_90: Array  # (W,) degrees that hold it with a probability of 90 %; NaN where silent
    level_db: Array  # (W,) dB re a full-scale sine in both ears
    moves: bool = False  # whether the direction changes over time

    def __repr__(self) -> str:
        motion = "moving" if self.moves else "static"
        return (
            f"SourceTrack({len(self.seconds)} rows, active in {int(self.active.sum())}, {motion})"
        )

    @property
    def active(self) -> Mask:
        """Whether the source is active, and so has a direction, in each row (W,)."""
        return np.asarray(np.isfinite(self.directions).all(axis=1))

    def rows(self) -> list[dict[str, Any]]:
        """Return plain JSON values, one entry per row; None where the source is silent."""
        return [
            {
                "time": round(float(self.seconds[w]), 3),
                "direction": [round(float(v), 2) for v in self.directions[w]] if active else None,
                "radius_90": round(float(self.radius_90[w]), 2) if active else None,
                "level_db": round(float(self.level_db[w]), 1),
            }
            for w, active in enumerate(self.active)
        ]


@dataclass(frozen=True, eq=False)
class SourceSummary(HtmlView):
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
    given : bool
        Whether the direction was given and not estimated.
    number : int, optional
        Its number in pictures, counted from 0, which determines its colour; by default its
        position in the scene.
    """

    name: str
    posterior: DirectionPosterior  # posterior of the direction
    share: float  # fraction of the mixture's energy in its mask; all sources sum to 1
    track: SourceTrack = field(kw_only=True, repr=False)  # direction and level over time
    evidence: Evidence = field(kw_only=True, default=Evidence(math.nan))
    doubts: tuple[Doubt, ...] = field(kw_only=True, default=())  # caveats about this source
    given: bool = field(kw_only=True, default=False)  # the direction was given, not estimated
    number: int | None = field(kw_only=True, default=None, repr=False)  # in pictures, from 0

    def __repr__(self) -> str:
        unit = f" {self.posterior.space.unit_name}".rstrip()
        place = ", ".join(f"{v:.1f}" for v in self.direction)
        radius = "given" if self.given else f"radius_90 {self.radius_90:.1f}"
        where = f"({place}){unit}, {radius}"
        where = where if self.direction_known else UNKNOWN_DIRECTION
        where += repr_alternatives(
            self.alternatives, self.radius_90, self.posterior.space, self.lateral_angle
        )
        share = f"{100 * self.share:.0f} % of the energy"
        doubts = repr_doubts(doubt.word for doubt in self.doubts)
        return f"{type(self).__name__}({self.name!r}, {where}, {share}{doubts})"

    @property
    def direction_known(self) -> bool:
        """Whether the 90 % radius is small enough for the direction to be informative.

        The posterior of a moving source covers its whole path; the radii along the path count.
        """
        track = self.track
        radius = float(np.nanmedian(track.radius_90)) if self.moves else self.radius_90
        return not is_unknown(radius, self.posterior.space)

    @cached_property
    def direction(self) -> Array:
        """Most probable direction (C,), in degrees."""
        return self.posterior.direction

    def describe_place(self) -> str:
        """Return the direction in words; of a moving source, both ends of its path.

        Returns
        -------
        str
            The direction, such as "30° left, 10° up, front".
        """
        space, track = self.posterior.space, self.track
        if not self.moves:
            return format_position(space, self.direction, self.radius_90)
        path = track.directions[track.active]
        return f"{format_position(space, path[0])} → {format_position(space, path[-1])}"

    @cached_property
    def alternatives(self) -> tuple[Alternative, ...]:
        """The possible directions with their probabilities; `direction` is that of the first.

        The posterior of a moving source has peaks along its path, which are no alternatives: there
        is one.
        """
        if self.moves:
            return (Alternative(self.direction, 1.0, self.radius_90),)
        return self.posterior.alternatives

    @property
    def lateral_angle(self) -> LateralAngle | None:
        """Angle from the median plane, positive on the left, with its own 90 % radius.

        It is often known where front, back and height are not. None if the source moves, or if the
        atlas has no directions.
        """
        return None if self.moves else self.posterior.lateral_angle

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
            (square degrees), `alternatives`, `lateral_angle`, `given`, `moves`, `track` (one entry
            per row), `evidence` and `doubts`.
        """
        radius, area = self.posterior.rounded_region_size(0.9)
        return {
            "name": self.name,
            "direction": [round(float(v), 2) for v in self.direction],
            "share": round(self.share, 4),
            "radius_90": radius,
            "credible_90_area": area,
            **unit_field(self.posterior.space),
            "alternatives": [one.to_dict() for one in self.alternatives],
            "lateral_angle": self.lateral_angle and self.lateral_angle.to_dict(),
            "given": self.given,
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
    given : bool
        Whether the direction was given and not estimated.
    number : int, optional
        Its number in pictures, counted from 0, which determines its colour; by default its
        position in the scene.

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
class SpectrogramSummary:
    """Spectrograms of a scene; a cell is the mean of its bins, NaN where none was observed."""

    seconds: Array  # (T',) time of each column
    frequencies_hz: Array  # (F',)
    level_db: Array  # (F', T') of both ears, dB re a full-scale sine
    ild_db: Array  # (F', T') interaural level difference of the mixture
    masks: Array  # (M, F', T') assignment probabilities

    def __repr__(self) -> str:
        M, rows, columns = self.masks.shape
        return f"SpectrogramSummary({M} sources, {rows} x {columns})"


@dataclass(frozen=True, eq=False)
class SceneSummary(HtmlView):
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
            f"({', '.join(f'{v:.0f}' for v in s.direction)}) ± {s.radius_90:.0f}"
            if s.direction_known
            else "(unknown)"
            for s in self.sources
        )
        count = f"{len(self.sources)} source{'' if len(self.sources) == 1 else 's'}"
        unit = self.sources[0].posterior.space.unit_name if self.sources else ""
        where = f" at {places} {unit}".rstrip() if self.sources else ""
        both = [*self.doubts, *(doubt for source in self.sources for doubt in source.doubts)]
        doubts = repr_doubts(doubt.word for doubt in both)
        return f"{type(self).__name__}({self.seconds:.1f} s, {count}{where}{doubts})"

    @property
    def directions(self) -> Array:
        """Most probable directions (M, C), in degrees."""
        return np.stack([source.direction for source in self.sources])

    def to_dict(self) -> dict[str, Any]:
        """Return the scene as JSON values, without signals and masks.

        Returns
        -------
        dict
            Keys `n_sources`, `sources` (see `SourceSummary.to_dict`), `doubts`, `free_energy`
            (nats, of the last iteration), `rate` (Hz), `dry` and `recording_seconds`.
        """
        return {
            "n_sources": len(self.sources),
            "sources": [source.to_dict() for source in self.sources],
            "doubts": [str(doubt) for doubt in self.doubts],
            "free_energy": round(self.free_energies[-1], 3) if self.free_energies else None,
            "rate": self.rate,
            "dry": self.dry,
            "recording_seconds": round(self.seconds, 3),
        }

    def to_pandas(self) -> pandas.DataFrame:
        """Return the sources over time as a table; needs the extra `earatlas[pandas]`.

        Returns
        -------
        pandas.DataFrame
            One row per source and time, with the columns `source`, `time` (seconds), `azimuth` and
            `elevation` (degrees; `x1`, `x2`, … in a space without directions), `radius_90` and
            `level_db`. Positions are missing where a source is silent.

        Raises
        ------
        MissingExtraError
            If pandas is not installed.
        """
        table: dict[str, list[Any]] = {name: [] for name in ("source", "time")}
        names = coordinate_names(self.sources[0].posterior.space) if self.sources else ()
        table |= {name: [] for name in (*names, "radius_90", "level_db")}
        for source in self.sources:
            for row in source.track.rows():
                place = row["direction"] or [None] * len(names)
                values = source.name, row["time"], *place, row["radius_90"], row["level_db"]
                for column, value in zip(table.values(), values, strict=True):
                    column.append(value)
        return data_frame(table)

    def report(
        self, path: str | Path, *, title: str | None = None, truth: object | None = None
    ) -> Path:
        """Write an HTML report of the scene; see `earatlas.report.write_report`.

        Parameters
        ----------
        path : str or Path
            A name that ends in .html.
        title : str, optional
            Title of the page; by default the name of the file.
        truth : GroundTruth, optional
            True directions, true images, or both.

        Returns
        -------
        Path
            The path of the page.

        Raises
        ------
        InputError
            If the name does not end in .html, or the file cannot be written.
        """
        # The report is a layer above the scene.
        write_report = import_module("earatlas.report").write_report
        name = Path(path).stem if title is None else title
        page: Path = write_report(path, self, title=name, truth=truth)
        return page


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
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [file.name for file in scene.write(folder, name="party")]
    ['party_source1.wav', 'party_source2.wav', 'party.json']
    """

    sources: tuple[Source, ...]
    mixture: Audio  # the recording at the rate of the separated signals

    @property
    def masks(self) -> Single:
        """Soft masks (M, F, T)."""
        return np.stack([source.mask for source in self.sources])

    def write(self, folder: str | Path, *, name: str = "separated") -> list[Path]:
        """Write the signal of each source as a WAV file, and everything else as JSON.

        The files appear when all of them are complete, or not at all. They replace files of the
        same names.

        Parameters
        ----------
        folder : str or Path
            Folder of the files; it is created if necessary.
        name : str, default "separated"
            First part of the file names: separated_source1.wav, separated_source2.wav, … and
            separated.json.

        Returns
        -------
        list of Path
            The files, that of the JSON values last.

        Raises
        ------
        InputError
            If `name` is not a plain file name, or the folder cannot be written.
        """
        folder = check_path(folder)
        if name != Path(name).name or not name:
            raise InputError(
                f"name must be the first part of a file name, got '{name}'. Give the folder as "
                "the first argument."
            )
        answer = self.to_dict()
        files = [f"{name}_{source.name}.wav" for source in self.sources]
        for values, file in zip(answer["sources"], files, strict=True):
            values["file"] = file
        with atomic_write_all(folder) as scratch:
            for source, file in zip(self.sources, files, strict=True):
                source.audio.write(scratch / file)
            text = json.dumps(answer, indent=1) + "\n"
            (scratch / f"{name}.json").write_text(text, encoding="utf-8")
        return [folder / file for file in (*files, f"{name}.json")]
