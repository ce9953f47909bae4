"""Localization figures on the measured heads; run as `python benchmarks/localization.py PART …`.

Parts: mapping (held-out cue vectors), ablation (what each choice brings), speech (one talker,
noise, a room, and how honest the regions are, with a `--picture`), calibration (honesty
over several splits), speed. Without a part: mapping, speech and speed. The heads and the speech
come from EARATLAS_DATA. Splits and seeds are fixed.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from protocol import best_seconds, head_of, in_room, single_talkers, split, within_plane

import earatlas as ea
from earatlas.atlas import Atlas, learn
from earatlas.localization.learned_head import Accuracy
from earatlas.plotting.posteriors import plot_reliability
from earatlas.plotting.style import save
from earatlas.ppam.em import Learning
from earatlas.ppam.model import PPAM

HEADS = ("ku100", "cipic_021", "cipic_003")
PARTS = ("mapping", "ablation", "speech", "calibration", "speed")
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


def errors_of(head: ea.Head, space: ea.Space, splits: int, **options: object) -> Accuracy:
    """Errors over all held-out directions of some random splits."""
    true, found = [], []
    for seed in range(splits):
        known, asked = split(head, seed)
        model = PPAM.fit(space, known.directions, known.cues(), seed=seed, **options)  # type: ignore[arg-type]
        true.append(asked.directions)
        found.append(model.inverse_map(asked.cues()))
    return Accuracy.of(np.concatenate(true), np.concatenate(found))


def row(name: str, a: Accuracy) -> str:
    """One line of a table."""
    return (
        f"| {name} | {a.median_degrees:.2f} | {a.mean_degrees:.2f} | "
        f"{100 * a.beyond_30_share:.2f} | {a.mean_azimuth_degrees:.2f} | "
        f"{a.mean_elevation_degrees:.2f} |"
    )


HEADER = (
    "| | median ° | mean ° | beyond 30° % | mean azimuth ° | mean elevation ° |\n"
    "|---|---|---|---|---|---|"
)


def mapping(splits: int) -> None:
    """Full cue vectors from held-out directions: the paper's inverse map."""
    print(f"\n### Held-out cue vectors, {splits} random 80/20 splits\n\n{HEADER}")
    plane = within_plane(head_of("ku100"))
    print(row("ku100, plane, K = 64", errors_of(plane, ea.Plane(), splits, components=64)))
    for name in HEADS:
        head = head_of(name)
        known = int(0.8 * len(head))
        components = known // 10
        result = errors_of(head, ea.Sphere(), splits, components=components)
        print(row(f"{name}, sphere, K = {components}", result), flush=True)


def ablation(splits: int) -> None:
    """One choice changed at a time, on the three heads."""
    print(f"\n### One choice at a time, sphere, {splits} splits\n\n{HEADER}")
    for name in HEADS:
        head = head_of(name)
        known = int(0.8 * len(head))
        default = known // 10
        paper = Learning(spread_prior=None, temperature=1.0)
        for label, options in (
            ("default", {"components": default}),
            ("latent 0", {"components": default, "latent": 0}),
            ("latent 5", {"components": default, "latent": 5}),
            ("latent 20", {"components": default, "latent": 20}),
            ("free weights and volumes", {"components": default, "constrained": False}),
            ("start from x and y", {"components": default, "learning": Learning(start="joint")}),
            ("no own spread (g = 1)",
             {"components": default, "learning": Learning(spread_prior=None)}),
            ("no temperature", {"components": default, "learning": Learning(temperature=1.0)}),
            (f"K = {known // 50}", {"components": known // 50}),
            (f"K = {known // 25}", {"components": known // 25}),
            (f"K = {known // 8}", {"components": known // 8}),
            ("the paper's PPAM, K = 64", {"components": 64, "latent": 0, "learning": paper}),
        ):  # fmt: skip
            print(
                row(f"{name}: {label}", errors_of(head, ea.Sphere(), splits, **options)), flush=True
            )


def talk(atlas: Atlas, head: ea.Head, count: int, **scene: object) -> tuple[str, list[float]]:
    """A table line of errors on single talkers, and the levels of the truths."""
    true, found, levels, shares = [], [], [], []
    for direction, recording in single_talkers(head, count, **scene):  # type: ignore[arg-type]
        where = atlas.localize(recording)
        true.append(direction)
        found.append(where.direction)
        levels.append(where.posterior.level_of(direction))
        shares.append(where.observed_share)
    a = Accuracy.of(np.array(true), np.array(found))
    line = row("{}", a) + f" {100 * (1 - np.mean(shares)):.0f} |"
    return line, levels


def coverage(name: str, levels: list[float]) -> str:
    """A table line: how often the truth lay in the region of each level."""
    held = [100 * float(np.mean(np.array(levels) <= level)) for level in LEVELS]
    return f"| {name} | " + " | ".join(f"{h:.0f}" for h in held) + " |"


def print_coverage(levels_by_name: dict[str, list[float]]) -> None:
    """The table of how often truths lie in their regions."""
    print("\n### How often the truth is in the credible region, in %\n")
    print("| region | " + " | ".join(f"{100 * level:.0f} %" for level in LEVELS) + " |")
    print("|---" * (len(LEVELS) + 1) + "|")
    for name, levels in levels_by_name.items():
        print(coverage(name, levels))


def spaces_of(head: ea.Head) -> tuple[tuple[str, ea.Space, ea.Head], ...]:
    """The paper's plane and the sphere, with the directions that they have."""
    return ("plane", ea.Plane(), within_plane(head)), ("sphere", ea.Sphere(), head)


def speech(count: int, room_learned: bool, picture: Path | None) -> None:
    """One talker, 2 to 5 s, from held-out directions of ku100."""
    lines: list[str] = []
    levels: dict[str, list[float]] = {}

    def ask(name: str, atlas: Atlas, asked: ea.Head, **scene: object) -> None:
        line, levels[name] = talk(atlas, asked, count, **scene)
        lines.append(line.format(name))

    for name, space, whole in spaces_of(head_of("ku100")):
        known, asked = split(whole, 0)
        atlas = learn(known, space=space)
        ask(f"{name}, clean", atlas, asked)
        ask(f"{name}, 20 dB noise", atlas, asked, snr_db=20.0)
        ask(f"{name}, 10 dB noise", atlas, asked, snr_db=10.0)
        if name == "plane":
            room = ea.Room(t60_seconds=0.3)
            ask("plane, room T60 0.3 s, learned anechoically", atlas, asked, room=room)
            if room_learned:
                wet = learn(in_room(known, room, known), space=space)
                ask("plane, room T60 0.3 s, learned in the room", wet, asked, room=room)
    print(f"\n### One talker, {count} recordings each\n")
    head_line, rule = HEADER.split("\n")
    print(head_line + " missing bins % |\n" + rule + "---|")
    print("\n".join(lines))
    print_coverage(levels)
    if picture is None:
        return
    short = {name.replace(" T60 0.3 s", "").replace("learned ", "learned\n"): levels[name]
             for name in levels}  # fmt: skip
    save(plot_reliability(short, title=f"One talker, {count} recordings a line"), picture)


def calibration(splits: int, count: int) -> None:
    """How often the region of a clean talker holds the truth, split by split, and over all."""
    levels: dict[str, list[float]] = {}
    for head_name in HEADS:
        for name, space, whole in spaces_of(head_of(head_name)):
            if name == "plane" and head_name != "ku100":
                continue
            pooled: list[float] = []
            for seed in range(splits):
                known, asked = split(whole, seed)
                atlas = learn(known, space=space)
                label = f"{head_name}, {name}, split {seed}"
                levels[label] = talk(atlas, asked, count, seed=seed)[1]
                pooled += levels[label]
                print(coverage(label, levels[label]), flush=True)
            levels[f"{head_name}, {name}, all splits"] = pooled
    print_coverage(levels)


def speed() -> None:
    """Whole learning, file size, loading, localizing, and the stream's cost a hop."""
    head = head_of("ku100")
    start = time.perf_counter()
    atlas = learn(head)
    print("\n### Speed\n")
    print(f"- learn ku100, K = {len(atlas.model.weights)}, held-out errors and calibration: "
          f"{time.perf_counter() - start:.1f} s")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        small = learn(head, components=64)
        path = small.save(Path(folder) / "k64.atlas")
        size = os.path.getsize(path) / 1e6
        seconds = best_seconds(lambda: Atlas.load(path))
    print(f"- atlas at K = 64: {size:.2f} MB, loads in {1000 * seconds:.0f} ms")
    x = 0.1 * np.random.default_rng(0).normal(size=(2, 160_000))
    audio = ea.Audio(x, 16_000)
    seconds = best_seconds(lambda: atlas.localize(audio).direction)
    print(f"- localize 10 s: {1000 * seconds:.0f} ms, real-time factor {seconds / 10:.4f}")
    stream = atlas.localizer(memory_seconds=1.0)

    def push_all() -> None:
        for i in range(0, 64_000, 128):
            stream.push(x[:, i : i + 128])

    seconds = best_seconds(push_all, 1)
    answer = best_seconds(lambda: stream.where().direction)
    print(f"- Localizer: {1000 * seconds / 500:.2f} ms a hop of 8 ms; an answer takes "
          f"{1000 * answer:.0f} ms more, when asked")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--recordings", type=int, default=200)
    parser.add_argument("--picture", type=Path, help="of how honest the regions of speech are")
    parser.add_argument("--room-learned", action="store_true", help="minutes of room responses")
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
