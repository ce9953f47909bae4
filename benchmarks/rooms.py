"""One talker in rooms that were never learned, in noise and in the open, and how honest it is.

    python benchmarks/rooms.py [--count 100] [--only NAME …]

`ku100`: learned without 200 directions, whole sphere; those 200 in simulated shoebox rooms at
1.5 m, in noise and in the open. `hats`: every other direction of an anechoic head learned (10°
apart); the others in the measured rooms A and D. Talkers of 3 s, of 2 to 5 s in noise and in the
open. Columns: errors of the best direction, and how many truths lie in the 50 % and 90 % regions.
"""

import argparse
from collections.abc import Iterator

import numpy as np
from protocol import DATA, head_of, single_talkers, talker, utterances

import earatlas as ea
from earatlas.geometry.angles import to_vectors
from earatlas.types import Array

Recordings = Iterator[tuple[Array, ea.Audio]]


def hats_split() -> tuple[ea.Head, ea.Head]:
    """Every other direction of the anechoic head, and the ones between."""
    head = head_of("hats")
    order = np.argsort(head.directions[:, 0])
    return head.subset(order[::2]), head.subset(order[1::2])


def ku100_split() -> tuple[ea.Head, ea.Head]:
    """All but 200 directions, and these."""
    head = head_of("ku100")
    out = np.random.default_rng(0).permutation(len(head))[:200]
    return head.subset(np.setdiff1d(np.arange(len(head)), out)), head.subset(out)


def in_simulated_room(asked: ea.Head, t60: float, count: int) -> Recordings:
    """Talkers of 3 s at held-out directions, reflections as the whole head hears them."""
    rng = np.random.default_rng(round(100 * t60))
    head, files = head_of("ku100"), utterances()
    for number in range(count):
        place = asked.directions[rng.integers(len(asked))]
        sound = talker(files[rng.integers(len(files))], 3.0, rng)
        settings = ea.SceneSettings(seed=number)
        room = ea.Room(t60_seconds=t60)
        scene = ea.render_scene(head, [sound], [place], settings=settings, room=room)
        yield scene.directions[0], scene.mixture


def in_measured_room(name: str, asked: ea.Head, count: int) -> Recordings:
    """Talkers of 3 s at the directions between those that were learned."""
    room = ea.read_recordings(DATA / "rooms" / name / "positions.csv", kind="responses")
    wanted = ea.Sphere().nearest(room.directions, asked.directions)
    rng, files = np.random.default_rng(5), utterances()
    for number in range(count):
        place = room.subset(wanted[number % len(wanted)][None])
        sound = talker(files[rng.integers(len(files))], 3.0, rng)
        scene = ea.render_scene(
            place, [sound], place.directions, settings=ea.SceneSettings(seed=number)
        )
        yield scene.directions[0], scene.mixture


def row(atlas: ea.Atlas, recordings: Recordings) -> str:
    """The figures of some recordings."""
    true, found, levels, radii = [], [], [], []
    for direction, audio in recordings:
        where = atlas.localize(audio)
        true.append(direction)
        found.append(where.direction)
        levels.append(where.posterior.level_of(direction, 500))
        radii.append(where.radius_90)
    x, y, level = np.array(true), np.array(found), np.array(levels)
    error = ea.great_circle_error(x, y)
    lateral = np.degrees(np.abs(np.arcsin(to_vectors(x)[:, 1]) - np.arcsin(to_vectors(y)[:, 1])))
    rmse = np.sqrt(np.mean(ea.azimuth_error(x, y) ** 2))
    return (
        f"{len(x)} | {np.median(error):.1f} | {error.mean():.1f} | "
        f"{100 * np.mean(error > 30):.0f} | {lateral.mean():.1f} | {rmse:.1f} | "
        f"{100 * np.mean(level <= 0.5):.0f} | {100 * np.mean(level <= 0.9):.0f} | "
        f"{np.median(radii):.1f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="talkers a row")
    parser.add_argument("--only", nargs="*", choices=("ku100", "hats"), default=("ku100", "hats"))
    options = parser.parse_args()
    print(
        "| | talkers | median ° | mean ° | beyond 30° % | lateral ° | azimuth RMSE ° | "
        "in 50 % region | in 90 % region | radius at 90 % ° |\n|" + "---|" * 10
    )
    n = options.count
    if "hats" in options.only:
        known, asked = hats_split()
        atlas = ea.learn(known)
        for name in ("room_a", "room_d"):
            measured = in_measured_room(name, asked, n)
            print(f"| hats, {name.replace('_', ' ')} | {row(atlas, measured)} |", flush=True)
    if "ku100" in options.only:
        known, asked = ku100_split()
        atlas = ea.learn(known)
        print(f"| ku100, open | {row(atlas, single_talkers(asked, n, seed=9))} |", flush=True)
        for snr in (20.0, 10.0, 5.0, 0.0):
            noisy = single_talkers(asked, n, snr_db=snr, seed=9)
            print(f"| ku100, noise at {snr:g} dB | {row(atlas, noisy)} |", flush=True)
        for t60 in (0.2, 0.3, 0.5, 0.6):
            simulated = in_simulated_room(asked, t60, n)
            print(f"| ku100, T60 {t60:g} s | {row(atlas, simulated)} |", flush=True)


if __name__ == "__main__":
    main()
