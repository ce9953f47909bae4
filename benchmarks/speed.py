"""CPU time of all tasks and their growth, as ratios to a calibration loop, beside other packages.

    python benchmarks/speed.py [PART …] [--atlas FILE] [--repeats 3] [--minutes 10] [--page]

Parts, with their approximate CPU seconds on one core of 2.5 GHz:

    learning (15)      `earatlas learn ku100.sofa`: CPU seconds and peak memory
    start (8)          short files on the command line, with the packaged atlas and with ku100
    localization (15)  `localize` of 10 s, and `localize --track` of 60 s
    separation (40)    `separate` of two and three talkers, number given and not given
    streams (40)       a live pair at 16 and 48 kHz, mean and longest hop of 16 ms
    sources (25)       `separate` of 1 to 5 talkers and of one in a room, number not given
    directions (120)   learning of 1250 to 10,800 directions: CPU seconds, peak memory, accuracy
    durations (90)     recordings of 5 s to --minutes on the command line: CPU seconds, peak memory
    peers (200)        AuxIVA, ILRMA, FastMNMF2, T-ISS; SRP-PHAT, MUSIC; GaussianMixture; LTSA

Without names, the first five are run, in about two minutes. The calibration loop (FFTs, matrix
products, exponentials and Python calls) is measured before each part, so that machines compare.
Numerical libraries use one thread. Recordings are made from ku100 with all directions learned, and
recorded speech; rooms are simulated. Needs the measured data. Each figure is the least of
`--repeats` runs where a run takes less than a second, of two elsewhere, of one for learning, growth
and streams. Growth with the duration of an hour: --minutes 60. With --page, the tables replace
those in docs/figures/speed.md.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import warnings
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded

from speed_parts import growth, tasks
from speed_parts.tasks import Setting
from speed_parts.timing import (
    Row,
    calibration_seconds,
    format_rows,
    replace_section,
)

import earatlas as ea

QUICK = ("learning", "start", "localization", "separation", "streams")
PARTS = (*QUICK, "sources", "directions", "durations", "peers")
PAGE = Path(__file__).parents[1] / "docs" / "figures" / "speed.md"


def measure(part: str, setting: Setting, minutes: float) -> list[Row]:
    """Return the rows of a part other than learning."""
    if part == "peers":
        from speed_parts import peers  # needs pyroomacoustics, nara_wpe and scikit-learn

        measures = (peers.two_talkers, peers.one_talker, peers.mapping, peers.manifold)
        return [row for measure in measures for row in measure(setting)]
    if part == "durations":
        return growth.durations(setting, 60 * minutes)
    return {
        "start": tasks.short_files,
        "localization": tasks.localization,
        "separation": tasks.separation,
        "streams": tasks.streams,
        "sources": growth.sources,
        "directions": growth.directions,
    }[part](setting)


def show(part: str, rows: list[Row], unit: float, *, write: bool) -> None:
    """Print the table of a part, and write it into the page if wanted."""
    table = format_rows(part, rows, unit)
    print(f"\n{table}", flush=True)
    if write:
        PAGE.write_text(replace_section(PAGE.read_text(), part, table))


def main() -> None:
    """Measure and print one table per part."""
    description, _, details = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=description,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--atlas", type=Path, help="atlas of ku100; default: learn it")
    parser.add_argument("--repeats", type=int, default=3, help="the least time is reported")
    parser.add_argument("--minutes", type=float, default=10.0, help="longest of `durations`")
    parser.add_argument("--page", action="store_true", help="write the tables into speed.md")
    options = parser.parse_args()
    parts = options.parts or list(QUICK)
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    warnings.simplefilter("ignore", ea.EaratlasWarning)
    with tempfile.TemporaryDirectory() as folder:
        atlas = options.atlas
        if "learning" in parts or atlas is None:
            unit = calibration_seconds()
            atlas = Path(folder) / "ku100.atlas"
            show("learning", [tasks.learn_ku100(atlas)], unit, write=options.page)
        setting = Setting(atlas, Path(folder), options.repeats)
        for part in PARTS:
            if part in parts and part != "learning":
                unit = calibration_seconds()
                show(part, measure(part, setting, options.minutes), unit, write=options.page)


if __name__ == "__main__":
    main()
