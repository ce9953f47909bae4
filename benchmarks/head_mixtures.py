"""Mixtures that another head recorded; run as `python benchmarks/head_mixtures.py PART …`.

Parts: own (the learned head, at directions that were not learned), wrong (other heads), people (a
population atlas and people outside of it), noise (one talker in noise, own and other heads), rooms
(one talker in simulated rooms and halls, own heads), sparse (one talker, heads that are learned
from directions 5, 10 and 15 degrees apart, own and other heads), hall (people outside straight
ahead in a hall, population atlas). Mixtures have two and three talkers of 3 s at 40 dB SNR, with
the number of sources given. Settings were chosen on cipic_021 and ku100 with people 131 and 134,
and on people 8 to 15 with an atlas of the 20 people after them. The people who are judged are the
last 5 of the folder and cipic_003.
"""

import argparse
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from heads import Errors, evenly_distributed_rows, people
from protocol import DATA, load_head, mixtures, reverberant_head, single_talkers, split

import earatlas as ea
from earatlas.evaluation.directions import assign_directions
from earatlas.localization.diagnostics import DoubtKind
from earatlas.population_atlas import PopulationAtlas, learn_population

PARTS = ("own", "wrong", "people", "noise", "rooms", "sparse", "hall")
OWN = ("cipic_021", "ku100", "kemar_full", "cipic_003")
WRONG = (
    ("ku100", "cipic_021"),
    ("cipic_021", "ku100"),
    ("cipic_021", "kemar_full"),
    ("cipic_021", "cipic_163"),
    ("ku100", "cipic_003"),
)
SNR_DB, SEED = 40.0, 8000
HALL = ea.Room(size_metres=(24.0, 18.0, 9.0), t60_seconds=2.0, listener_metres=(10.3, 8.1, 1.6))
T60_SECONDS = (0.3, 0.6, 1.0, 2.0)
NOISE_SNR_DB = (12.0, 18.0, 24.0)
SPACINGS_DEGREES = (5.0, 10.0, 15.0)
SPARSE = (("ku100", "cipic_163"), ("cipic_021", "ku100"))  # learned, and another head


def open_any_head(name: str) -> ea.Head:
    """Read a measured head, or a person."""
    person = DATA / "people" / f"{name}.sofa"
    return ea.read_sofa(person) if person.exists() else load_head(name)


def add_mixtures(
    errors: Errors, name: str, atlas: ea.Atlas, head: ea.Head, count: int, seed: int = SEED
) -> None:
    """Separate mixtures of two and of three talkers, and add the errors of their directions."""
    for M in (2, 3):
        for scene in mixtures(head, count, M, snr_db=SNR_DB, seed=seed):
            found = atlas.separate(scene.mixture, n_sources=M, rendering="soft")
            doubted = any(doubt.word is DoubtKind.HEAD_MISMATCH for doubt in found.doubts)
            directions = found.directions
            order = assign_directions(scene.directions, directions).take(np.arange(M))
            for truth, m in zip(scene.directions, order.astype(int), strict=True):
                source = found.sources[m]
                errors.add_source(f"{name}, {M} talkers", truth, source, doubted=doubted)


def own(count: int) -> None:
    """Print errors of mixtures with the learned head."""
    errors = Errors()
    for name in OWN:
        training, held_out = split(open_any_head(name), SEED)
        add_mixtures(errors, name, ea.learn(training), held_out, count)
    errors.print()


def wrong(count: int) -> None:
    """Print errors of mixtures that were recorded with another head."""
    errors = Errors()
    atlases = {name: ea.learn(open_any_head(name)) for name, _ in WRONG}
    for learned, hearing in WRONG:
        name = f"{learned}, recorded with {hearing}"
        add_mixtures(errors, name, atlases[learned], open_any_head(hearing), count)
    errors.print()


def unknown_people(atlas: PopulationAtlas, count: int) -> None:
    """Print errors of mixtures of people who are not in the atlas."""
    errors = Errors()
    for number, path in enumerate([*people()[25:], DATA / "heads" / "cipic_003.sofa"]):
        head = ea.read_sofa(path)
        add_mixtures(errors, "people outside", atlas, head, count, SEED + number)
    errors.print()


def noise(count: int) -> None:
    """Print errors of one talker in noise, with the learned head and with others."""
    errors = Errors()
    atlases = {name: split(open_any_head(name), SEED) for name in ("cipic_021", "ku100")}
    pairs = [*((name, name) for name in atlases), *(pair for pair in WRONG if pair[0] in atlases)]
    learned_atlases = {name: ea.learn(training) for name, (training, _) in atlases.items()}
    for learned, hearing in pairs:
        head = atlases[learned][1] if learned == hearing else open_any_head(hearing)
        kind = "learned head" if learned == hearing else "other heads"
        for snr_db in NOISE_SNR_DB:
            scenes = single_talkers(head, count, snr_db=snr_db, seed=SEED)
            truths, audio = zip(*scenes, strict=True)
            found = [learned_atlases[learned].localize(one) for one in audio]
            errors.add(f"{kind}, {snr_db:g} dB", np.array(truths), found)
    errors.print()


def rooms(count: int) -> None:
    """Print errors of one talker in rooms, and how often straight ahead is called behind."""
    errors, behind = Errors(), {t60: list[bool]() for t60 in T60_SECONDS}
    for name in ("cipic_021", "ku100", "kemar_full"):
        head = open_any_head(name)
        training, held_out = split(head, SEED)
        atlas = ea.learn(training)
        for t60 in T60_SECONDS:
            room = ea.Room(t60_seconds=t60) if t60 < 1 else replace(HALL, t60_seconds=t60)
            chosen = held_out.subset(np.random.default_rng(SEED).permutation(len(held_out))[:count])
            in_room = reverberant_head(chosen, room, head)
            scenes = single_talkers(in_room, count, snr_db=SNR_DB, seed=SEED)
            truths, audio = zip(*scenes, strict=True)
            found = [atlas.localize(one) for one in audio]
            errors.add(f"T60 {t60:g} s", np.array(truths), found)
            ahead = head.subset([int(ea.Sphere().distance(head.directions, [0.0, 0.0]).argmin())])
            scenes = single_talkers(
                reverberant_head(ahead, room, head), count // 2, snr_db=SNR_DB, seed=SEED + 1
            )
            found = [atlas.localize(one) for _, one in scenes]
            behind[t60].extend(abs(one.direction[0]) > 90 for one in found)
    errors.print()
    for t60, values in behind.items():
        print(f"straight ahead, T60 {t60:g} s: {sum(values)} of {len(values)} are called behind")


def sparse(count: int, folder: Path | None) -> None:
    """Print errors of one talker with sparsely measured heads, at directions between theirs."""
    errors = Errors()
    for name, other in SPARSE:
        head = open_any_head(name)
        for spacing in SPACINGS_DEGREES:
            rows = ea.Sphere().thin(head.directions, spacing)
            file = None if folder is None else folder / f"{name}_{spacing:g}.atlas"
            if file is not None and file.exists():
                atlas = ea.Atlas.load(file)
            else:
                atlas = ea.learn(head.subset(rows))
                if file is not None:
                    atlas.save(file)
            between = head.subset(np.setdiff1d(np.arange(len(head)), rows))
            for kind, hearing in (("own head", between), ("another head", open_any_head(other))):
                even = hearing.subset(np.unique(evenly_distributed_rows(hearing)))
                scenes = single_talkers(even, count, snr_db=SNR_DB, seed=SEED)
                truths, audio = zip(*scenes, strict=True)
                found = [atlas.localize(one) for one in audio]
                errors.add(f"{kind}, {spacing:g} degrees apart", np.array(truths), found)
    errors.print()


def hall(atlas: PopulationAtlas, count: int) -> None:
    """Print errors of people outside straight ahead in a hall, and how many are called behind."""
    errors, behind = Errors(), list[bool]()
    for path in [*people()[25:], DATA / "heads" / "cipic_003.sofa"]:
        head = ea.read_sofa(path)
        ahead = head.subset([int(ea.Sphere().distance(head.directions, [0.0, 0.0]).argmin())])
        in_room = reverberant_head(ahead, HALL, head)
        truths, audio = zip(
            *single_talkers(in_room, count, snr_db=SNR_DB, seed=SEED + 1), strict=True
        )
        found = [atlas.localize(one) for one in audio]
        errors.add("people outside, straight ahead in a hall", np.array(truths), found)
        called = [abs(one.direction[0]) > 90 for one in found]
        print(f"{head.name}: {sum(called)} of {len(called)} are called behind", flush=True)
        behind += called
    errors.print()
    print(f"{sum(behind)} of {len(behind)} are called behind")


def population_atlas(file: Path | None) -> PopulationAtlas:
    """Return the atlas of people 1 to 25, from a file if it exists."""
    if file is not None and file.exists():
        return PopulationAtlas.load(file)
    atlas = learn_population(people()[:25])
    if file is not None:
        atlas.save(file)
    return atlas


def main() -> None:
    """Run the parts that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=list(PARTS), help="parts to run")
    parser.add_argument("--count", type=int, default=12, help="mixtures per head")
    parser.add_argument("--atlas", type=Path, help="atlas of people 1 to 25, made if missing")
    parser.add_argument("--folder", type=Path, help="keeps the atlases of sparse heads")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ea.EaratlasWarning)
    if "own" in options.parts:
        own(options.count)
    if "wrong" in options.parts:
        wrong(options.count)
    if "people" in options.parts:
        unknown_people(population_atlas(options.atlas), options.count)
    if "noise" in options.parts:
        noise(options.count)
    if "rooms" in options.parts:
        rooms(options.count)
    if "sparse" in options.parts:
        sparse(options.count, options.folder)
    if "hall" in options.parts:
        hall(population_atlas(options.atlas), options.count)


if __name__ == "__main__":
    main()
