"""Front and back: alternatives of directions, and the prior of front before rear.

    python benchmarks/alternatives.py [--count 10] [--only NAME …]

One talker of 3 s per recording. `own`: ku100 in simulated rooms with T60 of 1 and 2 s, 3 and 4.5 m
away, on the median plane. `clear`: the same in a room with T60 of 0.3 s, 1.2 m away. `symmetric`:
ku100 with the left ear mirrored to the right, learned and recording, in the room of 1 s; its median
plane has no interaural cues. `hats`: the HATS in the measured rooms A and D, in front, with the
atlas of ku100. `people`: people of CIPIC with the atlas of KEMAR (cipic_021), anechoic, whole
sphere.

Columns: odds of the prior (1: none); talkers in front that are reported behind, and the reverse;
errors above 30° of the highest density (`best`), of the most probable peak (`direction`) and of the
nearest alternative, in %; share of true directions within `radius_90`; number of alternatives.
"""

import argparse
import warnings
from collections.abc import Iterator

import numpy as np
from protocol import DATA, load_head, speech_excerpt, utterances
from rooms import in_measured_room

import earatlas as ea
from earatlas.geometry.angles import FRONT_PRIOR, FrontPrior, apply_front_prior, to_vectors
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.hrtf.head import ImpulseResponses
from earatlas.types import Array

Posteriors = list[tuple[Array, DirectionPosterior]]
MEDIAN_PLANE = ([0, 0], [180, 0], [0, 30], [180, 30])
ROOMS = {
    "clear": (ea.Room(), 1.2),
    "1 s": (ea.Room((9.0, 7.0, 3.5), 1.0, (4.0, 3.6, 1.6)), 3.0),
    "2 s": (ea.Room((14.0, 10.0, 6.0), 2.0, (6.0, 5.2, 1.7)), 4.5),
}
PEOPLE = ("cipic_008", "cipic_015", "cipic_027", "cipic_048", "cipic_119", "cipic_137")


def symmetric(head: ea.Head) -> ea.Head:
    """Return a head whose right ear is the mirrored left ear."""
    samples, rate = head.responses().samples, head.responses().rate
    mirrored = ea.Sphere().nearest(head.directions, head.directions * np.array([-1, 1]))
    both = np.stack([samples[:, 0], samples[mirrored, 0]], axis=1)
    return ea.Head("symmetric", head.directions, ImpulseResponses(both, rate))


def in_room(head: ea.Head, name: str, count: int) -> Iterator[tuple[Array, ea.Audio]]:
    """Yield talkers on the median plane in a simulated room."""
    rng, files = np.random.default_rng(3), utterances()
    room, metres = ROOMS[name]
    for direction in MEDIAN_PLANE:
        for number in range(count):
            sound = speech_excerpt(files[rng.integers(len(files))], 3.0, rng)
            settings = ea.SceneSettings(snr_db=40.0, seed=number, distance_metres=metres)
            scene = ea.render_scene(head, [sound], [direction], settings=settings, room=room)
            yield scene.directions[0], scene.mixture


def anechoic(head: ea.Head, count: int) -> Iterator[tuple[Array, ea.Audio]]:
    """Yield talkers at directions that are distributed evenly over the sphere."""
    rng, files = np.random.default_rng(11), utterances()
    vectors = to_vectors(head.directions)
    for number in range(count):
        direction = head.directions[int(np.argmax(vectors @ rng.normal(size=3)))]
        sound = speech_excerpt(files[rng.integers(len(files))], 3.0, rng)
        settings = ea.SceneSettings(snr_db=40.0, seed=number)
        scene = ea.render_scene(head, [sound], [direction], settings=settings)
        yield scene.directions[0], scene.mixture


def localize(atlas: ea.Atlas, recordings: Iterator[tuple[Array, ea.Audio]]) -> Posteriors:
    """Return the true direction and the posterior of each recording."""
    return [(truth, atlas.localize(audio).posterior) for truth, audio in recordings]


def measure(name: str, count: int) -> Posteriors:
    """Return the posteriors of one condition."""
    if name == "people":
        atlas = ea.learn(load_head("cipic_021"))
        heads = [ea.read_sofa(DATA / "people" / f"{person}.sofa") for person in PEOPLE]
        return [pair for head in heads for pair in localize(atlas, anechoic(head, 2 * count))]
    head = load_head("ku100")
    if name == "symmetric":
        head = symmetric(head)
        return localize(ea.learn(head), in_room(head, "1 s", count))
    atlas = ea.learn(head)
    if name.startswith("hats"):
        room = name.removeprefix("hats, ").replace(" ", "_")
        return localize(atlas, in_measured_room(room, load_head("hats"), 4 * count))
    return localize(atlas, in_room(head, name.removeprefix("own, "), count))


def row(posteriors: Posteriors) -> str:
    """Return the cells of one row."""
    space = ea.Sphere()
    truths = np.array([truth for truth, _ in posteriors])
    best, reported = (
        np.array([getattr(posterior, name) for _, posterior in posteriors])
        for name in ("best", "direction")
    )
    nearest = [
        min(float(space.distance(truth, one.direction)) for one in posterior.alternatives)
        for truth, posterior in posteriors
    ]
    radii = np.array([posterior.radius_90 for _, posterior in posteriors])
    numbers = [len(posterior.alternatives) for _, posterior in posteriors]
    front, behind = (sign * to_vectors(truths)[:, 0] > 0.3 for sign in (1, -1))
    x = to_vectors(reported)[:, 0]
    errors = (space.distance(truths, best), space.distance(truths, reported), np.array(nearest))
    beyond = " | ".join(f"{100 * np.mean(error > 30):.0f}" for error in errors)
    return (
        f"{np.sum(x[front] < 0)} of {front.sum()} | {np.sum(x[behind] > 0)} of {behind.sum()} | "
        f"{beyond} | {np.mean(errors[1] <= radii):.2f} | {np.mean(numbers):.1f}"
    )


def main() -> None:
    """Print a table."""
    names = ("own, clear", "own, 1 s", "own, 2 s", "symmetric", "hats, room a", "hats, room d",
             "people")  # fmt: skip
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10, help="talkers per direction or person")
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    options = parser.parse_args()
    print("| condition | odds | front as behind | behind as front | best > 30° | direction | "
          "alternatives | within 90 % | number |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|")
    warnings.simplefilter("ignore", ea.EaratlasWarning)
    undo = FrontPrior(1 / FRONT_PRIOR.odds)
    for name in options.only:
        found = measure(name, options.count)
        before = [(truth, apply_front_prior(posterior, undo)) for truth, posterior in found]
        print(f"| {name} | 1 | {row(before)} |")
        print(f"| {name} | {FRONT_PRIOR.odds:g} | {row(found)} |", flush=True)


if __name__ == "__main__":
    main()
