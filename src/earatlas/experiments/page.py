"""The results page: every experiment that has rows, paper beside ours, and why they differ.

In: the folder of rows. Out: `results.md` with its pictures beside it in `results/`. Nothing is
typed into it by hand: the words stand in the experiments' modules, the figures in the rows. What is
compared is always told; what came out of it only where the heads that it was found on are there.
"""

from __future__ import annotations

from pathlib import Path

import earatlas
from earatlas.experiments.rows import Experiment, by_data_set
from earatlas.experiments.tables import names_of
from earatlas.files import written_whole

__all__ = ["rows_path", "write_page"]

_TOP = """\
# The paper's tables and figures, again

Made by `earatlas reproduce` (version {version}{quick}); do not edit. Deleforge, Forbes, Horaud:
*Acoustic Space Learning for Sound-Source Separation and Localization on Binaural Manifolds* (2014),
beside this package. Errors are mean±standard deviation in degrees of azimuth and elevation, on the
paper's plane (azimuth ±160°, elevation ±60°); of fewer than three values none is printed. The last
section, on rooms, goes beyond the paper.

The paper's CAMIL recordings, a dummy head in a room, are not ours to give. **simulated** is the
built-in head at the very same 10,800 directions, in the open; **simulated-room** is that head,
turned before a loudspeaker in a simulated room, as theirs was, with the reflections of the first
50 ms, and its cues are means over noise, as theirs. It is no default: it takes some minutes to
make. The others are SOFA files. Recordings of one's own work the same: `--head FOLDER`, with a
table `positions.csv` (file, azimuth, elevation).

What was measured stands in `{folder}/rows`, a JSON line each, from which all this can be drawn
again with nothing run (`--draw-only`). `--share 0.1` is a tenth of the paper's repetitions; how
many were run here is told with each table.
"""


def rows_path(folder: Path, name: str) -> Path:
    """Where the rows of an experiment are kept."""
    return folder / "rows" / f"{name}.jsonl"


def write_page(experiments: dict[str, Experiment], output: Path, *, quick: bool) -> Path:
    """Write `output`/results.md from all rows in `output`/results."""
    folder = output / "results"
    parts = [
        _TOP.format(
            version=earatlas.__version__, quick=", --quick" if quick else "", folder=folder.name
        )
    ]
    for name, experiment in experiments.items():
        chapter = _chapter(experiment, folder, rows_path(folder, name), quick=quick)
        if chapter:
            parts.append(chapter)
    page = output / "results.md"
    with written_whole(page, "page") as scratch:
        scratch.write_text("\n".join(parts), encoding="utf-8")
    return page


def _chapter(experiment: Experiment, folder: Path, path: Path, *, quick: bool) -> str:
    """Heading, words and section of an experiment; nothing where nothing was planned."""
    sets = by_data_set(experiment, path, quick=quick)
    rows = [row for own in sets for row in own.rows]
    names = names_of(own.data for own in sets)
    unfinished = sorted(
        f"{name}: {len(own.rows)} of {own.planned} rows so far."
        for name, own in zip(names, sets, strict=True)
        if not own.finished
    )
    words = [
        f"## {experiment.title}",
        experiment.about,
        experiment.findings_for(sets, quick=quick),
        *unfinished,
        experiment.section(rows, folder) if rows else "",
    ]
    return "\n\n".join(word for word in words if word) + "\n" if sets else ""
