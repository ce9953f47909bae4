"""Separation figures on the measured heads; run as `python benchmarks/separation.py PART …`.

Parts: mixtures (two and three talkers, every method in one table), defaults (the default alone, in
the open and in rooms: many mixtures in a short time), starts (which start VESSL
should have), count (how many sources), rooms (simulated and measured), rivals (blind methods in
every room, alone and after WPE), fullband (48 kHz), speed,
memory. Without a part: all of them. The heads, rooms and speech come from EARATLAS_DATA.
Seeds are fixed. `--jobs` mixtures are worked on at once; fullband, speed and memory run alone.
"""

import argparse

import joblib
import numpy as np
from protocol import DATA, head_of, in_room, mixtures, split, within_plane
from separating import cost, fullband
from separating.figures import as_they_come, on_mixtures, table
from separating.methods import default, every_method, ours, rivals_of, room_method
from separating.starts import every_start, our_scales

import earatlas as ea
from earatlas.evaluation.directions import assign_directions
from earatlas.experiments.vessl_as_published import paper_scales

LEVELS = (0.5, 0.9)
PLACES = ["open", "simulated", "measured"]
PARTS = (
    "mixtures", "defaults", "starts", "count", "rooms", "rivals", "fullband", "speed", "memory",
)  # fmt: skip


def plane_atlas() -> tuple[ea.Atlas, ea.Head, ea.Head]:
    """ku100's plane, 80 % of the directions, K = 64; and the heads of both parts."""
    known, asked = split(within_plane(head_of("ku100")), 0)
    return ea.learn(known, space=ea.Plane(), components=64), known, asked


def open_mixtures(count: int, jobs: int, talkers: list[int]) -> None:
    """Two and three talkers in the open."""
    atlas, known, asked = plane_atlas()
    printed = paper_scales(known.directions, known.cues(), 64)
    for M in talkers:
        rows = on_mixtures(every_method, mixtures(asked, count, M), jobs, atlas, printed)
        table(f"{M} talkers, ku100 plane, K = 64, {count} mixtures", rows)
    known, asked = split(head_of("ku100"), 0)
    sphere = ea.learn(known)
    K = len(sphere.model.weights)
    for M in talkers:
        rows = on_mixtures(ours, mixtures(asked, count, M), jobs, sphere)
        table(f"{M} talkers, ku100 whole sphere, K = {K}, {count} mixtures", rows)


def starts(count: int, jobs: int, talkers: list[int]) -> None:
    """Which start is best."""
    atlas, known, asked = plane_atlas()
    scales = our_scales(atlas, known)
    for M in talkers:
        scenes = mixtures(asked, count, M, seed=1)
        rows = on_mixtures(every_start, scenes, jobs, atlas.separator, scales)
        table(f"start, {M} talkers, {count} mixtures", rows)


def counted(scene: ea.SimulatedScene, atlas: ea.Atlas) -> tuple[int, list[float]]:
    """How many sources are found, and the levels of the truths in their posteriors."""
    found = atlas.separate(scene.mixture)
    known = atlas.separate(scene.mixture, n_sources=len(scene.directions))
    best = assign_directions(scene.directions, known.directions)
    levels = [
        known.sources[int(j)].posterior.level_of(truth)
        for j, truth in zip(best.found, scene.directions, strict=True)
    ]
    return len(found.sources), levels


def count_sources(count: int, jobs: int) -> None:
    """Number of sources found, and how honest the posteriors are."""
    atlas, _, asked = plane_atlas()
    print(f"\n| true sources, {count} mixtures each | found 1 | 2 | 3 | 4 or more | truth in the "
          "50 % region, % | 90 % region, % |\n|---|---|---|---|---|---|---|")  # fmt: skip
    for M in (1, 2, 3):
        answers = joblib.Parallel(n_jobs=jobs)(
            joblib.delayed(counted)(scene, atlas) for scene in mixtures(asked, count, M)
        )
        numbers = np.array([n for n, _ in answers])
        levels = np.concatenate([level for _, level in answers])
        cells = [int((numbers == n).sum()) for n in (1, 2, 3)] + [int((numbers > 3).sum())]
        inside = [f"{100 * float(np.mean(levels <= level)):.0f}" for level in LEVELS]
        print(f"| {M} | " + " | ".join([*map(str, cells), *inside]) + " |", flush=True)


def simulated_rooms(count: int, jobs: int) -> None:
    """Learned in the open, and in them."""
    whole = head_of("ku100")
    atlas, known, asked = plane_atlas()
    for t60 in (0.3, 0.5):
        room = ea.Room(t60_seconds=t60)
        wet = ea.learn(in_room(known, room, whole), space=ea.Plane(), components=64)
        scenes = mixtures(asked, count, 2, room=room, around=whole)
        atlases = {"ours, learned in the open": atlas, "ours, learned in the room": wet}
        rows = on_mixtures(room_method, scenes, jobs, atlases)
        table(f"2 talkers, simulated room, T60 {t60} s, {count} mixtures", rows)


def without_talkers(hats: ea.Head, name: str) -> tuple[ea.Head, ea.Head]:
    """The directions of a head at which no talker stands in a room, and the talkers' places."""
    head = ea.read_recordings(DATA / "rooms" / name / "positions.csv", kind="responses")
    _, asked = split(head, 0)
    apart = ea.Sphere().distance(hats.directions[:, None], asked.directions[None])
    return hats.subset(apart.min(axis=1) > 1), asked


def measured_rooms(count: int, jobs: int) -> None:
    """Learned from the same head in the open, at the places that no talker has."""
    hats = head_of("hats")
    for name in ("room_a", "room_d"):
        other, asked = without_talkers(hats, name)
        rows = on_mixtures(room_method, mixtures(asked, count, 2), jobs, {"ours": ea.learn(other)})
        table(f"2 talkers, measured {name}, {count} mixtures, learned from hats.sofa", rows)


def defaults(count: int, jobs: int, talkers: list[int], where: list[str]) -> None:
    """The default alone, on the same mixtures as in the tables: the open, then rooms."""
    whole, hats = head_of("ku100"), head_of("hats")
    if "measured" in where:
        for name in ("room_a", "room_d"):
            other, asked = without_talkers(hats, name)
            rows = on_mixtures(default, mixtures(asked, count, 2), jobs, ea.learn(other))
            table(f"2 talkers, measured {name}, {count} mixtures, learned from hats.sofa", rows)
    if where == ["measured"]:
        return
    atlas, _, asked = plane_atlas()
    for M in talkers if "open" in where else []:
        rows = on_mixtures(default, mixtures(asked, count, M), jobs, atlas)
        table(f"{M} talkers, ku100 plane, K = 64, {count} mixtures", rows)
    for t60 in (0.3, 0.5) if "simulated" in where else ():
        scenes = mixtures(asked, count, 2, room=ea.Room(t60_seconds=t60), around=whole)
        rows = on_mixtures(default, scenes, jobs, atlas)
        table(f"2 talkers, simulated room, T60 {t60} s, {count} mixtures", rows)


def rivals(asked: argparse.Namespace) -> None:
    """Blind methods in every room, alone and after WPE, beside the default."""
    count, jobs, windows = asked.count, asked.jobs, tuple(asked.windows)
    if "simulated" in asked.where:
        atlas, _, head = plane_atlas()
        for t60 in asked.t60:
            room = ea.Room(t60_seconds=t60)
            scenes = list(mixtures(head, count, 2, room=room, around=head_of("ku100")))
            title = f"2 talkers, simulated room, T60 {t60} s, {count} mixtures"
            as_they_come(title, rivals_of(atlas, windows), scenes, jobs)
    hats = head_of("hats")
    for name in ("room_a", "room_d") if "measured" in asked.where else ():
        other, head = without_talkers(hats, name)
        title = f"2 talkers, measured {name}, {count} mixtures, learned from hats.sofa"
        scenes = list(mixtures(head, count, 2))
        as_they_come(title, rivals_of(ea.learn(other), windows), scenes, jobs)


def main() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS])
    parser.add_argument("--count", type=int, default=100, help="mixtures a table")
    parser.add_argument(
        "--talkers", type=int, nargs="+", default=[2, 3], help="of mixtures, starts"
    )
    parser.add_argument(
        "--where", nargs="+", choices=PLACES, default=PLACES, help="of defaults, rivals"
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="of the recording of memory")
    parser.add_argument("--windows", type=int, nargs="+", default=[1024, 4096], help="of rivals")
    parser.add_argument("--t60", type=float, nargs="+", default=[0.3, 0.5], help="of rivals")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    for part in asked.parts or PARTS:
        match part:
            case "mixtures":
                open_mixtures(asked.count, asked.jobs, asked.talkers)
            case "defaults":
                defaults(asked.count, asked.jobs, asked.talkers, asked.where)
            case "starts":
                starts(asked.count, asked.jobs, asked.talkers)
            case "count":
                count_sources(asked.count, asked.jobs)
            case "rooms":
                simulated_rooms(max(asked.count // 2, 1), asked.jobs)
                measured_rooms(max(asked.count // 2, 1), asked.jobs)
            case "rivals":
                rivals(asked)
            case "fullband":
                known, head = split(head_of("ku100"), 0)
                fullband.table(ea.learn(known), head, asked.count)
            case "speed":
                cost.speed(*plane_atlas())
                known, head = split(head_of("ku100"), 0)
                cost.from_file_to_files(ea.learn(known), head, "sphere")
            case "memory":
                atlas, _, head = plane_atlas()
                cost.memory(atlas, head, asked.minutes)


if __name__ == "__main__":
    main()
