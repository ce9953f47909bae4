"""Write the two tables of a set of recordings that was made by turning the head.

A loudspeaker stays in place, and a robot turns the head to a list of motor states. For each state
there is a recording of noise and, optionally, one of speech. The input is a CSV file with the
columns `pan` and `tilt` in degrees, optionally `speaker`, one row per state, and a folder of
recordings per kind; the files of a folder, sorted by the numbers in their names, belong to the
states in their order. The output are `positions.csv` (the head) and `speech.csv` (test talkers):

    python examples/tables_of_recordings.py states.csv --noise noise --speech speech -o camil
    earatlas reproduce all --head camil --speech camil/speech.csv -o reproduced

A head that turns to the left finds the loudspeaker on its right: azimuth = -pan, elevation = -tilt.
If pan counts to the right or tilt downwards, use `--pan-sign 1` or `--tilt-sign 1`.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
from collections.abc import Sequence
from pathlib import Path

SUFFIXES = (".wav", ".flac", ".ogg", ".aiff", ".aif")


def recordings(folder: Path) -> list[Path]:
    """Return the sound files of a folder in the order of the numbers in their names."""
    files = [file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES]

    def order(file: Path) -> list[tuple[int, str]]:
        parts = re.split(r"(\d+)", file.stem)
        return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]

    return sorted(files, key=order)


def write_table(path: Path, files: list[Path], states: list[dict[str, str]], signs: tuple[int, int],
                *, speakers: bool) -> None:  # fmt: skip
    """Write a table of recordings; file names are relative to its folder."""
    if len(files) != len(states):
        raise SystemExit(
            f"A folder must have one recording for each of the {len(states)} motor states, got "
            f"{len(files)} recordings. Remove other files, or correct the list of states."
        )
    with path.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        writer.writerow(["file", "azimuth", "elevation", *(["speaker"] if speakers else [])])
        for n, (file, state) in enumerate(zip(files, states, strict=True)):
            azimuth = signs[0] * float(state["pan"])
            elevation = signs[1] * float(state["tilt"])
            # Without names, every recording counts as that of another speaker.
            speaker = [state.get("speaker") or f"speaker{n}"] if speakers else []
            name = os.path.relpath(file, path.parent)
            writer.writerow([name, azimuth + 0.0, elevation + 0.0, *speaker])
    print(f"{path}: {len(files)} recordings")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the arguments and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("states", type=Path, nargs="?", help="CSV file with pan, tilt[, speaker]")
    parser.add_argument("--noise", type=Path, help="folder of noise recordings")
    parser.add_argument("--speech", type=Path, help="folder of speech recordings")
    parser.add_argument("--pan-sign", type=int, choices=(-1, 1), default=-1)
    parser.add_argument("--tilt-sign", type=int, choices=(-1, 1), default=-1)
    parser.add_argument("-o", "--output", type=Path, default=Path())
    options = parser.parse_args(arguments)
    if options.states is None:
        print(__doc__)
        return
    with options.states.open(newline="", encoding="utf-8-sig") as handle:
        states = list(csv.DictReader(handle))
    signs = (options.pan_sign, options.tilt_sign)
    options.output.mkdir(parents=True, exist_ok=True)
    for folder, name in ((options.noise, "positions.csv"), (options.speech, "speech.csv")):
        if folder is not None:
            table = options.output / name
            write_table(table, recordings(folder), states, signs, speakers=name == "speech.csv")


if __name__ == "__main__":
    main()
