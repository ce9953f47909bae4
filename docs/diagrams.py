"""Diagrams of the documentation, as SVG: layers of the package, data flows, a decision tree.

    python docs/diagrams.py        # write docs/images/*.svg

The layers are those of the import contract in pyproject.toml. A test compares the files with what
this script makes, and checks that every module that is named exists.
"""

from __future__ import annotations

import itertools
import tomllib
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
WIDTH, BOX_HEIGHT, GAP, MARGIN = 940, 56, 32, 20  # pixels
FONT = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif"
LINE, INK, GREY = "#8a94a6", "#1f2937", "#4b5563"
FILLS = ("#e8edf9", "#e6f4ec", "#fdf1e1", "#f6e8f3")


@dataclass(frozen=True)
class Box:
    """One box: a module or a value, and one line about it."""

    title: str
    text: str = ""
    fill: int = 0


LAYER_TEXTS = {
    "cli": "one file per command",
    "studio": "browser application",
    "experiments": "tables and figures of the paper",
    "baselines": "methods to compare with",
    "report": "HTML page of a scene",
    "sklearn": "estimators",
    "plotting": "figures",
    "batch": "many files",
    "evaluation": "SDR, errors",
    "manifold": "paper §4: LTSA",
    "population_atlas": "an atlas of many heads",
    "atlas": "the learned head with methods",
    "atlas_format": "contents of an atlas file",
    "streaming": "live sources and their signals",
    "separation": "paper §6: VESSL, demixing",
    "interchange": "RTTM, DCASE, OSC, LSL",
    "tracking": "trajectories, online tracker",
    "population": "many heads, adaptation to a listener",
    "training": "from a head to a learned head",
    "localization": "posterior of a recording",
    "ppam": "paper §5: model, EM, posterior",
    "simulation": "scenes with ground truth",
    "hrtf": "heads: SOFA, recordings, simulated",
    "wording": "numbers as text",
    "code_hash": "hashes of the code",
    "features": "paper §2: audio, STFT, cues, onsets",
    "geometry": "directions and their posteriors",
    "container": "atlas file format",
    "files": "atomic writing",
    "csv_tables": "CSV input",
    "fork_server": "calls in another process",
    "notebooks": "HTML views, tables",
    "numerics": "log domain, means",
    "threads": "thread limits",
    "errors": "InputError",
    "types": "array types",
}

LOCALIZE = [
    [Box("features.audio_files", "read blocks of a file", 0)],
    [Box("features.stft", "spectra of both ears", 0)],
    [
        Box("features.statistics", "cues as Q, R, E", 0),
        Box("features.onset_detector", "bins that rise", 0),
    ],
    [
        Box("ppam.model", "posterior (paper §5.2)", 1),
        Box("localization.onset_likelihood", "direct sound per direction", 1),
    ],
    [
        Box("ppam.calibration", "saturation, temperature, blur", 1),
        Box("localization.score_calibration", "from training scenes", 1),
    ],
    [Box("localization.reverberant_localizer", "combine both posteriors", 1)],
    [Box("localization.diagnostics", "doubts", 2)],
    [Box("localization.result", "Localization: posterior, doubts", 3)],
]

SEPARATE = [
    [Box("separation.pipeline", "the steps, block by block", 0)],
    [Box("separation.separator", "first pass over the recording", 0)],
    [
        Box("features.tf_bins", "observed and coherent bins", 0),
        Box("features.onset_detector", "bins that rise", 0),
    ],
    [
        Box("separation.candidate_search", "convex search on a grid", 1),
        Box("localization.onset_mixture", "sources by their onsets", 1),
        Box("tracking.offline", "trajectories, if any move", 1),
    ],
    [Box("separation.initialization", "starts of VESSL", 1)],
    [Box("separation.model_order", "number of sources", 1)],
    [Box("separation.vessl", "variational EM (paper §6)", 1)],
    [Box("separation.demixing.speaker_similarity", "one source in a room: one speaker or two", 1)],
    [Box("separation.source_masks", "masks of all bins of a block", 2)],
    [
        Box("separation.demixing.rendering", "steering vectors, Wiener filter", 2),
        Box("separation.source_directions", "direction posteriors", 2),
    ],
    [Box("separation.assembly", "join the blocks, extend the band", 2)],
    [Box("separation.result", "Scene: sources with audio", 3)],
]

# The decision tree of `separation.model_order`; a box without title is empty space.
_SPACE = Box("")
MODEL_ORDER = [
    [_SPACE, Box("are directions given?", "by the user", 0), _SPACE],
    [
        Box("start and number: given", "the directions are kept", 3),
        _SPACE,
        Box("are onsets analysed?", "20 or more, model of rooms", 0),
    ],
    [
        Box("start: candidate search", "number: given, or of free energy", 3),
        _SPACE,
        Box("are detections reliable?", "each adds 0.03 nats per onset", 0),
    ],
    [
        _SPACE,
        Box("start: candidate search", "as many sources as detected", 1),
        Box("start: detections", "directions of the onsets", 1),
    ],
    [_SPACE, Box("is the number decided?", "given, or reverberant recording", 0), _SPACE],
    [
        Box("number: given, or of onsets", "VESSL counts reflections", 3),
        _SPACE,
        Box("reliable, and a good fit?", "of the anechoic model", 0),
    ],
    [
        _SPACE,
        Box("count from one source on", "candidate search, free energy", 1),
        Box("add to the detections", "unless all bins are explained", 1),
    ],
    [_SPACE, Box("another number that fits?", "the parts of one source alternate", 0), _SPACE],
    [
        Box("number: of the onsets", "the first fit", 3),
        _SPACE,
        Box("number: of the free energy", "detections are repeated", 3),
    ],
    [_SPACE, Box("one static source in a room?", "number not given, any end above", 0), _SPACE],
    [
        Box("number: as above", "", 3),
        _SPACE,
        Box("signals of two speakers?", "separated at two directions", 0),
    ],
    [_SPACE, Box("number: as above", "", 3), Box("two sources", "", 3)],
]

STREAM = [
    [Box("streaming.stream", "Live.push: samples in", 0)],
    [Box("streaming.stages", "track, mask, render: hops of 16 ms", 0)],
    [
        Box("tracking.front_end", "onsets of the last seconds", 0),
        Box("streaming.filterbank", "frames of both ears", 0),
    ],
    [
        Box("tracking.online", "tentative, confirmed, coasting", 1),
        Box("streaming.online_masks", "VESSL with decaying statistics", 1),
    ],
    [
        Box("streaming.speaker_split_merge", "one talker or two", 1),
        Box("streaming.online_steering", "steering vectors, from the last 6 s", 2),
    ],
    [
        Box("streaming.online_demixing", "Wiener filter of each frame", 2),
        Box("streaming.fir_demixing", "FIR filters of static pairs", 2),
    ],
    [Box("streaming.renderer", "signals at a fixed latency", 2)],
    [Box("streaming.report", "LiveReport: sources and samples", 3)],
]


# Arrows by position in the row and in the next one, with a label, where the nearest box would be
# wrong.
Edges = dict[int, list[tuple[int, int, str]]]
EDGES: dict[str, Edges] = {
    "flow_separate.svg": {2: [(0, 0, ""), (1, 1, ""), (1, 2, "")]},
    "model_order.svg": {
        0: [(1, 0, "yes"), (1, 2, "no")],
        1: [(2, 0, "no"), (2, 2, "yes")],
        2: [(2, 1, "no"), (2, 2, "yes")],
        3: [(1, 1, ""), (2, 1, "")],
        4: [(1, 0, "yes"), (1, 2, "no")],
        5: [(2, 1, "no"), (2, 2, "yes")],
        6: [(1, 1, ""), (2, 1, "")],
        7: [(1, 0, "no"), (1, 2, "yes")],
        8: [(0, 1, ""), (2, 1, "")],
        9: [(1, 0, "no"), (1, 2, "yes")],
        10: [(2, 1, "no"), (2, 2, "yes")],
    },
    "flow_stream.svg": {4: [(1, 0, ""), (1, 1, "")]},
}


def layer_rows() -> list[list[Box]]:
    """Return one row per layer of the import contract, from top to bottom."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = project["tool"]["importlinter"]["contracts"]
    rows = []
    for layer in contract["layers"]:
        names = [name.strip().removeprefix("earatlas.") for name in layer.split("|")]
        rows.append([Box(name, LAYER_TEXTS[name], len(rows) % len(FILLS)) for name in names])
    return rows


def svg(title: str, rows: list[list[Box]], edges: Edges | None = None) -> str:
    """Return a diagram: rows of boxes, with arrows from each row to the next one."""
    height = 2 * MARGIN + len(rows) * BOX_HEIGHT + (len(rows) - 1) * GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="{FONT}">',
        f"<title>{escape(title)}</title>",
        '<defs><marker id="a" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" '
        f'markerHeight="8" orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="{LINE}"/></marker>'
        "</defs>",
    ]
    for i, (row, following) in enumerate(itertools.pairwise(rows)):
        bottom = MARGIN + i * (BOX_HEIGHT + GAP) + BOX_HEIGHT
        arrows = _arrows(_centres(len(row)), _centres(len(following)), (edges or {}).get(i))
        for x, y, label in arrows:
            parts.append(
                f'<path d="M{x} {bottom} L{y} {bottom + GAP}" stroke="{LINE}" stroke-width="2" '
                'fill="none" marker-end="url(#a)"/>'
            )
            if label:
                parts.append(
                    f'<text x="{(x + y) // 2 + 8}" y="{bottom + GAP // 2 - 2}" font-size="14" '
                    f'fill="{INK}">{escape(label)}</text>'
                )
    for i, row in enumerate(rows):
        parts += _boxes(row, MARGIN + i * (BOX_HEIGHT + GAP))
    return "\n".join([*parts, "</svg>", ""])


def _width(count: int) -> int:
    """Return the width of one of `count` boxes in a row."""
    widest = 420 if count == 1 else WIDTH
    return min(widest, (WIDTH - 2 * MARGIN - (count - 1) * GAP) // count)


def _centres(count: int) -> list[int]:
    """Return the horizontal centres of `count` boxes in a row."""
    width = _width(count)
    left = (WIDTH - count * width - (count - 1) * GAP) // 2
    return [left + i * (width + GAP) + width // 2 for i in range(count)]


def _arrows(
    sources: list[int], targets: list[int], edges: list[tuple[int, int, str]] | None
) -> list[tuple[int, int, str]]:
    """Connect the given boxes; else equally long rows one to one, others with the nearest box."""
    if edges is not None:
        return [(sources[i], targets[j], label) for i, j, label in edges]
    if len(sources) == len(targets):
        return [(x, y, "") for x, y in zip(sources, targets, strict=True)]
    if len(sources) > len(targets):
        return [(x, _nearest(targets, x), "") for x in sources]
    return [(_nearest(sources, y), y, "") for y in targets]


def _nearest(places: list[int], place: int) -> int:
    return min(places, key=lambda other: abs(other - place))


def _boxes(row: list[Box], top: int) -> list[str]:
    parts = []
    width = _width(len(row))
    for box, centre in zip(row, _centres(len(row)), strict=True):
        if not box.title:
            continue
        parts.append(
            f'<rect x="{centre - width // 2}" y="{top}" width="{width}" height="{BOX_HEIGHT}" '
            f'rx="8" fill="{FILLS[box.fill]}" stroke="{LINE}"/>'
        )
        parts.append(
            f'<text x="{centre}" y="{top + 24}" text-anchor="middle" font-size="16" '
            f'font-weight="600" fill="{INK}">{escape(box.title)}</text>'
        )
        parts.append(
            f'<text x="{centre}" y="{top + 44}" text-anchor="middle" font-size="14" '
            f'fill="{GREY}">{escape(box.text)}</text>'
        )
    return parts


def diagrams() -> dict[str, str]:
    """Return every diagram by file name."""
    all_rows = {
        "layers.svg": ("Layers of earatlas: imports go downward only", layer_rows()),
        "flow_localize.svg": ("Data flow of localize", LOCALIZE),
        "flow_separate.svg": ("Data flow of separate", SEPARATE),
        "flow_stream.svg": ("Data flow of a live stream", STREAM),
        "model_order.svg": ("Decision tree: start and number of sources", MODEL_ORDER),
    }
    return {name: svg(title, rows, EDGES.get(name)) for name, (title, rows) in all_rows.items()}


def modules() -> list[str]:
    """Return every module that a data flow names."""
    return [box.title for flow in (LOCALIZE, SEPARATE, STREAM) for row in flow for box in row]


if __name__ == "__main__":
    for name, text in diagrams().items():
        (IMAGES / name).write_text(text, encoding="utf-8")
