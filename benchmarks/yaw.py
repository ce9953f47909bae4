"""Front-back confusions with a rotating head (±20°): one talker in simulated rooms.

    python benchmarks/yaw.py [--count 50] [--t60 0.3 0.5] [--max-yaw 20] [--atlas FILE]

ku100 is learned without 200 directions; talkers of 3 s are at these, at 1.5 m in shoebox rooms
(anechoic: T60 0). `static`: one yaw of up to 20°; `rotating`: 20° to the left, 20° to the right and
back, in steps of 2.5°; `rotating, yaw not given`: the same signal without the yaw. Each pose is
rendered separately, with the measured directions nearest to those of source and reflections, and
cross-faded to the next within 20 ms. A front-back confusion is an estimate that is nearer to the
mirror image of the true direction at the frontal plane through both ears than to the true
direction; talkers within 15° of that plane are not counted.
"""

import argparse
import warnings
from dataclasses import dataclass

import numpy as np
from protocol import load_head, speech_excerpt, utterances
from rooms import ku100_split
from scipy.signal import oaconvolve

import earatlas as ea
from earatlas.geometry.angles import to_vectors
from earatlas.hrtf.head import ImpulseResponses
from earatlas.simulation.image_source import room_responses
from earatlas.types import Array, Indices

RATE = 16_000
STEP_DEGREES = 2.5
FADE_SECONDS = 0.02
HEADING = "| | talkers | median ° | beyond 30° % | front–back confusions % | in 50 % region | in 90 % region | radius at 90 % ° |"  # noqa: E501


@dataclass(frozen=True, eq=False)
class Poses:
    """Responses of one talker at both ears, for several yaws of the head."""

    yaws: Array  # (P,) degrees
    responses: Array  # (P, 2, n)


def poses(head: ea.Head, direction: Array, t60: float, max_yaw: float) -> Poses:
    """Return the responses of all yaws, each moved by up to 1° towards a measured direction."""
    ears, sphere = head.responses(), ea.Sphere()
    best_yaws, rendered = [], []
    for yaw in np.arange(-max_yaw, max_yaw + 0.1, STEP_DEGREES):
        yaws = yaw + np.linspace(-1.0, 1.0, 21)
        angles = [angle_to_nearest(head, sphere.rotated(direction, -t)) for t in yaws]
        best = float(yaws[int(np.argmin(angles))])
        best_yaws.append(best)
        around = sphere.rotated(head.directions, best)
        if t60:
            room = ea.Room(t60_seconds=t60)
            response = room_responses(room, direction[None], around, ears.samples, ears.rate)
        else:
            response = ears.samples[sphere.nearest(around, direction[None])]
        rendered.append(ImpulseResponses(response, ears.rate).at_rate(RATE)[0])
    return Poses(np.array(best_yaws), np.stack(rendered))


def angle_to_nearest(head: ea.Head, direction: Array) -> float:
    """Return the angle to the nearest measured direction in degrees."""
    return float(ea.great_circle_error(head.directions, direction).min())


def record(
    dry: Array, rendered_poses: Poses, order: Indices, seed: int
) -> tuple[ea.Audio, ea.Yaw | float]:
    """Return the recording of a sequence of cross-faded poses, and the yaw over time."""
    n = len(dry) + rendered_poses.responses.shape[-1] - 1
    edges = np.linspace(0, len(dry) / RATE, len(order) + 1)
    t = np.arange(n) / RATE
    mixture, times, degrees = np.zeros((2, n)), [], []
    for k, pose in enumerate(order):
        begin = edges[k] if k else -1.0
        end = edges[k + 1] if k + 1 < len(order) else n / RATE + 1.0
        gain = np.clip((t - begin) / FADE_SECONDS + 0.5, 0, 1)
        gain *= np.clip((end - t) / FADE_SECONDS + 0.5, 0, 1)
        on = np.flatnonzero(gain)
        part = slice(on[0], on[-1] + 1)
        mixture[:, part] += (gain * oaconvolve(dry[None], rendered_poses.responses[pose], axes=1))[
            :, part
        ]
        times += [max(begin, 0) + FADE_SECONDS / 2, min(end, n / RATE + 0.1) - FADE_SECONDS / 2]
        degrees += [rendered_poses.yaws[pose]] * 2
    rng = np.random.default_rng(seed)
    mixture += rng.normal(size=mixture.shape) * mixture.std() * 1e-3
    audio = ea.Audio(0.5 * mixture / np.abs(mixture).max(), RATE)
    return audio, ea.Yaw(times, degrees) if len(order) > 1 else float(rendered_poses.yaws[order[0]])


def mirrored(directions: Array) -> Array:
    """Return the directions mirrored front to back."""
    azimuth, elevation = directions.T
    return np.stack([180.0 - azimuth, elevation], axis=-1)


def row(true: list[Array], localizations: list[ea.Localization]) -> str:
    """Return the cells of one row."""
    x, y = np.array(true), np.array([a.direction for a in localizations])
    level = np.array(
        [a.posterior.credible_level(t, 500) for a, t in zip(localizations, x, strict=True)]
    )
    error = ea.great_circle_error(x, y)
    off_plane = np.abs(np.degrees(np.arcsin(to_vectors(x)[:, 0]))) > 15
    confused = (ea.great_circle_error(mirrored(x), y) < error)[off_plane]
    radii = [a.radius_90 for a in localizations]
    return (
        f"{len(x)} | {np.median(error):.1f} | {100 * np.mean(error > 30):.0f} | "
        f"{100 * confused.mean():.0f} | {100 * np.mean(level <= 0.5):.0f} | "
        f"{100 * np.mean(level <= 0.9):.0f} | {np.median(radii):.1f}"
    )


def compare(atlas: ea.Atlas, held_out: ea.Head, t60: float, count: int, max_yaw: float) -> None:
    """Print the rows of one T60."""
    head, files, rng = load_head("ku100"), utterances(), np.random.default_rng(round(100 * t60) + 1)
    true: list[Array] = []
    results: dict[str, list[ea.Localization]] = {}
    for number in range(count):
        direction = held_out.directions[rng.integers(len(held_out))]
        dry = speech_excerpt(files[rng.integers(len(files))], 3.0, rng)
        rendered_poses = poses(head, direction, t60, max_yaw)
        last = len(rendered_poses.yaws) - 1
        middle = last // 2
        order = np.concatenate(
            [np.arange(middle, last), np.arange(last, 0, -1), np.arange(0, middle + 1)]
        )
        audio, yaw = record(dry, rendered_poses, rng.integers(0, last + 1, size=1), number)
        true.append(direction)
        results.setdefault("static", []).append(atlas.localize(audio, yaw=yaw))
        audio, yaw = record(dry, rendered_poses, order, number)
        results.setdefault(f"rotating by ±{max_yaw:g}°", []).append(atlas.localize(audio, yaw=yaw))
        results.setdefault("rotating, yaw not given", []).append(atlas.localize(audio))
    condition = f"T60 {t60:g} s" if t60 else "anechoic"
    for motion, localizations in results.items():
        print(f"| {condition}, {motion} | {row(true, localizations)} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=50, help="number of talkers per row")
    parser.add_argument(
        "--t60", type=float, nargs="+", default=[0.0, 0.3, 0.5], help="in s; 0: anechoic"
    )
    parser.add_argument("--max-yaw", type=float, default=20.0, help="degrees to each side")
    parser.add_argument(
        "--atlas", help="atlas of ku100 without the 200 directions, for rooms; default: learn it"
    )
    options = parser.parse_args()
    training, held_out = ku100_split()
    path = options.atlas
    atlas = ea.Atlas.load(path) if path else ea.learn(training).with_rooms(training)
    print(f"{HEADING}\n|" + "---|" * 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ea.EaratlasWarning)
        for t60 in options.t60:
            compare(atlas, held_out, t60, options.count, options.max_yaw)


if __name__ == "__main__":
    main()
