"""Front-back confusions of a stream before and after the first turn of the head by 20 degrees.

    python benchmarks/live_rotation.py [--count 10] [--seed 51] [--only TEXT] [--atlases FOLDER]

One talker of 5 s. The head rests for 2 s, turns to the left by 20 degrees in a second, and rests
again; its yaw is given. In the second row of each pair it does not turn. Each pose is rendered
separately (benchmarks/yaw.py). Printed: the share of talkers that are reported nearer to their
mirror image at the frontal plane than to their direction, at the end of the rest (2 s), of the turn
(3 s) and later; the share beyond 30 degrees at the end, and talkers without a confirmed source.
Talkers within 15 degrees of the frontal plane are not drawn. Nothing was chosen on these scenes.
"""

import argparse
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from protocol import load_head, speech_excerpt, utterances
from streaming_parts.other_heads import load_atlas
from yaw import RATE, STEP_DEGREES, Poses, mirrored, poses, record

import earatlas as ea
from earatlas.features.audio_files import audio_seconds
from earatlas.geometry.angles import to_vectors
from earatlas.types import Array, Indices

TURN_DEGREES, REST_SECONDS, TURN_SECONDS, SECONDS, BLOCK = 20.0, 2.0, 1.0, 5.0, 800
TIMES = (2.0, 3.0, 3.5, 5.0)  # seconds at which the reports are judged
# Title, learned head, head of the recordings, T60 in seconds
ROWS = (
    ("ku100, T60 0.5 s", "ku100", "ku100", 0.5),
    ("kemar_full with cipic_021, anechoic", "cipic_021", "kemar_full", 0.0),
    ("kemar_full with cipic_021, T60 0.3 s", "cipic_021", "kemar_full", 0.3),
)


def turn(rendered: Poses) -> Indices:
    """Return the pose (n,) of each part of a scene in which the head rests, turns and rests."""
    middle, last = len(rendered.yaws) // 2, len(rendered.yaws) - 1
    part_seconds = TURN_SECONDS * STEP_DEGREES / TURN_DEGREES
    rest, end = round(REST_SECONDS / part_seconds), round(SECONDS / part_seconds)
    order = np.full(end, last, dtype=np.intp)
    order[:rest] = middle
    order[rest : rest + last - middle] = np.arange(middle, last)
    return order


@dataclass
class Confusions:
    """Front-back confusions and errors at `TIMES`; NaN without a confirmed source."""

    confused: list[list[float]] = field(default_factory=list)
    errors: list[list[float]] = field(default_factory=list)

    def add(self, reports: Sequence[ea.LiveReport], direction: Array) -> None:
        """Add the reports of one talker; the source that was active last is judged."""
        confused, errors = [], []
        for seconds in TIMES:
            report = min(reports, key=lambda one: abs(one.time - seconds))
            sources = [one for one in report.sources if one.confirmed]
            if not sources:
                confused.append(np.nan)
                errors.append(np.nan)
                continue
            found = min(sources, key=lambda one: one.age).direction
            error = float(ea.great_circle_error(direction, found))
            mirror = mirrored(direction[None])[0]
            confused.append(float(ea.great_circle_error(mirror, found) < error))
            errors.append(error)
        self.confused.append(confused)
        self.errors.append(errors)

    def row(self) -> str:
        """Return the cells of one row."""
        confused, errors = np.array(self.confused), np.array(self.errors)
        shares = " | ".join(f"{100 * share:.0f}" for share in np.nanmean(confused, axis=0))
        last = errors[:, -1]
        return (
            f"{len(errors)} | {shares} | {100 * np.mean(last[~np.isnan(last)] > 30):.0f} | "
            f"{int(np.isnan(errors).any(axis=1).sum())}"
        )


def compare(atlas: ea.Atlas, head: ea.Head, t60: float, count: int, seed: int) -> list[str]:
    """Return the cells of a head that turns, and of one that does not."""
    rng = np.random.default_rng(seed)
    files = [path for path in utterances() if audio_seconds(path) >= SECONDS]
    off_plane = np.abs(np.degrees(np.arcsin(to_vectors(head.directions)[:, 0]))) > 15
    directions = head.directions[off_plane]
    turning, resting = Confusions(), Confusions()
    for number in range(count):
        direction = directions[rng.integers(len(directions))]
        dry = speech_excerpt(files[rng.integers(len(files))], SECONDS, rng)
        rendered = poses(head, direction, t60, TURN_DEGREES)
        order = turn(rendered)
        for figures, parts in ((turning, order), (resting, order[:2])):
            audio, yaw = record(dry, rendered, parts, number)
            live = atlas.live(rate=RATE, yaw=yaw)
            starts = range(0, round(SECONDS * RATE), BLOCK)
            reports = [live.push(audio.samples[:, i : i + BLOCK]) for i in starts]
            figures.add(reports, direction)
    return [turning.row(), resting.row()]


def main() -> None:
    """Print two rows per condition."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=10, help="talkers per row")
    parser.add_argument("--seed", type=int, default=51, help="seed of the scenes")
    parser.add_argument("--only", default="", help="only rows whose title contains this text")
    parser.add_argument("--atlases", type=Path, help="folder in which learned atlases are kept")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ea.EaratlasWarning)
    columns = " | ".join(f"confused after {seconds:g} s %" for seconds in TIMES)
    print(f"| | talkers | {columns} | beyond 30° % | without source |\n|{'---|' * 8}")
    for title, learned, recorded, t60 in ROWS:
        if options.only not in title:
            continue
        atlas = load_atlas(learned, options.atlases)
        cells = compare(atlas, load_head(recorded), t60, options.count, options.seed)
        for motion, row in zip(("turns", "rests"), cells, strict=True):
            print(f"| {title}: the head {motion} | {row} |", flush=True)


if __name__ == "__main__":
    main()
