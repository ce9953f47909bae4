"""Comparison of a separated scene with the ground truth, as an HTML table.

The inputs are a `SceneSummary` and a `GroundTruth`, the output is a `SceneComparison` (matched
sources and quality measures) and its table.

    M   true sources
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from earatlas.evaluation.assignment import nan_mean
from earatlas.evaluation.ground_truth import GroundTruth, SourceMatching
from earatlas.evaluation.intelligibility import intelligibility
from earatlas.evaluation.interaural import InterauralErrors, interaural_errors
from earatlas.evaluation.quality import LIMIT_DB
from earatlas.evaluation.score import Score, score
from earatlas.features.audio import Audio
from earatlas.features.audio_files import read_blocks
from earatlas.geometry.spaces import Sphere
from earatlas.plotting.palette import source_numbers
from earatlas.report.charts import number_mark
from earatlas.separation.result import SceneSummary
from earatlas.types import Array
from earatlas.wording import format_error, format_position

__all__ = ["MIXTURE", "SceneComparison", "comparison_table", "format_decibels"]


MIXTURE = "mixture"  # name of the recording among the sounds
_MEASURES_NOTE = (
    '<p class="note">SDR: energy of the source relative to all errors; SIR: relative to the other '
    "sources. Both in dB, mean of both ears, BSS Eval. Before: the recording without separation. "
    "STOI: speech intelligibility, at most 1. ILD and ITD: interaural level and time "
    "difference.</p>"
)
_MAX_SCORED_SECONDS = 60.0  # BSS Eval of longer recordings takes too long for a report


@dataclass(frozen=True, eq=False)
class SceneComparison(SourceMatching):
    """Matching of true and estimated sources, with the quality of the separated sounds."""

    score: Score | None  # None if a sound is missing or the recording is too long
    binaural: tuple[InterauralErrors, Array] | None = None  # with the score; STOI is (M, 2)

    @classmethod
    def compute(
        cls, scene: SceneSummary, truth: GroundTruth, sounds: Mapping[str, Audio | Path]
    ) -> SceneComparison:
        """Match and score a scene; `sounds` are the mixture and the sources by name, if any."""
        matched = SourceMatching.of(scene, truth)
        measures = _measure(scene, truth, sounds) if truth.images else None
        if measures is None:
            return cls(truth, matched.by_direction, matched.by_sound, matched.masks, None)
        scored, errors, stoi = measures
        by_direction, by_sound = matched.by_direction, scored.by_sound
        return cls(truth, by_direction, by_sound, matched.masks, scored, (errors, stoi))


def _measure(
    scene: SceneSummary, truth: GroundTruth, sounds: Mapping[str, Audio | Path]
) -> tuple[Score, InterauralErrors, Array] | None:
    """Return score, interaural errors and STOI (M, 2) of a scene against the true images.

    Returns None if a sound is missing or the recording is too long.
    """
    names = [source.name for source in scene.sources]
    if not names or scene.seconds > _MAX_SCORED_SECONDS or not {MIXTURE, *names} <= set(sounds):
        return None
    estimated = [_read(sounds[name], None) for name in names]
    rate = estimated[0].rate
    mixture = _read(sounds[MIXTURE], rate)
    images = [image.at_rate(rate) for image in truth.images]
    # Resampling and padding may change the length by a few samples.
    n = min(sound.samples.shape[1] for sound in (*images, mixture, *estimated))
    true, found = (np.stack([x.samples[:, :n] for x in both]) for both in (images, estimated))
    scored = score(true, found, mixture.samples[:, :n])
    order = scored.by_sound
    errors = interaural_errors(true, found, rate=rate, assignment=order)
    return scored, errors, intelligibility(true, found, rate=rate, assignment=order)


def _read(sound: Audio | Path, rate: int | None) -> Audio:
    """Return a whole sound; a file is read without the warnings that its separation gave."""
    if isinstance(sound, Audio):
        return sound.at_rate(rate or sound.rate)
    blocks = list(read_blocks(sound, rate=rate, warn=False))
    return Audio(np.concatenate([block.samples for block in blocks], axis=1), blocks[0].rate)


def comparison_table(scene: SceneSummary, comparison: SceneComparison) -> str:
    """Return a table with one row per true source: directions, and quality before and after."""
    columns = ["Source"]
    if comparison.truth.directions is not None:
        columns += ["True direction", "Estimated direction", "Error"]
    if comparison.score is not None:
        columns += ["SDR before", "SDR after", "SIR before", "SIR after"]
        columns += ["STOI", "ILD error", "ITD error"]
    rows = []
    for i, name in enumerate(comparison.truth.names):
        directions = _direction_cells(scene, comparison, i)
        measures = [*_quality_cells(comparison.score, i), *_binaural_cells(comparison, i)]
        rows.append([escape(name), *directions, *measures])
        rows += [[*cells, *[""] * len(measures)] for cells in _moment_rows(scene, comparison, i)]
    mean_row = []
    if comparison.score is not None and len(comparison.truth) > 1:
        means = [*_quality_cells(comparison.score, None), *_binaural_cells(comparison, None)]
        mean_row = ["Mean", *[""] * (len(columns) - 1 - len(means)), *means]
    notes = [f'<p class="note warn">{note}</p>' for note in _notes(scene, comparison)]
    if comparison.score is not None:
        notes.append(_MEASURES_NOTE)
    return _table(columns, rows, mean_row) + "".join(notes)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], last: Sequence[str]) -> str:
    """Return an HTML table; `last` is the row of means, if any."""
    head = "".join(f'<th scope="col"{_align(c)}>{c}</th>' for c in columns)
    body = "".join(_row(row, columns) for row in rows)
    foot = f"<tfoot>{_row(last, columns)}</tfoot>" if last else ""
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
        f"{foot}</table></div>"
    )


def _direction_cells(scene: SceneSummary, comparison: SceneComparison, i: int) -> list[str]:
    """Return the cells of true source i: true direction, estimated direction, error."""
    if comparison.truth.directions is None or comparison.by_direction is None:
        return []
    j = int(comparison.by_direction.found[i])
    space = scene.sources[0].posterior.space if scene.sources else Sphere()
    if j < 0:
        path = comparison.truth.positions(i)[[0, -1]]
        ends = dict.fromkeys(format_position(space, place) for place in path)
        return [" → ".join(ends), "not found", "–"]
    source = scene.sources[j]
    mark = number_mark(source_numbers(scene.sources)[j])
    error = format_error(space, comparison.truth.direction_error(i, source))
    over_time = comparison.truth.errors_over_time(i, source)
    if over_time is None:
        true = comparison.truth.directions[i]
        return [format_position(space, true), f"{mark}{source.describe_place()}", error]
    paths = [
        " → ".join(format_position(space, places[n]) for n in (0, -1))
        for places in (over_time.true, over_time.estimated)
    ]
    return [paths[0], mark + paths[1], f"median {error}"]


def _moment_rows(scene: SceneSummary, comparison: SceneComparison, i: int) -> list[list[str]]:
    """Return one row per moment of a moving source: time, true and estimated direction, error.

    The moments are the first, the middle and the last one at which the estimate is active.
    """
    if comparison.truth.directions is None or comparison.by_direction is None:
        return []
    j = int(comparison.by_direction.found[i])
    over_time = None if j < 0 else comparison.truth.errors_over_time(i, scene.sources[j])
    if over_time is None:
        return []
    space, last = scene.sources[j].posterior.space, len(over_time.seconds) - 1
    return [
        [
            f"<small>at {over_time.seconds[n]:.1f} s</small>",
            *(format_position(space, at[n]) for at in (over_time.true, over_time.estimated)),
            format_error(space, float(over_time.errors[n])),
        ]
        for n in sorted({0, last // 2, last})
    ]


def _notes(scene: SceneSummary, comparison: SceneComparison) -> list[str]:
    """Return notes about unmatched sources, missing measures and contradicting assignments."""
    notes = []
    pairs = comparison.by_direction or comparison.by_sound
    if pairs is not None and pairs.false:
        names = ", ".join(escape(scene.sources[j].name) for j in pairs.false)
        notes.append(f"Found, but not a true source: {names}.")
    if pairs is not None and pairs.missed and comparison.truth.directions is None:
        names = ", ".join(escape(comparison.truth.names[m]) for m in pairs.missed)
        notes.append(f"Not found: {names}.")
    if comparison.truth.images and scene.seconds > _MAX_SCORED_SECONDS:
        limit = f"{_MAX_SCORED_SECONDS:.0f} s"
        notes.append(f"SDR and SIR are omitted: the recording is longer than {limit}.")
    if (
        comparison.by_direction is not None
        and comparison.by_sound is not None
        and not np.array_equal(comparison.by_direction.found, comparison.by_sound.found)
    ):
        notes.append(
            "Sounds and directions are swapped: a source sounds like one true source and has the "
            "direction of another. Directions and decibels above are each for the best match."
        )
    return notes


def _quality_cells(scored: Score | None, i: int | None) -> list[str]:
    """Return the cells of true source i, or of the means: SDR and SIR, before and after."""
    if scored is None:
        return []
    cells = []
    for name in ("sdr_db", "sir_db"):
        before, after = (getattr(q, name) for q in (scored.mixture, scored.quality))
        for values in (before, after):
            value = nan_mean(values if i is None else values[i])
            cells.append(format_decibels(round(value, 2)))  # two decimals, as in JSON
    return cells


def _binaural_cells(comparison: SceneComparison, i: int | None) -> list[str]:
    """Return the cells of true source i, or of the means: STOI, ILD error, ITD error."""
    if comparison.binaural is None:
        return []
    errors, stoi_by_ear = comparison.binaural
    stoi, ild, itd = (
        round(nan_mean(np.atleast_1d(values if i is None else values[i])), 3)  # as in JSON
        for values in (stoi_by_ear, errors.ild_db, errors.itd_microseconds)
    )
    return [
        "–" if np.isnan(stoi) else f"{stoi:.2f}",
        format_decibels(ild),
        "–" if np.isnan(itd) else f"{itd:.0f} µs",
    ]


def format_decibels(value: float) -> str:
    """Format decibels with one decimal: a dash for NaN, a bound at the limit of the measure."""
    if np.isnan(value):
        return "–"
    if abs(value) >= LIMIT_DB:
        return f"over {LIMIT_DB:g} dB" if value > 0 else f"below −{LIMIT_DB:g} dB"
    return f"{round(value, 1) + 0.0:.1f} dB".replace("-", "−")  # avoids −0.0


def _align(column: str) -> str:
    text_columns = {"Source", "True direction", "Estimated direction"}
    return ' class="num"' if column not in text_columns else ""


def _row(cells: Sequence[str], columns: Sequence[str]) -> str:
    rest = [
        f'<td data-name="{column}"{_align(column)}><span>{cell}</span></td>'
        for cell, column in zip(cells[1:], columns[1:], strict=True)
    ]
    return f'<tr><th scope="row">{cells[0]}</th>{"".join(rest)}</tr>'
