"""What turning the head by ±20° does to front and back: one talker in simulated rooms.

    python benchmarks/yaw.py [--count 50] [--t60 0.3 0.5] [--turn 20] [--atlas FILE]

ku100, learned without 200 directions; talkers of 3 s at those, at 1.5 m in shoebox rooms (and in
the open: T60 0). `still`: the head is turned once, by up to 20°; `turning`: to 20° left, to 20°
right and back, in steps of 2.5°; `turning, yaw not told`: the same sound, as if the head had not
moved. Each pose is rendered by itself, with the measured directions nearest to what comes from
source and walls, and faded into the next within 20 ms. Front and back are exchanged where the
answer is nearer to the mirror image of the truth, in the plane through both ears, than to the
truth; talkers within 15° of that plane do not count there.
"""

import argparse
import warnings
from dataclasses import dataclass

import numpy as np
from protocol import head_of, talker, utterances
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
HEADING = "| | talkers | median ° | beyond 30° % | front and back exchanged % | in 50 % region | in 90 % region | radius at 90 % ° |"  # noqa: E501


@dataclass(frozen=True, eq=False)
class Poses:
    """What the ears get from one talker, with the head turned in several ways."""

    yaws: Array  # (P,) degrees
    responses: Array  # (P, 2, n)


def poses(head: ea.Head, place: Array, t60: float, turn: float) -> Poses:
    """The responses of all yaws in steps, each moved by up to 1° to where the head was measured."""
    ears, sphere = head.responses(), ea.Sphere()
    chosen, rendered = [], []
    for yaw in np.arange(-turn, turn + 0.1, STEP_DEGREES):
        tries = yaw + np.linspace(-1.0, 1.0, 21)
        gaps = [great_gap(head, sphere.turned(place, -t)) for t in tries]
        best = float(tries[int(np.argmin(gaps))])
        chosen.append(best)
        around = sphere.turned(head.directions, best)
        if t60:
            room = ea.Room(t60_seconds=t60)
            response = room_responses(room, place[None], around, ears.samples, ears.rate)
        else:
            response = ears.samples[sphere.nearest(around, place[None])]
        rendered.append(ImpulseResponses(response, ears.rate).at_rate(RATE)[0])
    return Poses(np.array(chosen), np.stack(rendered))


def great_gap(head: ea.Head, direction: Array) -> float:
    """Degrees to the nearest measured direction."""
    return float(ea.great_circle_error(head.directions, direction).min())


def heard(dry: Array, given: Poses, order: Indices, seed: int) -> tuple[ea.Audio, ea.Yaw | float]:
    """The sound of poses that follow each other in an order, faded, and the yaw over time."""
    n = len(dry) + given.responses.shape[-1] - 1
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
        mixture[:, part] += (gain * oaconvolve(dry[None], given.responses[pose], axes=1))[:, part]
        times += [max(begin, 0) + FADE_SECONDS / 2, min(end, n / RATE + 0.1) - FADE_SECONDS / 2]
        degrees += [given.yaws[pose]] * 2
    rng = np.random.default_rng(seed)
    mixture += rng.normal(size=mixture.shape) * mixture.std() * 1e-3
    audio = ea.Audio(0.5 * mixture / np.abs(mixture).max(), RATE)
    return audio, ea.Yaw(times, degrees) if len(order) > 1 else float(given.yaws[order[0]])


def mirrored(directions: Array) -> Array:
    """Front to back, through the plane of both ears."""
    azimuth, elevation = directions.T
    return np.stack([180.0 - azimuth, elevation], axis=-1)


def row(true: list[Array], answers: list[ea.Localization]) -> str:
    """The figures of some answers."""
    x, y = np.array(true), np.array([a.direction for a in answers])
    level = np.array([a.posterior.level_of(t, 500) for a, t in zip(answers, x, strict=True)])
    error = ea.great_circle_error(x, y)
    sides = np.abs(np.degrees(np.arcsin(to_vectors(x)[:, 0]))) > 15
    exchanged = (ea.great_circle_error(mirrored(x), y) < error)[sides]
    radii = [a.radius_90 for a in answers]
    return (
        f"{len(x)} | {np.median(error):.1f} | {100 * np.mean(error > 30):.0f} | "
        f"{100 * exchanged.mean():.0f} | {100 * np.mean(level <= 0.5):.0f} | "
        f"{100 * np.mean(level <= 0.9):.0f} | {np.median(radii):.1f}"
    )


def compare(atlas: ea.Atlas, asked: ea.Head, t60: float, count: int, turn: float) -> None:
    """Print the rows of one room."""
    head, files, rng = head_of("ku100"), utterances(), np.random.default_rng(round(100 * t60) + 1)
    true: list[Array] = []
    found: dict[str, list[ea.Localization]] = {}
    for number in range(count):
        place = asked.directions[rng.integers(len(asked))]
        dry = talker(files[rng.integers(len(files))], 3.0, rng)
        given = poses(head, place, t60, turn)
        last = len(given.yaws) - 1
        middle = last // 2
        there_and_back = np.concatenate(
            [np.arange(middle, last), np.arange(last, 0, -1), np.arange(0, middle + 1)]
        )
        audio, yaw = heard(dry, given, rng.integers(0, last + 1, size=1), number)
        true.append(place)
        found.setdefault("still", []).append(atlas.localize(audio, yaw=yaw))
        audio, yaw = heard(dry, given, there_and_back, number)
        found.setdefault(f"turning by ±{turn:g}°", []).append(atlas.localize(audio, yaw=yaw))
        found.setdefault("turning, yaw not told", []).append(atlas.localize(audio))
    where = f"T60 {t60:g} s" if t60 else "open"
    for how, answers in found.items():
        print(f"| {where}, {how} | {row(true, answers)} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=50, help="talkers a row")
    parser.add_argument("--t60", type=float, nargs="+", default=[0.0, 0.3, 0.5], help="seconds")
    parser.add_argument("--turn", type=float, default=20.0, help="degrees to each side")
    parser.add_argument("--atlas", help="of ku100 without the 200 directions, ready for rooms")
    options = parser.parse_args()
    known, asked = ku100_split()
    path = options.atlas
    atlas = ea.Atlas.load(path) if path else ea.learn(known).with_rooms(known)
    print(f"{HEADING}\n|" + "---|" * 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ea.EaratlasWarning)
        for t60 in options.t60:
            compare(atlas, asked, t60, options.count, options.turn)


if __name__ == "__main__":
    main()
