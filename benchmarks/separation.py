"""Separation on the measured heads; run as `python benchmarks/separation.py PART …`.

Parts: mixtures (two and three anechoic talkers, all methods), defaults (the default method alone,
anechoic and in rooms, for many mixtures), initialization (initializations of VESSL), count (number
of sources), rooms (all methods in simulated and measured rooms), blind (blind methods in all rooms,
with and without WPE), fullband (48 kHz), speed, memory. Default: all parts. Heads, rooms and speech
are read from EARATLAS_DATA. Seeds are fixed. `--jobs` mixtures are processed in parallel; fullband,
speed and memory use one process.
"""

import argparse

import joblib
import numpy as np
from protocol import DATA, load_head, mixtures, reverberant_head, split, within_plane
from separation_parts import cost, fullband
from separation_parts.initialization import every_initialization, our_scales
from separation_parts.methods import (
    as_published,
    blind_methods,
    default,
    every_method,
    ours,
    room_methods,
)
from separation_parts.metrics import on_mixtures, print_incrementally, table

import earatlas as ea
from earatlas.evaluation.directions import assign_directions
from earatlas.experiments.vessl_as_published import paper_scales

LEVELS = (0.5, 0.9)
CONDITIONS = ["anechoic", "simulated", "measured"]
PARTS = (
    "mixtures", "published", "defaults", "initialization", "count", "rooms", "blind", "fullband",
    "speed", "memory",
)  # fmt: skip


def plane_atlas() -> tuple[ea.Atlas, ea.Head, ea.Head]:
    """Return an atlas of 80 % of the plane of ku100, K = 64, the training and held-out heads."""
    training, held_out = split(within_plane(load_head("ku100")), 0)
    return ea.learn(training, space=ea.Plane(), components=64), training, held_out


def anechoic_mixtures(count: int, jobs: int, talkers: list[int]) -> None:
    """Print tables of all methods for anechoic talkers."""
    atlas, training, held_out = plane_atlas()
    paper_models = paper_scales(training.directions, training.cues(), 64)
    for M in talkers:
        rows = on_mixtures(every_method, mixtures(held_out, count, M), jobs, atlas, paper_models)
        table(f"{M} talkers, ku100 plane, K = 64, {count} mixtures", rows)
    training, held_out = split(load_head("ku100"), 0)
    sphere = ea.learn(training)
    K = len(sphere.model.weights)
    for M in talkers:
        rows = on_mixtures(ours, mixtures(held_out, count, M), jobs, sphere)
        table(f"{M} talkers, ku100 whole sphere, K = {K}, {count} mixtures", rows)


def published(count: int, jobs: int, talkers: list[int]) -> None:
    """Print tables of VESSL as published, on the mixtures of `anechoic_mixtures`."""
    training, held_out = split(within_plane(load_head("ku100")), 0)
    paper_models = paper_scales(training.directions, training.cues(), 64)
    for M in talkers:
        rows = on_mixtures(as_published, mixtures(held_out, count, M), jobs, paper_models)
        table(f"{M} talkers, ku100 plane, K = 64, {count} mixtures", rows)


def initialization(count: int, jobs: int, talkers: list[int]) -> None:
    """Print tables of VESSL with different initializations."""
    atlas, training, held_out = plane_atlas()
    scales = our_scales(atlas, training)
    for M in talkers:
        scenes = mixtures(held_out, count, M, seed=1)
        rows = on_mixtures(every_initialization, scenes, jobs, atlas.separator, scales)
        table(f"initialization, {M} talkers, {count} mixtures", rows)


def evaluate_count(scene: ea.SimulatedScene, atlas: ea.Atlas) -> tuple[int, list[float]]:
    """Return the estimated number of sources, and the credible levels of the true directions."""
    estimated = atlas.separate(scene.mixture)
    given = atlas.separate(scene.mixture, n_sources=len(scene.directions))
    best = assign_directions(scene.directions, given.directions)
    levels = [
        given.sources[int(j)].posterior.credible_level(truth)
        for j, truth in zip(best.found, scene.directions, strict=True)
    ]
    return len(estimated.sources), levels


def count_sources(count: int, jobs: int) -> None:
    """Print the estimated numbers of sources, and the coverage of the credible regions."""
    atlas, _, held_out = plane_atlas()
    print(f"\n| true sources, {count} mixtures each | estimated 1 | 2 | 3 | 4 or more | within the "
          "50 % region, % | 90 % region, % |\n|---|---|---|---|---|---|---|")  # fmt: skip
    for M in (1, 2, 3):
        results = joblib.Parallel(n_jobs=jobs)(
            joblib.delayed(evaluate_count)(scene, atlas) for scene in mixtures(held_out, count, M)
        )
        numbers = np.array([n for n, _ in results])
        levels = np.concatenate([level for _, level in results])
        cells = [int((numbers == n).sum()) for n in (1, 2, 3)] + [int((numbers > 3).sum())]
        inside = [f"{100 * float(np.mean(levels <= level)):.0f}" for level in LEVELS]
        print(f"| {M} | " + " | ".join([*map(str, cells), *inside]) + " |", flush=True)


def simulated_rooms(count: int, jobs: int) -> None:
    """Print tables for simulated rooms, learned anechoically and in the room."""
    whole = load_head("ku100")
    atlas, training, held_out = plane_atlas()
    for t60 in (0.3, 0.5):
        room = ea.Room(t60_seconds=t60)
        reverberant = ea.learn(
            reverberant_head(training, room, whole), space=ea.Plane(), components=64
        )
        scenes = mixtures(held_out, count, 2, room=room, room_head=whole)
        atlases = {"ours, learned anechoically": atlas, "ours, learned in the room": reverberant}
        rows = on_mixtures(room_methods, scenes, jobs, atlases)
        table(f"2 talkers, simulated room, T60 {t60} s, {count} mixtures", rows)


def exclude_talkers(hats: ea.Head, name: str) -> tuple[ea.Head, ea.Head]:
    """Return the HATS without the directions of the talkers in a room, and the talkers' head."""
    head = ea.read_recordings(DATA / "rooms" / name / "positions.csv", kind="responses")
    _, held_out = split(head, 0)
    angles = ea.Sphere().distance(hats.directions[:, None], held_out.directions[None])
    return hats.subset(angles.min(axis=1) > 1), held_out


def measured_rooms(count: int, jobs: int) -> None:
    """Print tables for measured rooms, learned anechoically without the talkers' directions."""
    hats = load_head("hats")
    for name in ("room_a", "room_d"):
        training, held_out = exclude_talkers(hats, name)
        rows = on_mixtures(
            room_methods, mixtures(held_out, count, 2), jobs, {"ours": ea.learn(training)}
        )
        table(f"2 talkers, measured {name}, {count} mixtures, learned from hats.sofa", rows)


def defaults(count: int, jobs: int, talkers: list[int], conditions: list[str]) -> None:
    """Print tables of the default method alone, on the same mixtures as the other tables."""
    whole, hats = load_head("ku100"), load_head("hats")
    if "measured" in conditions:
        for name in ("room_a", "room_d"):
            training, held_out = exclude_talkers(hats, name)
            rows = on_mixtures(default, mixtures(held_out, count, 2), jobs, ea.learn(training))
            table(f"2 talkers, measured {name}, {count} mixtures, learned from hats.sofa", rows)
    if conditions == ["measured"]:
        return
    atlas, _, held_out = plane_atlas()
    for M in talkers if "anechoic" in conditions else []:
        rows = on_mixtures(default, mixtures(held_out, count, M), jobs, atlas)
        table(f"{M} talkers, ku100 plane, K = 64, {count} mixtures", rows)
    for t60 in (0.3, 0.5) if "simulated" in conditions else ():
        scenes = mixtures(held_out, count, 2, room=ea.Room(t60_seconds=t60), room_head=whole)
        rows = on_mixtures(default, scenes, jobs, atlas)
        table(f"2 talkers, simulated room, T60 {t60} s, {count} mixtures", rows)


def blind(options: argparse.Namespace) -> None:
    """Print tables of blind methods in all rooms, with and without WPE, and of the default."""
    count, jobs, windows = options.count, options.jobs, tuple(options.windows)
    if "simulated" in options.where:
        atlas, _, head = plane_atlas()
        for t60 in options.t60:
            room = ea.Room(t60_seconds=t60)
            scenes = list(mixtures(head, count, 2, room=room, room_head=load_head("ku100")))
            title = f"2 talkers, simulated room, T60 {t60} s, {count} mixtures"
            print_incrementally(title, blind_methods(atlas, windows), scenes, jobs)
    hats = load_head("hats")
    for name in ("room_a", "room_d") if "measured" in options.where else ():
        training, head = exclude_talkers(hats, name)
        title = f"2 talkers, measured {name}, {count} mixtures, learned from hats.sofa"
        scenes = list(mixtures(head, count, 2))
        print_incrementally(title, blind_methods(ea.learn(training), windows), scenes, jobs)


def main() -> None:
    """Run the given parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS])
    parser.add_argument("--count", type=int, default=100, help="number of mixtures per table")
    parser.add_argument(
        "--talkers",
        type=int,
        nargs="+",
        default=[2, 3],
        help="numbers of talkers of mixtures, defaults, initialization",
    )
    parser.add_argument(
        "--where",
        nargs="+",
        choices=CONDITIONS,
        default=CONDITIONS,
        help="conditions of defaults and blind",
    )
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="length of the recording of memory"
    )
    parser.add_argument(
        "--windows",
        type=int,
        nargs="+",
        default=[1024, 4096],
        help="STFT windows of blind, in samples",
    )
    parser.add_argument(
        "--t60", type=float, nargs="+", default=[0.3, 0.5], help="T60 of blind, in s"
    )
    parser.add_argument("--jobs", type=int, default=2, help="number of processes")
    options = parser.parse_args()
    for part in options.parts or PARTS:
        match part:
            case "mixtures":
                anechoic_mixtures(options.count, options.jobs, options.talkers)
            case "published":
                published(options.count, options.jobs, options.talkers)
            case "defaults":
                defaults(options.count, options.jobs, options.talkers, options.where)
            case "initialization":
                initialization(options.count, options.jobs, options.talkers)
            case "count":
                count_sources(options.count, options.jobs)
            case "rooms":
                simulated_rooms(max(options.count // 2, 1), options.jobs)
                measured_rooms(max(options.count // 2, 1), options.jobs)
            case "blind":
                blind(options)
            case "fullband":
                training, held_out = split(load_head("ku100"), 0)
                fullband.table(ea.learn(training), held_out, options.count)
            case "speed":
                cost.speed(*plane_atlas())
                training, held_out = split(load_head("ku100"), 0)
                cost.from_file_to_files(ea.learn(training), held_out, "sphere")
            case "memory":
                atlas, _, held_out = plane_atlas()
                cost.memory(atlas, held_out, options.minutes)


if __name__ == "__main__":
    main()
