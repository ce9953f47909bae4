"""A few figures of every part, in minutes: run it before and after a large change.

    python benchmarks/guard.py --save before.json
    … the change …
    python benchmarks/guard.py --against before.json

Heads are learned on 80 % of their directions and asked for the others; seeds are fixed, and none of
them is one that a table of docs/figures.md has. The second run prints both columns, and how much
each figure gained or lost. What is a matter of chance: with 20 mixtures, 0.5 dB and 10 points.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from protocol import head_of, mixtures, single_talkers, split
from separating.figures import place_figures, sound_figures

import earatlas as ea
from earatlas.ppam.model import PPAM

SEED = 77
Figures = dict[str, float]


def mapping(name: str) -> Figures:
    """Held-out cue vectors of one split."""
    known, asked = split(head_of(name), SEED)
    x, y = known.directions, known.cues()
    model = PPAM.fit(ea.Sphere(), x, y, components=len(known) // 10, seed=SEED)
    error = ea.great_circle_error(asked.directions, model.inverse_map(asked.cues()))
    return {
        f"mapping, {name}: median °": float(np.median(error)),
        f"mapping, {name}: mean °": float(error.mean()),
    }


def talkers(atlas: ea.Atlas, asked: ea.Head, count: int) -> Figures:
    """One talker in the open, in noise and in a room."""
    figures = {}
    conditions: dict[str, tuple[float, ea.Room | None]] = {
        "open": (60.0, None),
        "noise at 10 dB": (10.0, None),
        "T60 0.3 s": (60.0, ea.Room(t60_seconds=0.3)),
    }
    for name, (snr_db, room) in conditions.items():
        errors, levels = [], []
        for truth, audio in single_talkers(asked, count, snr_db=snr_db, room=room, seed=SEED):
            where = atlas.localize(audio)
            errors.append(float(ea.great_circle_error(truth, where.direction)))
            levels.append(where.posterior.level_of(truth, 500))
        figures[f"one talker, {name}: median °"] = float(np.median(errors))
        figures[f"one talker, {name}: beyond 30° %"] = 100 * float(np.mean(np.array(errors) > 30))
        figures[f"one talker, {name}: in 90 % region, %"] = 100 * float(
            np.mean(np.array(levels) <= 0.9)
        )
    return figures


def separated(
    atlas: ea.Atlas, head: ea.Head, asked: ea.Head, count: int, M: int, t60: float = 0.0
) -> Figures:
    """Several talkers whose number is told, and whether it would have been found."""
    room = ea.Room(t60_seconds=t60) if t60 else None
    rows, right, seconds = [], [], []
    for scene in mixtures(asked, count, M, room=room, around=head, seed=SEED):
        start = time.process_time()
        found = atlas.separate(scene.mixture, n_sources=M)
        seconds.append((time.process_time() - start) / scene.mixture.seconds)
        sounds = np.stack([source.audio.samples for source in found.sources])
        rows.append([sound_figures(scene, sounds)[0], place_figures(scene, found.directions)[2]])
        right.append(len(atlas.separate(scene.mixture, rendering="soft").sources) == M)
    sdr, beyond = np.array(rows).T
    name = f"{M} talkers, {f'T60 {t60:g} s' if t60 else 'open'}"
    return {
        f"{name}: SDR dB": float(sdr.mean()),
        f"{name}: worst fifth SDR dB": float(np.sort(sdr)[: max(count // 5, 1)].mean()),
        f"{name}: beyond 20° %": float(beyond.mean()),
        f"{name}: number right %": 100 * float(np.mean(right)),
        f"{name}: CPU s per s": float(np.median(seconds)),
    }


def figures_of(count: int) -> Figures:
    """All of them."""
    figures = mapping("ku100") | mapping("cipic_021")
    head = head_of("ku100")
    known, asked = split(head, SEED)
    start = time.process_time()
    atlas = ea.learn(known)
    figures["learning, ku100: CPU s"] = time.process_time() - start
    figures |= talkers(atlas, asked, count)
    figures |= separated(atlas, head, asked, count, 2)
    figures |= separated(atlas, head, asked, max(count // 2, 1), 3)
    return figures | separated(atlas, head, asked, max(count // 2, 1), 2, 0.3)


def main() -> None:
    """Print the figures, beside those of another run if it is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20, help="recordings a figure")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep the figures as JSON")
    parser.add_argument("--against", type=Path, metavar="FILE", help="figures of another run")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ea.EaratlasWarning)
    figures = figures_of(options.count)
    if options.save:
        options.save.write_text(json.dumps(figures, indent=1) + "\n")
    before = json.loads(options.against.read_text()) if options.against else {}
    print("| | before | now | change |\n|---|---|---|---|")
    for name, value in figures.items():
        if name in before:
            print(f"| {name} | {before[name]:.2f} | {value:.2f} | {value - before[name]:+.2f} |")
        else:
            print(f"| {name} | – | {value:.2f} | – |")


if __name__ == "__main__":
    main()
