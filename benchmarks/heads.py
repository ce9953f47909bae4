"""Heads that nobody measured; run as `python benchmarks/heads.py PART …`.

Parts: people (a population atlas, people outside of it: not adapted, adapted from 15 and 50
talkers, and with 10 labelled ones), recordings (the same with `Atlas.localize`, anechoic and in a
simulated room), separation (two talkers of a person outside of it, against the person's own atlas),
refusal (a KU100 with the atlas of people), foreign (dummy heads with the atlas of people),
listeners (adaptation to one listener, and to two of them), rooms (adaptation to talkers in a random
room, judged without reverberation and in another random room),
laboratory (people outside of it as other laboratories would measure them: `other_laboratory`),
reseated (a KEMAR that was set up again), mismatch (atlases of other heads), horizontal (the same
with atlases of the horizontal plane), mismatch_room (as mismatch, in a room), fit (which of 8 heads
made a recording), size (of the atlas file).
Settings were chosen by five-fold cross-validation over the first 25 people; the last 5 and
cipic_003 are for judging. The atlas of people that describes the mismatch contains cipic_003.
`--heads FILE …` judges other heads in place of these people, for example those of another
laboratory.
"""

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from other_laboratory import STRONG, in_other_laboratory
from protocol import DATA, load_head, mixtures, single_talkers, speech_excerpt, split, utterances
from scipy.signal import oaconvolve
from scipy.spatial import cKDTree
from separation_parts.metrics import Row, row, table

import earatlas as ea
from earatlas.features.audio_files import audio_seconds
from earatlas.features.statistics import CueStatistics, LevelStatistics
from earatlas.features.stft import stft
from earatlas.geometry.angles import to_vectors
from earatlas.geometry.lateral_angle import lateral_angles
from earatlas.localization.diagnostics import DoubtKind
from earatlas.localization.learned_head import LearnedHead
from earatlas.localization.localizer import localization_from_posterior
from earatlas.localization.result import Localization
from earatlas.population.adaptation_report import adapt_to_recordings
from earatlas.population.comparison import compare_learned_heads
from earatlas.population.listener_clues import recording_statistics
from earatlas.population.setup_error import with_setup_error
from earatlas.population_atlas import PopulationAtlas, learn_population
from earatlas.separation.result import SourceSummary
from earatlas.types import Array

PARTS = (
    "people", "recordings", "separation", "refusal", "listeners", "foreign", "laboratory",
    "reseated", "fit", "size", "mismatch", "horizontal", "mismatch_room",
    "rooms",
)  # fmt: skip
# They need its atlas.
POPULATION_PARTS = set(PARTS) - {"reseated", "fit", "mismatch", "horizontal", "mismatch_room"}
SNR_DB = 40.0
MAX_GAP_DEGREES = 15.0  # from a talker to the next learned direction
FOREIGN = ("ku100", "hats", "kemar_full", "leipzig_kemar", "cipic_021")
ADAPTATION_LABELS, ADAPTATION_UNLABELLED = 10, 50


def people() -> list[Path]:
    """Return the files of the 30 people, sorted by name."""
    return sorted((DATA / "people").glob("*.sofa"))


def evenly_distributed_rows(head: ea.Head) -> Array:
    """Return rows of a head as often as they are the nearest of an even grid that it covers."""
    grid = ea.Sphere().grid(2.0)
    chord, rows = cKDTree(to_vectors(head.directions)).query(to_vectors(grid))
    covered: Array = rows[np.degrees(chord) < 6]
    return covered


def talkers(
    head: ea.Head, count: int, seconds: float, seed: int
) -> tuple[Array, list[CueStatistics]]:
    """Return directions (count, 2) and cue statistics of talkers at measured directions."""
    layout, rng = ea.CueLayout(), np.random.default_rng(seed)
    files = [path for path in utterances() if audio_seconds(path) >= seconds]
    rows, responses = evenly_distributed_rows(head), head.responses().at_rate(layout.rate)
    truths, sounds = [], []
    for _ in range(count):
        row = int(rng.choice(rows))
        dry = speech_excerpt(files[rng.integers(len(files))], seconds, rng)
        samples = oaconvolve(dry[None], responses[row], axes=1)
        noise = rng.normal(size=samples.shape) * samples.std() * 10 ** (-SNR_DB / 20)
        levels = LevelStatistics(layout)
        levels.push(stft(samples + noise, layout.window, layout.hop))
        truths.append(head.directions[row])
        sounds.append(levels.statistics())
    return np.array(truths), sounds


class Errors:
    """Errors of localizations in several conditions, as the rows of a table."""

    HEADER = (
        "| | n | median ° | beyond 30° % | lateral mean ° | lateral median ° | in90 | "
        "radius ° | wrong and sure % | misfit doubts % | lateral in90 | lateral radius ° |\n"
        + 12 * "|---"
        + "|"
    )

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[float, ...]]] = {}

    def add(self, name: str, truths: Array, found: list[Localization]) -> None:
        """Add localizations of true directions (n, 2)."""
        for truth, one in zip(truths, found, strict=True):
            doubted = any(doubt.word is DoubtKind.HEAD_MISMATCH for doubt in one.doubts)
            self.add_source(name, truth, one, doubted=doubted)

    def add_source(
        self, name: str, truth: Array, found: Localization | SourceSummary, *, doubted: bool
    ) -> None:
        """Add one direction; `doubted`: the head was said not to fit."""
        error = float(ea.great_circle_error(truth, found.direction))
        true, estimated = lateral_angles(to_vectors(np.stack([truth, found.direction])))
        interval = found.posterior.lateral_angle
        assert interval is not None
        inside = abs(true - interval.angle) <= interval.radius_90
        self.rows.setdefault(name, []).append((
            error, abs(true - estimated), found.radius_90, doubted, inside, interval.radius_90,
        ))  # fmt: skip

    def print(self) -> None:
        """Print the table."""
        print(self.HEADER)
        for name, rows in self.rows.items():
            error, lateral, radius, doubted, inside, half = np.array(rows, dtype=float).T
            certain_errors = (error > 30) & (radius < 20)
            print(
                f"| {name} | {len(rows)} | {np.median(error):.1f} | {100 * np.mean(error > 30):.1f}"
                f" | {lateral.mean():.2f} | {np.median(lateral):.2f} | "
                f"{np.mean(error <= radius):.2f} | {np.median(radius):.1f} | "
                f"{100 * certain_errors.mean():.1f} | "
                f"{100 * doubted.mean():.0f} | {inside.mean():.2f} | {np.median(half):.1f} |",
                flush=True,
            )


def localized(atlas: LearnedHead, sounds: list[CueStatistics]) -> list[Localization]:
    """Return the localization of each sound."""
    return [
        localization_from_posterior(
            atlas, atlas.calibrated_posterior(sound), None, observed_share=0.5, seconds=3.0
        )
        for sound in sounds
    ]


def judge_people(atlas: PopulationAtlas, heads: list[ea.Head], count: int) -> None:
    """Print errors of people who are not in the atlas, before and after adaptation."""
    errors = Errors()
    for number, head in enumerate(heads):
        truths, sounds = talkers(head, count, 3.0, 1000 + number)
        errors.add("not adapted", truths, localized(atlas, sounds))
        where, recorded = talkers(
            head, ADAPTATION_UNLABELLED + ADAPTATION_LABELS, 3.0, 2000 + number
        )
        for name, rows, labels in (
            ("15 unlabelled", slice(0, 15), 0),
            ("50 unlabelled", slice(0, ADAPTATION_UNLABELLED), 0),
            ("50 unlabelled, 10 labelled", slice(0, None), ADAPTATION_LABELS),
        ):
            chosen = recorded[rows]
            given = [None] * (len(chosen) - labels) + list(where[len(where) - labels :])
            found = adapt_to_recordings(atlas.population, atlas.calibration, chosen, given)
            adapted = atlas.for_listener(found.listener)
            errors.add(name, truths, localized(adapted, sounds))
            print(f"{head.name}, {name}: {found.verdict}, {found.gain_nats:+.2f} nats", flush=True)
    errors.print()


def recorded_talkers(
    head: ea.Head, count: int, room: ea.Room | None, seed: int
) -> tuple[Array, list[ea.Audio]]:
    """Return directions (count, 2) and recordings of talkers of 3 s at measured directions."""
    rng = np.random.default_rng(seed)
    files = [path for path in utterances() if audio_seconds(path) >= 3.0]
    rows = evenly_distributed_rows(head)
    truths, recordings = [], []
    for number in range(count):
        direction = head.directions[rng.choice(rows)]
        dry = speech_excerpt(files[rng.integers(len(files))], 3.0, rng)
        settings = ea.SceneSettings(snr_db=SNR_DB, seed=number)
        with warnings.catch_warnings():  # directions that nobody measured, below the person
            warnings.simplefilter("ignore", ea.EaratlasWarning)
            scene = ea.render_scene(head, [dry], [direction], settings=settings, room=room)
        truths.append(scene.directions[0])
        recordings.append(scene.mixture)
    return np.array(truths), recordings


def judge_recordings(atlas: PopulationAtlas, heads: list[ea.Head], count: int) -> None:
    """Print errors of `Atlas.localize`, and of the anechoic model alone, for people outside."""
    errors = Errors()
    for number, head in enumerate(heads):
        _, sounds = talkers(head, ADAPTATION_UNLABELLED, 3.0, 2000 + number)
        found = adapt_to_recordings(atlas.population, atlas.calibration, sounds)
        print(head.name, found, flush=True)
        for place, room in (("anechoic", None), ("T60 0.4 s", ea.Room(t60_seconds=0.4))):
            truths, recordings = recorded_talkers(head, count, room, 6000 + number)
            statistics = [recording_statistics(one, atlas.layout) for one in recordings]
            for state, used in (
                ("not adapted", atlas),
                ("50 unlabelled", atlas.for_listener(found.listener)),
            ):
                name = f"{place}, {state}"
                errors.add(name, truths, [used.localize(one) for one in recordings])
                errors.add(f"{name}, without onsets", truths, localized(used, statistics))
    errors.print()


def random_room(rng: np.random.Generator) -> ea.Room:
    """Return a room of random size with a T60 of 0.3 to 0.6 s, for talkers at 1.5 m."""
    size = rng.uniform((4.0, 3.6, 3.3), (8.0, 6.5, 3.8))
    x, y = (float(rng.uniform(1.7, side - 1.7)) for side in size[:2])
    t60 = float(rng.uniform(0.3, 0.6))
    return ea.Room((float(size[0]), float(size[1]), float(size[2])), t60, (x, y, 1.65))


def judge_rooms(atlas: PopulationAtlas, heads: list[ea.Head], count: int) -> None:
    """Print errors of `Atlas.localize` before and after adaptation to talkers in a room."""
    errors = Errors()
    for number, head in enumerate(heads):
        rng = np.random.default_rng((70, number))
        own, other = random_room(rng), random_room(rng)
        recorded = recorded_talkers(head, ADAPTATION_UNLABELLED, own, 7100 + number)[1]
        states = {"not adapted": atlas}
        for used in (15, ADAPTATION_UNLABELLED):
            states[f"{used} in a room"], found = atlas.adapt(recorded[:used])
            print(f"{head.name}, T60 {own.t60_seconds:.2f} s, {used}: {found}", flush=True)
        for place, room in (("anechoic", None), ("another room", other)):
            truths, recordings = recorded_talkers(head, count, room, 7200 + number)
            for state, adapted in states.items():
                localized = [adapted.localize(one) for one in recordings]
                errors.add(f"{place}, {state}", truths, localized)
    errors.print()


def judge_separation(atlas: PopulationAtlas, heads: list[ea.Head], count: int) -> None:
    """Print metrics of two talkers, separated with the population and with the own head."""
    from earatlas.atlas import learn

    rooms = {"anechoic": None, "T60 0.4 s": ea.Room(t60_seconds=0.4)}
    rows: dict[str, list[dict[str, Row]]] = {name: [] for name in rooms}
    for number, head in enumerate(heads):
        training, held_out = split(head, number)
        own = learn(training)
        for place, room in rooms.items():
            scenes = mixtures(held_out, count, 2, room=room, room_head=head, seed=7000 + number)
            for scene in scenes:
                values = {}
                for name, used in (("atlas of people", atlas), ("own head", own)):
                    start = time.process_time()
                    found = used.separate(scene.mixture, n_sources=2)
                    seconds = time.process_time() - start
                    sounds = np.stack([source.audio.samples for source in found.sources])
                    directions = np.stack([source.direction for source in found.sources])
                    values[name] = row(scene, sounds, directions, seconds)
                rows[place].append(values)
    for place, found_rows in rows.items():
        table(f"2 talkers of people outside, {place}, {len(found_rows)} mixtures", found_rows)


def refusal(atlas: PopulationAtlas) -> None:
    """Print what becomes of adaptation to a head of another kind."""
    _, sounds = talkers(load_head("ku100"), 20, 3.0, 3000)
    found = adapt_to_recordings(atlas.population, atlas.calibration, sounds)
    print(
        f"KU100: {found.verdict.name}, {found.gain_nats:+.2f} nats, residual ratio "
        f"{found.residual_before:.2f} before and {found.residual_after:.2f} after"
    )


def listeners(atlas: PopulationAtlas, heads: list[ea.Head], count: int) -> None:
    """Print what becomes of sets of one listener, and of one listener after another one."""
    sounds = [talkers(head, count, 3.0, 4400 + n)[1] for n, head in enumerate(heads)]
    sets = {"one listener": sounds}
    half = count // 2
    sets["two listeners"] = [
        own[:half] + other[:half]
        for own, other in zip(sounds, sounds[1:] + sounds[:1], strict=True)
    ]
    for name, recorded in sets.items():
        found = [adapt_to_recordings(atlas.population, atlas.calibration, one) for one in recorded]
        print(f"{name}, {count} talkers:", [one.verdict.name for one in found], flush=True)


def foreign(atlas: PopulationAtlas, heads: list[ea.Head], count: int) -> None:
    """Print errors of dummy heads with the atlas of people, beside people outside of it."""
    errors = Errors()
    named = [("people outside", head) for head in heads]
    named += [(name, load_head(name)) for name in FOREIGN]
    for number, (name, head) in enumerate(named):
        shown = count if name in FOREIGN else max(count // len(heads), 1)
        truths, recordings = recorded_talkers(head, shown, None, 9000 + number)
        errors.add(name, truths, [atlas.localize(one) for one in recordings])
    errors.print()


def laboratory(atlas: PopulationAtlas, heads: list[ea.Head], count: int) -> None:
    """Print errors of people outside, as they are and with deviations of other laboratories."""
    errors = Errors()
    for number, head in enumerate(heads):
        elsewhere = {
            "same laboratory": head,
            "other laboratory, mild": in_other_laboratory(head, 10 + number),
            "other laboratory, strong": in_other_laboratory(head, 20 + number, STRONG),
        }
        for name, measured in elsewhere.items():
            truths, recordings = recorded_talkers(measured, count, None, 9500 + number)
            errors.add(name, truths, [atlas.localize(one) for one in recordings])
    errors.print()


def fit(count: int) -> None:
    """Print how often the right head of 8 is named, from directions that were held out.

    And how often it fits, how often another one fits beside it, and if the right one is missing.
    """
    from earatlas.atlas import learn

    heads = [ea.read_sofa(path) for path in people()[20:28]]
    rng = np.random.default_rng(0)
    atlases = []
    held_out = []
    for head in heads:
        order = rng.permutation(len(head))
        atlases.append(learn(head.subset(order[200:]), rooms=False))
        held_out.append(head.subset(order[:200]))
    for seconds in (3.0, 10.0):
        right, fitting, others, missing = [], [], [], []
        for number, head in enumerate(held_out):
            for sound in talkers(head, count, seconds, 4000 + number)[1]:
                found = compare_learned_heads(sound, atlases)
                right.append(found[0].index == number)
                fitting += [one.fits for one in found if one.index == number]
                others.append(any(one.fits for one in found if one.index != number))
                wrong = compare_learned_heads(sound, atlases[:number] + atlases[number + 1 :])
                missing.append(any(one.fits for one in wrong))
        counted = (right, fitting, others, missing)
        shares = [f"{100 * np.mean(values):.0f} %" for values in counted]
        print(
            f"{seconds:g} s, {len(right)} talkers: right head of 8 {shares[0]}, it fits "
            f"{shares[1]}, any of the others fits {shares[2]}, and {shares[3]} without it",
            flush=True,
        )


def reseated(count: int) -> None:
    """Print errors for a KEMAR that was set up again, with the atlas of its first set-up."""
    from earatlas.atlas import learn

    names = ("leipzig_kemar", "leipzig_kemar_reseated")
    errors = Errors()
    for learned, hearing in (names, names[::-1]):
        head = load_head(hearing)
        atlas = learn(load_head(learned))
        truths, sounds = talkers(head, count, 3.0, 5000)
        errors.add("cues alone", truths, localized(atlas, sounds))
        widened = replace(atlas, calibration=with_setup_error(atlas.calibration))
        errors.add("cues alone, with set-up error", truths, localized(widened, sounds))
        truths, recordings = recorded_talkers(head, count, None, 5001)
        same = replace(atlas, about=atlas.about | {"unit": "same"})
        for name, used in (("localize", atlas), ("localize, learned for the same unit", same)):
            errors.add(name, truths, [used.localize(one) for one in recordings])
    errors.print()


MISMATCHED = (
    ("leipzig_kemar", "leipzig_kemar_reseated"),
    ("leipzig_kemar_reseated", "leipzig_kemar"),
    ("cipic_021", "kemar_full"),
    ("kemar_full", "cipic_021"),
    ("cipic_021", "cipic_003"),
    ("ku100", "cipic_021"),
    ("cipic_021", "cipic_021"),
    ("ku100", "ku100"),
)
MISMATCHED_HORIZONTAL = (
    ("kemar_full", "ku100"),
    ("kemar_full", "cipic_021"),
    ("kemar_full", "hats"),
    ("hats", "cipic_003"),
    ("hats", "kemar_full"),
    ("ku100", "kemar_full"),
    ("kemar_full", "kemar_full"),
    ("hats", "hats"),
)


def horizontal(head: ea.Head) -> ea.Head:
    """Return the directions of a head at ear height."""
    return head.subset(np.abs(head.directions[:, 1]) < 1)


def mismatch(
    count: int,
    pairs: Sequence[tuple[str, str]] = MISMATCHED,
    prepare: Callable[[ea.Head], ea.Head] = lambda head: head,
    room: ea.Room | None = None,
) -> None:
    """Print errors if another head makes the recordings than the one that was learned."""
    from earatlas.atlas import learn

    errors = Errors()
    for learned, hearing in pairs:
        head = prepare(load_head(hearing))
        training = prepare(load_head(learned))
        if learned == hearing:
            training, head = split(head, 6000)
        atlas = learn(training)
        covered = atlas.space.distance(head.directions[:, None], training.directions).min(axis=1)
        head = head.subset(covered < MAX_GAP_DEGREES)  # HATS was measured in front
        scenes = single_talkers(head, count, snr_db=SNR_DB, room=room, seed=6000)
        truths, audio = zip(*scenes, strict=True)
        found = [atlas.localize(one) for one in audio]
        errors.add(f"{learned}, recorded with {hearing}", np.array(truths), found)
    errors.print()


def main() -> None:
    """Run the parts that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["people", "refusal", "size"])
    parser.add_argument("--count", type=int, default=30, help="talkers per person")
    parser.add_argument("--learn", type=int, default=25, help="people to learn from")
    parser.add_argument("--atlas", type=Path, help="file of the population, made if missing")
    parser.add_argument("--heads", type=Path, nargs="+", help="heads in place of people outside")
    options = parser.parse_args()
    files = people()
    test_files = options.heads or [*files[25:], DATA / "heads" / "cipic_003.sofa"]
    if POPULATION_PARTS & set(options.parts):
        if options.atlas and options.atlas.exists():
            atlas = PopulationAtlas.load(options.atlas)
        else:
            atlas = learn_population(files[: options.learn])
            if options.atlas:
                atlas.save(options.atlas)
        print(atlas, atlas.accuracy)
        for member in atlas.members:
            if member.problem:
                print(f"left out: {member.name}: {member.problem}")
    if "size" in options.parts:
        with tempfile.TemporaryDirectory() as folder:
            size = atlas.save(Path(folder) / "people.atlas").stat().st_size
        print(f"file: {size / 1e6:.2f} MB")
    if "people" in options.parts:
        judge_people(atlas, [ea.read_sofa(path) for path in test_files], options.count)
    if "recordings" in options.parts:
        judge_recordings(atlas, [ea.read_sofa(path) for path in test_files], options.count)
    if "rooms" in options.parts:
        judge_rooms(atlas, [ea.read_sofa(path) for path in test_files], options.count)
    if "separation" in options.parts:
        judge_separation(atlas, [ea.read_sofa(path) for path in test_files[:2]], 4)
    if "refusal" in options.parts:
        refusal(atlas)
    if "listeners" in options.parts:
        listeners(atlas, [ea.read_sofa(path) for path in test_files], options.count)
    if "foreign" in options.parts:
        foreign(atlas, [ea.read_sofa(path) for path in test_files], options.count)
    if "laboratory" in options.parts:
        laboratory(atlas, [ea.read_sofa(path) for path in test_files], options.count)
    if "fit" in options.parts:
        fit(options.count)
    if "reseated" in options.parts:
        reseated(options.count)
    if "mismatch" in options.parts:
        mismatch(options.count)
    if "horizontal" in options.parts:
        mismatch(options.count, MISMATCHED_HORIZONTAL, horizontal)
    if "mismatch_room" in options.parts:
        mismatch(options.count, room=ea.Room((6.0, 5.0, 3.0), 0.4))


if __name__ == "__main__":
    main()
