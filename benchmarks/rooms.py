"""Localization of one talker in unknown rooms, in noise and anechoic, with coverage.

    python benchmarks/rooms.py [--count 100] [--only NAME …]

`ku100`: learned without 200 directions of the whole sphere; talkers at these 200, in simulated
shoebox rooms (distance 1.5 m), in noise and anechoic. `hats`: every other direction of the anechoic
head is learned (10° apart); talkers at the others, in the measured rooms A and D. Talkers last 3 s,
in noise and anechoic 2 to 5 s. Columns: errors of the best direction, and percentages of true
directions within the 50 % and 90 % regions.
"""

import argparse
from collections.abc import Iterator

import numpy as np
from protocol import DATA, load_head, single_talkers, speech_excerpt, utterances

import earatlas as ea
from earatlas.geometry.angles import to_vectors
from earatlas.types import Array

Recordings = Iterator[tuple[Array, ea.Audio]]


def hats_split() -> tuple[ea.Head, ea.Head]:
    """Return every other direction of the anechoic HATS, and the directions between."""
    head = load_head("hats")
    order = np.argsort(head.directions[:, 0])
    return head.subset(order[::2]), head.subset(order[1::2])


def ku100_split() -> tuple[ea.Head, ea.Head]:
    """Return ku100 without 200 random directions, and these directions."""
    head = load_head("ku100")
    excluded = np.random.default_rng(0).permutation(len(head))[:200]
    return head.subset(np.setdiff1d(np.arange(len(head)), excluded)), head.subset(excluded)


def in_simulated_room(held_out: ea.Head, t60: float, count: int) -> Recordings:
    """Yield talkers of 3 s at held-out directions; reflections are rendered with the whole head."""
    rng = np.random.default_rng(round(100 * t60))
    head, files = load_head("ku100"), utterances()
    for number in range(count):
        direction = held_out.directions[rng.integers(len(held_out))]
        sound = speech_excerpt(files[rng.integers(len(files))], 3.0, rng)
        settings = ea.SceneSettings(seed=number)
        room = ea.Room(t60_seconds=t60)
        scene = ea.render_scene(head, [sound], [direction], settings=settings, room=room)
        yield scene.directions[0], scene.mixture


def in_measured_room(name: str, held_out: ea.Head, count: int) -> Recordings:
    """Yield talkers of 3 s at the directions between the learned ones."""
    room = ea.read_recordings(DATA / "rooms" / name / "positions.csv", kind="responses")
    positions = ea.Sphere().nearest(room.directions, held_out.directions)
    rng, files = np.random.default_rng(5), utterances()
    for number in range(count):
        position = room.subset(positions[number % len(positions)][None])
        sound = speech_excerpt(files[rng.integers(len(files))], 3.0, rng)
        scene = ea.render_scene(
            position, [sound], position.directions, settings=ea.SceneSettings(seed=number)
        )
        yield scene.directions[0], scene.mixture


def row(atlas: ea.Atlas, recordings: Recordings) -> str:
    """Return the cells of one row."""
    true, estimated, levels, radii = [], [], [], []
    for direction, audio in recordings:
        result = atlas.localize(audio)
        true.append(direction)
        estimated.append(result.direction)
        levels.append(result.posterior.credible_level(direction, 500))
        radii.append(result.radius_90)
    x, y, level = np.array(true), np.array(estimated), np.array(levels)
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
    parser.add_argument("--count", type=int, default=100, help="number of talkers per row")
    parser.add_argument("--only", nargs="*", choices=("ku100", "hats"), default=("ku100", "hats"))
    options = parser.parse_args()
    print(
        "| | talkers | median ° | mean ° | beyond 30° % | lateral ° | azimuth RMSE ° | "
        "in 50 % region | in 90 % region | radius at 90 % ° |\n|" + "---|" * 10
    )
    n = options.count
    if "hats" in options.only:
        training, held_out = hats_split()
        atlas = ea.learn(training)
        for name in ("room_a", "room_d"):
            measured = in_measured_room(name, held_out, n)
            print(f"| hats, {name.replace('_', ' ')} | {row(atlas, measured)} |", flush=True)
    if "ku100" in options.only:
        training, held_out = ku100_split()
        atlas = ea.learn(training)
        print(
            f"| ku100, anechoic | {row(atlas, single_talkers(held_out, n, seed=9))} |", flush=True
        )
        for snr in (20.0, 10.0, 5.0, 0.0):
            noisy = single_talkers(held_out, n, snr_db=snr, seed=9)
            print(f"| ku100, noise at {snr:g} dB | {row(atlas, noisy)} |", flush=True)
        for t60 in (0.2, 0.3, 0.5, 0.6):
            simulated = in_simulated_room(held_out, t60, n)
            print(f"| ku100, T60 {t60:g} s | {row(atlas, simulated)} |", flush=True)


if __name__ == "__main__":
    main()
