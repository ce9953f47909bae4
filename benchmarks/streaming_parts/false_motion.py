"""Single static talkers: how often they are reported as moving, or as two sources.

Talkers of 8 s, in `separate` (the number of sources is estimated) and in a stream. A scene has
false motion if a source moves in any report, and a false split if a report from 2 s on has several
confirmed, active sources. Rooms of random shape, size and reverberation time, measured rooms, and
heads that are not the learned one.

Settings were chosen on the rows of `MOTION_DEVELOPMENT` and judged on those of `MOTION_JUDGEMENT`.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from protocol import load_head

import earatlas as ea
from streaming_parts.other_heads import (
    DEVELOPMENT,
    FIRST,
    JUDGEMENT,
    RATE,
    STEP,
    Row,
    load_atlas,
    scenes,
)

SECONDS = 8.0


def random_room(rng: np.random.Generator) -> ea.Room:
    """Return a room of random shape, with the listener anywhere at least 1 m from the walls."""
    size = rng.uniform([3.5, 3.0, 2.4], [10.0, 8.0, 4.0])
    position = 1.0 + rng.uniform(size=3) * (size - 2.0)
    position[2] = rng.uniform(1.1, 1.7)
    shortest = ea.Room(tuple(size), 10.0, tuple(position)).smallest_t60_seconds
    t60 = max(float(np.exp(rng.uniform(np.log(0.2), np.log(0.8)))), 1.05 * shortest)
    return ea.Room(tuple(size), t60, tuple(position))


def _rows(rows: Sequence[Row], title: str, own: str) -> tuple[Row, ...]:
    """Return the rows of other heads and measured rooms, and random rooms with the own head."""
    chosen = [row for row in rows if row.room is None]
    return (Row(f"{title}, rooms", own, lambda: [load_head(own)], random_room), *chosen)


MOTION_DEVELOPMENT = _rows(DEVELOPMENT, "cipic_021", "cipic_021")
MOTION_JUDGEMENT = _rows(JUDGEMENT, "ku100", "ku100")


def false_motion(rows: Sequence[Row], count: int, seed: int, folder: Path | None) -> None:
    """Print the shares of scenes with false motion and false splits."""
    print(
        "| one static talker | scenes | `separate`: moves % | split % | stream: moves % | "
        "split % | reports with several % |\n|" + "---|" * 7
    )
    for row in rows:
        atlas = load_atlas(row.atlas, folder)
        found, several = [], []
        for scene in scenes(row, count, 1, seed, SECONDS):
            offline = atlas.separate(scene.mixture)
            live, moves, x = atlas.live(rate=RATE), False, scene.mixture.samples
            counts = []
            for start in range(0, x.shape[1] - STEP + 1, STEP):
                report = live.push(x[:, start : start + STEP])
                confirmed = [one for one in report.sources if one.confirmed and one.active]
                moves |= any(one.speed > 0 for one in confirmed)
                if report.time >= FIRST:
                    counts.append(len(confirmed))
            several += [n > 1 for n in counts]
            split = max(counts) > 1
            found.append(
                (any(s.moves for s in offline.sources), len(offline.sources) > 1, moves, split)
            )
        shares = " | ".join(f"{100 * share:.1f}" for share in np.mean(found, axis=0))
        print(
            f"| {row.title} | {len(found)} | {shares} | {100 * np.mean(several):.1f} |", flush=True
        )
