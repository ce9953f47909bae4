"""Regression check: a few figures of every part, in minutes, before and after a large change.

    python benchmarks/guard.py --save before.json
    … the change …
    python benchmarks/guard.py --against before.json

Heads are learned from 80 % of their directions and tested at the others; no table of docs/figures
uses these seeds. The second run prints both columns and the differences. Runs with two values of
`--seed` show which differences are due to chance. Streams of two talkers in a room and of one
moving talker use all directions of the head, of which the atlas learned 80 %. Some of the parts
mapping, talkers, mixtures and streams may be named to save time.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from protocol import load_head, mixtures, single_talkers, split
from separation_parts.metrics import direction_metrics, signal_metrics
from streaming import (
    SECONDS,
    TrackingFigures,
    best_sdr,
    moving_scenes,
    run_stream,
    tracking_figures,
)

import earatlas as ea
from earatlas.ppam.model import PPAM

PARTS = ("mapping", "talkers", "mixtures", "streams")
Figures = dict[str, float]


def mapping(name: str, seed: int) -> Figures:
    """Return direction errors of held-out cue vectors of one split."""
    training, held_out = split(load_head(name), seed)
    x, y = training.directions, training.cues()
    model = PPAM.fit(ea.Sphere(), x, y, components=len(training) // 10, seed=seed)
    error = ea.great_circle_error(held_out.directions, model.inverse_map(held_out.cues()))
    return {
        f"mapping, {name}: median °": float(np.median(error)),
        f"mapping, {name}: mean °": float(error.mean()),
    }


def talkers(atlas: ea.Atlas, held_out: ea.Head, count: int, seed: int) -> Figures:
    """Return errors and coverage of one talker, anechoic, in noise and reverberant."""
    figures = {}
    conditions: dict[str, tuple[float, ea.Room | None]] = {
        "anechoic": (60.0, None),
        "noise at 10 dB": (10.0, None),
        "T60 0.3 s": (60.0, ea.Room(t60_seconds=0.3)),
    }
    for name, (snr_db, room) in conditions.items():
        errors, levels = [], []
        for truth, audio in single_talkers(held_out, count, snr_db=snr_db, room=room, seed=seed):
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
    atlas: ea.Atlas,
    head: ea.Head,
    held_out: ea.Head,
    count: int,
    M: int,
    *,
    t60: float = 0.0,
    seed: int,
) -> Figures:
    """Return figures of separation with given number, and how often the number is estimated."""
    room = ea.Room(t60_seconds=t60) if t60 else None
    rows, correct, seconds = [], [], []
    for scene in mixtures(held_out, count, M, room=room, room_head=head, seed=seed):
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


def streamed(atlas: ea.Atlas, head: ea.Head, count: int, seed: int) -> Figures:
    """Return figures of streams: two talkers in a room, and one talker who moves."""
    room = ea.Room(t60_seconds=0.3)
    sdr, costs, tracking = [], [], TrackingFigures()
    for scene in mixtures(head, count, 2, seconds=SECONDS, room=room, seed=seed):
        reports, sounds, cost = run_stream(atlas.live(), scene.mixture.samples)
        sdr.append(best_sdr(scene.images, list(sounds.values())))
        costs.append(cost)
        tracking.add(reports, scene)
    _, scenes = next(moving_scenes(count, seed))
    moving = tracking_figures(atlas, scenes)
    return {
        "live, 2 talkers, T60 0.3 s: SDR dB": float(np.mean(sdr)),
        "live, 2 talkers, T60 0.3 s: CPU s per s": float(np.median(costs)),
        **_tracking("live, 2 talkers, T60 0.3 s", tracking),
        **_tracking("live, one moving talker", moving),
    }


def _tracking(name: str, figures: TrackingFigures) -> Figures:
    """Return the tracking figures of one condition by name."""
    minutes = figures.seconds / 60
    return {
        f"{name}: median °": float(np.median(figures.errors)),
        f"{name}: within radius_90, %": 100 * float(np.mean(figures.within)),
        f"{name}: missed talkers": float(figures.missed),
        f"{name}: false tracks per minute": figures.false / minutes,
        f"{name}: swaps per minute": figures.swaps / minutes,
    }


def all_figures(parts: list[str], count: int, seed: int) -> Figures:
    """Return the figures of some parts by name."""
    figures: Figures = {}
    if "mapping" in parts:
        figures |= mapping("ku100", seed) | mapping("cipic_021", seed)
    head = load_head("ku100")
    training, held_out = split(head, seed)
    start = time.process_time()
    atlas = ea.learn(training)
    figures["learning, ku100: CPU s"] = time.process_time() - start
    few = max(count // 2, 1)
    if "talkers" in parts:
        figures |= talkers(atlas, held_out, count, seed)
    if "mixtures" in parts:
        figures |= separated(atlas, head, held_out, count, 2, seed=seed)
        figures |= separated(atlas, head, held_out, few, 3, seed=seed)
        figures |= separated(atlas, head, held_out, few, 2, t60=0.3, seed=seed)
    if "streams" in parts:
        figures |= streamed(atlas, head, max(count // 4, 1), seed)
    return figures


def main() -> None:
    """Print the figures, next to those of another run if given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=list(PARTS), help="parts to run")
    parser.add_argument("--count", type=int, default=20, help="number of recordings per figure")
    parser.add_argument("--seed", type=int, default=77, help="seed of all scenes (default 77)")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument(
        "--against", type=Path, metavar="FILE", help="compare with the figures of another run"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore", ea.EaratlasWarning)
    figures = all_figures(options.parts, options.count, options.seed)
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
