"""A scene against the truth, as a table of a page.

In: a `FoundScene` and a `Truth`. Out: `Known`, how the two go together, and HTML text of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from earatlas.evaluation.assignment import known_mean
from earatlas.evaluation.ground_truth import Matched, Truth
from earatlas.evaluation.intelligibility import intelligibility
from earatlas.evaluation.interaural import InterauralErrors, interaural_errors
from earatlas.evaluation.quality import LIMIT_DB
from earatlas.evaluation.score import Score, score
from earatlas.features.audio import Audio
from earatlas.features.audio_files import read_blocks
from earatlas.geometry.spaces import Sphere
from earatlas.plotting.palette import colour_of
from earatlas.separation.result import FoundScene
from earatlas.types import Array
from earatlas.wording import error_words, place_words

__all__ = ["MIXTURE", "Known", "comparison_table", "decibel_words"]


MIXTURE = "mixture"  # the name of the recording itself among the sounds
_DECIBELS = (
    '<p class="note">SDR: the source over everything else; SIR: over the other sources; in dB, '
    "mean of both ears, BSS-eval. Before: of the recording as it is. STOI: how much of speech is "
    "understood, 1 is all. ILD and ITD: level and time between the ears.</p>"
)
_MOST_SECONDS = 60.0  # BSS-eval of longer sounds takes longer than a page may


@dataclass(frozen=True, eq=False)
class Known(Matched):
    """How the truth and the scene go together, and how good the sounds are."""

    score: Score | None  # None: a sound is missing, or all are long
    heard: tuple[InterauralErrors, Array] | None = None  # with the score: errors, and STOI (M, 2)

    @classmethod
    def judged(cls, scene: FoundScene, truth: Truth, sounds: Mapping[str, Audio | Path]) -> Known:
        """Both; `sounds` are the mixture and the sources by name, where there are any."""
        matched = Matched.of(scene, truth)
        judged = _judged(scene, truth, sounds) if truth.images else None
        if judged is None:
            return cls(truth, matched.by_direction, matched.by_sound, matched.masks, None)
        by_sound = judged[0].by_sound
        return cls(truth, matched.by_direction, by_sound, matched.masks, judged[0], judged[1:])


def _judged(
    scene: FoundScene, truth: Truth, sounds: Mapping[str, Audio | Path]
) -> tuple[Score, InterauralErrors, Array] | None:
    """The scene against the images; None where a sound is missing, or all are long."""
    names = [source.name for source in scene.sources]
    if not names or scene.seconds > _MOST_SECONDS or not {MIXTURE, *names} <= set(sounds):
        return None
    found = [_samples(sounds[name], None) for name in names]
    rate = found[0].rate
    mixture = _samples(sounds[MIXTURE], rate)
    images = [image.at_rate(rate) for image in truth.images]
    # Resampling and padding may differ by a few samples at the end.
    n = min(sound.samples.shape[1] for sound in (*images, mixture, *found))
    true, heard = (np.stack([x.samples[:, :n] for x in both]) for both in (images, found))
    judged = score(true, heard, mixture.samples[:, :n])
    order = judged.by_sound
    errors = interaural_errors(true, heard, rate=rate, assignment=order)
    return judged, errors, intelligibility(true, heard, rate=rate, assignment=order)


def _samples(sound: Audio | Path, rate: int | None) -> Audio:
    """A whole sound, from a file without the warnings that its separation has given already."""
    if isinstance(sound, Audio):
        return sound.at_rate(rate or sound.rate)
    blocks = list(read_blocks(sound, rate=rate, warn=False))
    return Audio(np.concatenate([block.samples for block in blocks], axis=1), blocks[0].rate)


def comparison_table(scene: FoundScene, known: Known) -> str:
    """A row a true source: its direction, what was found, and the sound before and after."""
    columns = ["Source"]
    if known.truth.directions is not None:
        columns += ["Truth", "Found", "Off by"]
    if known.score is not None:
        columns += ["SDR before", "SDR after", "SIR before", "SIR after"]
        columns += ["STOI", "ILD off by", "ITD off by"]
    rows = [
        [escape(name), *_found(scene, known, i), *_decibels(known.score, i), *_hearing(known, i)]
        for i, name in enumerate(known.truth.names)
    ]
    last = []
    if known.score is not None and len(rows) > 1:
        figures = [*_decibels(known.score, None), *_hearing(known, None)]
        last = ["Mean", *[""] * (len(columns) - 1 - len(figures)), *figures]
    notes = [f'<p class="note warn">{note}</p>' for note in _remarks(scene, known)]
    if known.score is not None:
        notes.append(_DECIBELS)
    return _table(columns, rows, last) + "".join(notes)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], last: Sequence[str]) -> str:
    """A table, in which a row may be the mean of all others."""
    head = "".join(f'<th scope="col"{_align(c)}>{c}</th>' for c in columns)
    body = "".join(_row(row, columns) for row in rows)
    foot = f"<tfoot>{_row(last, columns)}</tfoot>" if last else ""
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
        f"{foot}</table></div>"
    )


def _found(scene: FoundScene, known: Known, i: int) -> list[str]:
    """Cells of true source i: its direction, the one that was found, and the error."""
    if known.truth.directions is None or known.by_direction is None:
        return []
    true, j = known.truth.directions[i], int(known.by_direction.found[i])
    space = scene.sources[0].posterior.space if scene.sources else Sphere()
    if j < 0:
        return [place_words(space, true), "not found", "–"]
    source = scene.sources[j]
    error = known.truth.off_by(i, source)
    number = f'<span class="dot" style="background:{colour_of(j)}"></span>'
    return [
        place_words(space, true),
        f"{number}{place_words(space, source.direction)}",
        error_words(space, error),
    ]


def _remarks(scene: FoundScene, known: Known) -> list[str]:
    """What a reader should be told about the assignment."""
    remarks = []
    pairs = known.by_direction or known.by_sound
    if pairs is not None and pairs.false:
        names = ", ".join(escape(scene.sources[j].name) for j in pairs.false)
        remarks.append(f"Found, but no true source: {names}.")
    if pairs is not None and pairs.missed and known.truth.directions is None:
        names = ", ".join(escape(known.truth.names[m]) for m in pairs.missed)
        remarks.append(f"Not found: {names}.")
    if known.truth.images and scene.seconds > _MOST_SECONDS:
        remarks.append(
            f"SDR and SIR are left out: the recording is longer than {_MOST_SECONDS:.0f} s."
        )
    if (
        known.by_direction is not None
        and known.by_sound is not None
        and not np.array_equal(known.by_direction.found, known.by_sound.found)
    ):
        remarks.append(
            "Sounds and directions are swapped: a source sounds like one true source and is "
            "placed at another. Directions and decibels above are each for the best match."
        )
    return remarks


def _decibels(judged: Score | None, i: int | None) -> list[str]:
    """Cells of true source i, or of the means: SDR and SIR, before and after."""
    if judged is None:
        return []
    cells = []
    for name in ("sdr_db", "sir_db"):
        before, after = (getattr(q, name) for q in (judged.mixture, judged.quality))
        for values in (before, after):
            value = known_mean(values if i is None else values[i])
            cells.append(decibel_words(round(value, 2)))  # as JSON has it, and the terminal from it
    return cells


def _hearing(known: Known, i: int | None) -> list[str]:
    """Cells of true source i, or of the means: STOI, and errors of both differences of the ears."""
    if known.heard is None:
        return []
    errors, clear = known.heard
    stoi, ild, itd = (
        round(known_mean(np.atleast_1d(values if i is None else values[i])), 3)  # as JSON has it
        for values in (clear, errors.ild_db, errors.itd_microseconds)
    )
    return [
        "–" if np.isnan(stoi) else f"{stoi:.2f}",
        decibel_words(ild),
        "–" if np.isnan(itd) else f"{itd:.0f} µs",
    ]


def decibel_words(value: float) -> str:
    """Decibels, or a dash where there are none; at the limit of what is measured, a bound."""
    if np.isnan(value):
        return "–"
    if abs(value) >= LIMIT_DB:
        return f"over {LIMIT_DB:g} dB" if value > 0 else f"below −{LIMIT_DB:g} dB"
    return f"{round(value, 1) + 0.0:.1f} dB".replace("-", "−")  # never −0.0


def _align(column: str) -> str:
    return ' class="num"' if column not in {"Source", "Truth", "Found"} else ""


def _row(cells: Sequence[str], columns: Sequence[str]) -> str:
    rest = [
        f'<td data-name="{column}"{_align(column)}><span>{cell}</span></td>'
        for cell, column in zip(cells[1:], columns[1:], strict=True)
    ]
    return f'<tr><th scope="row">{cells[0]}</th>{"".join(rest)}</tr>'
