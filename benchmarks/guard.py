"""Regression check: a few figures of every part, in minutes, before and after a large change.

    python benchmarks/guard.py --save before.json
    … the change …
    python benchmarks/guard.py --against before.json

Heads are learned from 80 % of their directions and tested at the others. Seeds are fixed; no table
of docs/figures uses them. The second run prints both columns and the differences. With 20
mixtures, differences up to 0.5 dB and 10 percentage points are due to chance.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from protocol import load_head, mixtures, single_talkers, split
from separation_parts.metrics import direction_metrics, signal_metrics

import earatlas as ea
from earatlas.ppam.model import PPAM

SEED = 77
Figures = dict[str, float]


def mapping(name: str) -> Figures:
    """Return direction errors of held-out cue vectors of one split."""
    training, held_out = split(load_head(name), SEED)
    x, y = training.directions, training.cues()
    model = PPAM.fit(ea.Sphere(), x, y, components=len(training) // 10, seed=SEED)
    error = ea.great_circle_error(held_out.directions, model.inverse_map(held_out.cues()))
    return {
        f"mapping, {name}: median °": float(np.median(error)),
        f"mapping, {name}: mean °": float(error.mean()),
    }


def talkers(atlas: ea.Atlas, held_out: ea.Head, count: int) -> Figures:
    """Return errors and coverage of one talker, anechoic, in noise and reverberant."""
    figures = {}
    conditions: dict[str, tuple[float, ea.Room | None]] = {
        "anechoic": (60.0, None),
        "noise at 10 dB": (10.0, None),
        "T60 0.3 s": (60.0, ea.Room(t60_seconds=0.3)),
    }
    for name, (snr_db, room) in conditions.items():
        errors, levels = [], []
        for truth, audio in single_talkers(held_out, count, snr_db=snr_db, room=room, seed=SEED):
            result = atlas.localize(audio)
            errors.append(float(ea.great_circle_error(truth, result.direction)))
            levels.append(result.posterior.credible_level(truth, 500))
        figures[f"one talker, {name}: median °"] = float(np.median(errors))
        figures[f"one talker, {name}: beyond 30° %"] = 100 * float(np.mean(np.array(errors) > 30))
        figures[f"one talker, {name}: in 90 % region, %"] = 100 * float(
            np.mean(np.array(levels) <= 0.9)
        )
    return figures


def separated(
    atlas: ea.Atlas, head: ea.Head, held_out: ea.Head, count: int, M: int, t60: float = 0.0
) -> Figures:
    """Return figures of separation with given number, and how often the number is estimated."""
    room = ea.Room(t60_seconds=t60) if t60 else None
    rows, correct, seconds = [], [], []
    for scene in mixtures(held_out, count, M, room=room, room_head=head, seed=SEED):
        start = time.process_time()
        result = atlas.separate(scene.mixture, n_sources=M)
        seconds.append((time.process_time() - start) / scene.mixture.seconds)
        sounds = np.stack([source.audio.samples for source in result.sources])
        rows.append(
            [signal_metrics(scene, sounds)[0], direction_metrics(scene, result.directions)[2]]
        )
        correct.append(len(atlas.separate(scene.mixture, rendering="soft").sources) == M)
    sdr, beyond = np.array(rows).T
    name = f"{M} talkers, {f'T60 {t60:g} s' if t60 else 'anechoic'}"
    return {
        f"{name}: SDR dB": float(sdr.mean()),
        f"{name}: worst fifth SDR dB": float(np.sort(sdr)[: max(count // 5, 1)].mean()),
        f"{name}: beyond 20° %": float(beyond.mean()),
        f"{name}: number correct %": 100 * float(np.mean(correct)),
        f"{name}: CPU s per s": float(np.median(seconds)),
    }


def all_figures(count: int) -> Figures:
    """Return all figures by name."""
    figures = mapping("ku100") | mapping("cipic_021")
    head = load_head("ku100")
    training, held_out = split(head, SEED)
    start = time.process_time()
    atlas = ea.learn(training)
    figures["learning, ku100: CPU s"] = time.process_time() - start
    figures |= talkers(atlas, held_out, count)
    figures |= separated(atlas, head, held_out, count, 2)
    figures |= separated(atlas, head, held_out, max(count // 2, 1), 3)
    return figures | separated(atlas, head, held_out, max(count // 2, 1), 2, 0.3)


def main() -> None:
    """Print the figures, next to those of another run if given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20, help="number of recordings per figure")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument(
        "--against", type=Path, metavar="FILE", help="compare with the figures of another run"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore", ea.EaratlasWarning)
    figures = all_figures(options.count)
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
