"""Localization on the measured heads; run as `python benchmarks/localization.py PART …`.

Parts: mapping (held-out cue vectors), ablation (one setting changed at a time), speech (one talker,
clean, in noise and in a room, with the coverage of the credible regions, plotted with `--picture`),
calibration (coverage over several splits), speed. Default: mapping, speech and speed. Heads and
speech are read from EARATLAS_DATA. Splits and seeds are fixed.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from protocol import load_head, min_seconds, reverberant_head, single_talkers, split, within_plane

import earatlas as ea
from earatlas.atlas import Atlas, learn
from earatlas.localization.learned_head import Accuracy
from earatlas.plotting.posteriors import plot_reliability
from earatlas.plotting.style import save
from earatlas.ppam.em import EMSettings
from earatlas.ppam.model import PPAM

HEADS = ("ku100", "cipic_021", "cipic_003")
PARTS = ("mapping", "ablation", "speech", "calibration", "speed")
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


def held_out_errors(head: ea.Head, space: ea.Space, splits: int, **options: object) -> Accuracy:
    """Return the errors over all held-out directions of several random splits."""
    true, estimated = [], []
    for seed in range(splits):
        training, held_out = split(head, seed)
        model = PPAM.fit(space, training.directions, training.cues(), seed=seed, **options)  # type: ignore[arg-type]
        true.append(held_out.directions)
        estimated.append(model.inverse_map(held_out.cues()))
    return Accuracy.of(np.concatenate(true), np.concatenate(estimated))


def row(name: str, accuracy: Accuracy) -> str:
    """Return one row of a table."""
    return (
        f"| {name} | {accuracy.median_degrees:.2f} | {accuracy.mean_degrees:.2f} | "
        f"{100 * accuracy.beyond_30_share:.2f} | {accuracy.mean_azimuth_degrees:.2f} | "
        f"{accuracy.mean_elevation_degrees:.2f} |"
    )


HEADER = (
    "| | median ° | mean ° | beyond 30° % | mean azimuth ° | mean elevation ° |\n"
    "|---|---|---|---|---|---|"
)


def mapping(splits: int) -> None:
    """Print errors of the paper's inverse map for full cue vectors at held-out directions."""
    print(f"\n### Held-out cue vectors, {splits} random 80/20 splits\n\n{HEADER}")
    plane = within_plane(load_head("ku100"))
    print(row("ku100, plane, K = 64", held_out_errors(plane, ea.Plane(), splits, components=64)))
    for name in HEADS:
        head = load_head(name)
        n_training = int(0.8 * len(head))
        components = n_training // 10
        result = held_out_errors(head, ea.Sphere(), splits, components=components)
        print(row(f"{name}, sphere, K = {components}", result), flush=True)


def ablation(splits: int) -> None:
    """Print errors with one setting changed at a time, on the three heads."""
    print(f"\n### One setting changed at a time, sphere, {splits} splits\n\n{HEADER}")
    for name in HEADS:
        head = load_head(name)
        n_training = int(0.8 * len(head))
        K = n_training // 10
        paper = EMSettings(spread_prior=None, temperature=1.0)
        for label, options in (
            ("default", {"components": K}),
            ("latent 0", {"components": K, "latent": 0}),
            ("latent 5", {"components": K, "latent": 5}),
            ("latent 20", {"components": K, "latent": 20}),
            ("free weights and volumes", {"components": K, "constrained": False}),
            ("one noise scale (g = 1)",
             {"components": K, "settings": EMSettings(spread_prior=None)}),
            ("no temperature",
             {"components": K, "settings": EMSettings(temperature=1.0)}),
            (f"K = {n_training // 50}", {"components": n_training // 50}),
            (f"K = {n_training // 25}", {"components": n_training // 25}),
            (f"K = {n_training // 8}", {"components": n_training // 8}),
            ("the paper's PPAM, K = 64", {"components": 64, "latent": 0, "settings": paper}),
        ):  # fmt: skip
            print(
                row(f"{name}: {label}", held_out_errors(head, ea.Sphere(), splits, **options)),
                flush=True,
            )


def localize_talkers(
    atlas: Atlas, head: ea.Head, count: int, **scene: object
) -> tuple[str, list[float]]:
    """Return a row of errors on single talkers, and the credible levels of the true directions."""
    true, estimated, levels, observed = [], [], [], []
    for direction, recording in single_talkers(head, count, **scene):  # type: ignore[arg-type]
        result = atlas.localize(recording)
        true.append(direction)
        estimated.append(result.direction)
        levels.append(result.posterior.credible_level(direction))
        observed.append(result.observed_share)
    accuracy = Accuracy.of(np.array(true), np.array(estimated))
    line = row("{}", accuracy) + f" {100 * (1 - np.mean(observed)):.0f} |"
    return line, levels


def coverage(name: str, levels: list[float]) -> str:
    """Return a row: how often the true direction is in the region of each level, in %."""
    percentages = [100 * float(np.mean(np.array(levels) <= level)) for level in LEVELS]
    return f"| {name} | " + " | ".join(f"{h:.0f}" for h in percentages) + " |"


def print_coverage(levels_by_name: dict[str, list[float]]) -> None:
    """Print the table of the coverage of the credible regions."""
    print("\n### Coverage of the credible regions, in %\n")
    print("| region | " + " | ".join(f"{100 * level:.0f} %" for level in LEVELS) + " |")
    print("|---" * (len(LEVELS) + 1) + "|")
    for name, levels in levels_by_name.items():
        print(coverage(name, levels))


def spaces_of(head: ea.Head) -> tuple[tuple[str, ea.Space, ea.Head], ...]:
    """Return the paper's plane and the sphere, with the directions of the head in them."""
    return ("plane", ea.Plane(), within_plane(head)), ("sphere", ea.Sphere(), head)


def speech(count: int, room_learned: bool, picture: Path | None) -> None:
    """Print errors and coverage of one talker, 2 to 5 s, at held-out directions of ku100."""
    lines: list[str] = []
    levels: dict[str, list[float]] = {}

    def add_row(name: str, atlas: Atlas, held_out: ea.Head, **scene: object) -> None:
        line, levels[name] = localize_talkers(atlas, held_out, count, **scene)
        lines.append(line.format(name))

    for name, space, whole in spaces_of(load_head("ku100")):
        training, held_out = split(whole, 0)
        atlas = learn(training, space=space)
        add_row(f"{name}, clean", atlas, held_out)
        add_row(f"{name}, 20 dB noise", atlas, held_out, snr_db=20.0)
        add_row(f"{name}, 10 dB noise", atlas, held_out, snr_db=10.0)
        if name == "plane":
            room = ea.Room(t60_seconds=0.3)
            add_row("plane, room T60 0.3 s, learned anechoically", atlas, held_out, room=room)
            if room_learned:
                reverberant = learn(reverberant_head(training, room, training), space=space)
                add_row(
                    "plane, room T60 0.3 s, learned in the room", reverberant, held_out, room=room
                )
    print(f"\n### One talker, {count} recordings each\n")
    header, rule = HEADER.split("\n")
    print(header + " missing bins % |\n" + rule + "---|")
    print("\n".join(lines))
    print_coverage(levels)
    if picture is None:
        return
    labelled = {name.replace(" T60 0.3 s", "").replace("learned ", "learned\n"): levels[name]
             for name in levels}  # fmt: skip
    save(plot_reliability(labelled, title=f"One talker, {count} recordings per line"), picture)


def calibration(splits: int, count: int) -> None:
    """Print the coverage of the regions of a clean talker, for each split and over all."""
    levels: dict[str, list[float]] = {}
    for head_name in HEADS:
        for name, space, whole in spaces_of(load_head(head_name)):
            if name == "plane" and head_name != "ku100":
                continue
            pooled: list[float] = []
            for seed in range(splits):
                training, held_out = split(whole, seed)
                atlas = learn(training, space=space)
                label = f"{head_name}, {name}, split {seed}"
                levels[label] = localize_talkers(atlas, held_out, count, seed=seed)[1]
                pooled += levels[label]
                print(coverage(label, levels[label]), flush=True)
            levels[f"{head_name}, {name}, all splits"] = pooled
    print_coverage(levels)


def speed() -> None:
    """Print the cost of learning, loading and localizing, the file size, and the cost per hop."""
    head = load_head("ku100")
    start = time.perf_counter()
    atlas = learn(head)
    print("\n### Speed\n")
    print(f"- learn ku100, K = {len(atlas.model.weights)}, with held-out errors and calibration: "
          f"{time.perf_counter() - start:.1f} s")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        small = learn(head, components=64)
        path = small.save(Path(folder) / "k64.atlas")
        size = os.path.getsize(path) / 1e6
        seconds = min_seconds(lambda: Atlas.load(path))
    print(f"- atlas at K = 64: {size:.2f} MB, loads in {1000 * seconds:.0f} ms")
    x = 0.1 * np.random.default_rng(0).normal(size=(2, 160_000))
    audio = ea.Audio(x, 16_000)
    seconds = min_seconds(lambda: atlas.localize(audio).direction)
    print(f"- localize 10 s: {1000 * seconds:.0f} ms, real-time factor {seconds / 10:.4f}")
    stream = atlas.localizer(memory_seconds=1.0)

    def push_all() -> None:
        for i in range(0, 64_000, 128):
            stream.push(x[:, i : i + 128])

    seconds = min_seconds(push_all, 1)
    estimate_seconds = min_seconds(lambda: stream.where().direction)
    print(f"- Localizer: {1000 * seconds / 500:.2f} ms per hop of 8 ms; an estimate takes "
          f"{1000 * estimate_seconds:.0f} ms more, on request")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS])
    parser.add_argument("--splits", type=int, default=5, help="number of random splits")
    parser.add_argument("--recordings", type=int, default=200, help="number of recordings per row")
    parser.add_argument("--picture", type=Path, help="plot the coverage of speech to this file")
    parser.add_argument(
        "--room-learned", action="store_true", help="also learn in the room (takes minutes)"
    )
    arguments = parser.parse_args()
    for part in arguments.parts or ["mapping", "speech", "speed"]:
        match part:
            case "mapping":
                mapping(arguments.splits)
            case "ablation":
                ablation(arguments.splits)
            case "speech":
                speech(arguments.recordings, arguments.room_learned, arguments.picture)
            case "calibration":
                calibration(arguments.splits, arguments.recordings)
            case "speed":
                speed()
