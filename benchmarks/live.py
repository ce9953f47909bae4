"""Live streams: how well and how soon, on talkers that stand and walk; and long runs.

    python benchmarks/live.py [standing walking walked tracks fullband blocks soak] [--count 6]
                              [--atlas FILE] [--seed 31] [--minutes 60]

`standing`: two talkers of 9 s, ku100 learned whole, in the open and at T60 0.3 s, and the HATS in
measured room A: SDR after the first 3 s beside `separate` of the same sound, with both delays;
seconds until a track is confirmed, misses, false tracks and swaps, direction errors, CPU seconds a
second. `walking`: one talker at 20 degrees a second, and two that cross. `walked`: two talkers of
whom one walks from 2 to 7 s and then stands, SDR second by second beside the same two who stand
there throughout. `tracks`: who is where of both, without the sound of any. `fullband`: two talkers
in the open at 48 kHz, SDR and CPU seconds a second. `blocks`: the same sound in blocks of 64, 1000
and 48,000 samples, which ends with an error where tracks or samples differ. `soak`: talkers come
and go; peak memory after a minute and every five, samples in and out.

A step (each 50 ms) matches talkers and confirmed tracks within 20 degrees: who was matched before
stays so while it can (as in CLEAR MOT), the others are matched by Hungarian assignment. A track
that is matched in less than half of its steps is false; a swap is a talker's step with another
track than before.
"""

import argparse
import resource
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from protocol import DATA, head_of, mixtures, talker, utterances
from scipy.optimize import linear_sum_assignment
from separating import fullband

import earatlas as ea
from earatlas.geometry.angles import great_circle_error
from earatlas.types import Array

PARTS = ("standing", "walking", "walked", "tracks", "fullband", "blocks", "soak")
BLOCKS = (64, 1000, 48_000)  # samples
RATE, SECONDS, LATE, STEP = 16_000, 9.0, 3 * 16_000, 800
BLOCK = 4000  # of a long run
NEAR = 20.0  # degrees
# From where and to where one walks, and where the other stands.
WAYS = (((70, 0), (0, 0), (-45, 10)), ((-30, 0), (-90, 0), (40, 0)), ((70, 0), (-60, 0), (-20, 10)))


@dataclass
class Tracking:
    """What was said of where talkers are, beside where they were."""

    seconds: float = 0.0
    missed: int = 0  # talkers who never had a track
    false: int = 0
    swaps: int = 0
    waits: list[float] = field(default_factory=list)  # until a track was confirmed
    errors: list[float] = field(default_factory=list)
    within: list[bool] = field(default_factory=list)  # the radius

    def add(self, reports: list[ea.LiveReport], scene: ea.SimulatedScene) -> None:
        """One scene."""
        self.seconds += scene.mixture.seconds
        begins = [_first_word(image) for image in scene.images]
        names: dict[int, int] = {}
        matched: dict[int, list[bool]] = {}
        for report in reports:
            tracks = [source for source in report.sources if source.confirmed]
            true = scene.directions_at([report.time])[:, 0]
            pairs = _pairs(true, tracks, names)
            for track in tracks:
                matched.setdefault(track.id, []).append(track.id in pairs.values())
            for m, number in pairs.items():
                if m not in names:
                    self.waits.append(max(report.time - begins[m], 0.0))
                self.swaps += names.get(m, number) != number
                names[m] = number
                own = next(track for track in tracks if track.id == number)
                error = float(great_circle_error(true[m], own.direction))
                self.errors.append(error)
                self.within.append(error <= own.radius_90)
        self.missed += len(scene.images) - len(names)
        self.false += sum(sum(steps) < 0.5 * len(steps) for steps in matched.values())

    def row(self) -> str:
        """Its figures."""
        minutes = self.seconds / 60
        return (
            f"{np.median(self.waits):.2f} / {np.quantile(self.waits, 0.9):.2f} s | {self.missed} | "
            f"{self.false / minutes:.1f} | {self.swaps / minutes:.1f} | "
            f"{np.median(self.errors):.1f}° / {np.quantile(self.errors, 0.9):.1f}° | "
            f"{100 * np.mean(self.within):.0f} %"
        )


def _pairs(true: Array, tracks: list[ea.LiveSource], names: dict[int, int]) -> dict[int, int]:
    """The track of each talker that has one; `names` are those of before."""
    if not tracks:
        return {}
    gaps = np.stack([great_circle_error(true, track.direction[None]) for track in tracks], axis=1)
    costs = np.minimum(gaps, 2 * NEAR)
    for m, name in names.items():
        for j, track in enumerate(tracks):
            if track.id == name and gaps[m, j] < NEAR:
                costs[m, j] -= 1e3
    rows, columns = linear_sum_assignment(costs)
    return {int(m): tracks[j].id for m, j in zip(rows, columns, strict=True) if gaps[m, j] < NEAR}


def _first_word(image: Array) -> float:
    energy = np.cumsum((image**2).sum(axis=0))
    return float(np.argmax(energy > 1e-3 * energy[-1])) / RATE


def heard(live: ea.Live, samples: Array) -> tuple[list[ea.LiveReport], dict[int, Array], float]:
    """Reports, whole sounds by name, and CPU seconds a second."""
    begun, reports = time.process_time(), []
    sounds: dict[int, Array] = {}
    for i in range(0, samples.shape[1] + STEP, STEP):
        last = i >= samples.shape[1]
        report = live.finish() if last else live.push(samples[:, i : i + STEP])
        reports.append(report)
        for source in (*report.sources, *report.ended):
            whole = sounds.setdefault(source.id, np.zeros(samples.shape))
            whole[:, report.start : report.start + source.samples.shape[1]] = source.samples
    return reports, sounds, (time.process_time() - begun) / (samples.shape[1] / live.rate)


def sdr(image: Array, found: Array) -> float:
    """Of what comes after the first seconds, in dB."""
    image, found = image[:, LATE:], found[:, LATE:]
    return 10 * float(np.log10((image**2).sum() / ((image - found) ** 2).sum()))


def best_sdr(images: Array, sounds: list[Array]) -> float:
    """Mean over the talkers, each with the sound that is most like it."""
    silence = np.zeros_like(images[0])
    return float(np.mean([max(sdr(image, s) for s in [*sounds, silence]) for image in images]))


def in_room_a(count: int, seed: int) -> Iterator[ea.SimulatedScene]:
    """Two talkers in the measured room, 20 degrees apart or more."""
    room = ea.read_recordings(DATA / "rooms" / "room_a" / "positions.csv", kind="responses")
    yield from mixtures(room, count, 2, seconds=SECONDS, apart_degrees=20.0, seed=seed)


def standing(title: str, atlas: ea.Atlas, scenes: Iterator[ea.SimulatedScene]) -> None:
    """A row for scenes of two talkers."""
    tracking, dbs, costs = Tracking(), [], []
    for scene in scenes:
        x = scene.mixture.samples
        reports, sounds, cost = heard(atlas.live(rate=RATE), x)
        tracking.add(reports, scene)
        _, low, low_cost = heard(atlas.live(rate=RATE, low_delay=True), x)
        begun = time.process_time()
        offline = atlas.separate(scene.mixture, n_sources=2)
        whole_cost = (time.process_time() - begun) / SECONDS
        whole = [source.audio.samples for source in offline.sources]
        found = [list(sounds.values()), list(low.values()), whole]
        dbs.append([best_sdr(scene.images, each) for each in found])
        costs.append([cost, low_cost, whole_cost])
    live, low_delay, offline_db = np.mean(dbs, axis=0)
    median = np.median(dbs, axis=0)
    usual, low_cost, whole_cost = np.mean(costs, axis=0)
    print(
        f"| {title} | {live:.1f} ({median[0]:.1f}) | {low_delay:.1f} ({median[1]:.1f}) | "
        f"{offline_db:.1f} ({median[2]:.1f}) | {tracking.row()} | "
        f"{usual:.2f}, {low_cost:.2f}, {whole_cost:.2f} |",
        flush=True,
    )


def walkers(count: int, seed: int) -> Iterator[tuple[str, list[ea.SimulatedScene]]]:
    """One that walks, and two that cross."""
    rng, files, head = np.random.default_rng(seed), utterances(), head_of("ku100")
    files = [path for path in files if len(ea.read_mono(path, rate=RATE)) > 8 * RATE]
    for title, ways in (
        ("one walks at 20°/s", [((0, 8), ((80, 0), (-80, 0)))]),
        ("two cross", [((0, 8), ((60, 0), (-60, 0))), ((0, 8), ((-60, 0), (60, 0)))]),
    ):
        scenes = []
        for _ in range(count):
            sounds = [talker(files[rng.integers(len(files))], 8.0, rng) for _ in ways]
            scenes.append(ea.render_scene(head, sounds, [ea.Trajectory(*way) for way in ways]))
        yield title, scenes


def walking(atlas: ea.Atlas, count: int, seed: int) -> None:
    """Rows for those that walk."""
    for title, scenes in walkers(count, seed):
        print(f"| {title} | – | – | – | {followed(atlas, scenes).row()} | – |", flush=True)


def walked(atlas: ea.Atlas, count: int, seed: int) -> None:
    """Rows of SDR by the second, of two of whom one has walked, and of two who stand there."""
    rng, head, seconds = np.random.default_rng(seed), head_of("ku100"), 14
    files = [path for path in utterances() if len(ea.read_mono(path, rate=RATE)) > seconds * RATE]
    rows: dict[str, list[Array]] = {"one walks from 2 to 7 s": [], "both stand": []}
    for number in range(count):
        begin, end, other = WAYS[number % len(WAYS)]
        paths = rng.choice(len(files), 2, replace=False)
        sounds = [talker(files[i], seconds, rng) for i in paths]
        for row, times in zip(rows.values(), ((0, 2, 7, seconds), (0, seconds)), strict=True):
            way = (begin, begin, end, end) if len(times) == 4 else (end, end)
            trajectories = [ea.Trajectory(times, way), ea.Trajectory((0, seconds), (other, other))]
            scene = ea.render_scene(head, sounds, trajectories)
            found = list(heard(atlas.live(rate=RATE), scene.mixture.samples)[1].values())
            row.append(by_the_second(scene.images, found))
    print("\n| SDR dB in second | " + " | ".join(map(str, range(1, seconds))) + " |")
    print("|---" * seconds + "|")
    for title, each in rows.items():
        print(f"| {title} | " + " | ".join(f"{db:.0f}" for db in np.mean(each, axis=0)) + " |")


def by_the_second(images: Array, sounds: list[Array]) -> Array:
    """(S - 1,) from the first on, the mean over talkers, each with what is most like it then."""
    n = images.shape[-1] // RATE * RATE
    parts = [np.split(s[..., :n], n // RATE, axis=-1)[1:] for s in (images, np.stack(sounds))]
    return np.array(
        [
            np.mean(
                [
                    10 * np.log10((i**2).sum() / min(((i - s) ** 2).sum() for s in (*own, 0 * i)))
                    for i in image
                ]
            )
            for image, own in zip(*parts, strict=True)
        ]
    )


def followed(atlas: ea.Atlas, scenes: Iterable[ea.SimulatedScene]) -> Tracking:
    """What a stream says of where talkers are."""
    tracking = Tracking()
    for scene in scenes:
        tracking.add(heard(atlas.live(rate=RATE), scene.mixture.samples)[0], scene)
    return tracking


def standers(count: int, seed: int) -> Iterator[tuple[str, Iterator[ea.SimulatedScene]]]:
    """Two that stand, in the open and in a simulated room."""
    head = head_of("ku100")
    for title, room in (("open", None), ("T60 0.3 s", ea.Room(t60_seconds=0.3))):
        yield title, mixtures(head, count, 2, seconds=SECONDS, room=room, seed=seed)


def at_48_khz(atlas: ea.Atlas, count: int) -> None:
    """Two talkers in the open, with both delays."""
    rows = []
    for scene in fullband.scenes(head_of("ku100"), count, SECONDS):
        x, late = scene.mixture.samples, slice(3 * fullband.RATE, None)
        true = fullband.above(scene.images)[..., late]
        row = [fullband.distortion(true, fullband.above(x)[None, :, late])]
        for low_delay in (False, True):
            live = atlas.live(rate=fullband.RATE, low_delay=low_delay)
            _, sounds, cost = heard(live, x)
            whole = np.array([*sounds.values(), np.zeros_like(x)])
            own = [int(np.argmin([((i - s) ** 2).sum() for s in whole])) for i in scene.images]
            found = whole[own]
            high = fullband.above(found)[..., late]
            row += [fullband.distortion(scene.images[..., late], found[..., late])]
            row += [fullband.distortion(true, high), cost]
        rows.append(row)
    mixture, *figures = np.mean(rows, axis=0)
    print(
        "\n| 48 kHz, two in the open | SDR | above 8 kHz | that of the mixture | CPU s a second |"
        "\n|---|---|---|---|---|"
    )
    for title, (all_db, high_db, cost) in zip(
        ("live", "low delay"), np.reshape(figures, (2, 3)), strict=True
    ):
        print(
            f"| {title} | {all_db:.1f} | {high_db:.1f} | {mixture:.1f} | {cost:.2f} |", flush=True
        )


def coming_and_going(minutes: float, seed: int) -> Iterator[Array]:
    """Two talkers at a time, others elsewhere after up to 4 s of silence, for so long."""
    rng, files, head = np.random.default_rng(seed), utterances(), head_of("ku100")
    taken = 0
    while taken < minutes * 60 * RATE:
        places = head.directions[rng.choice(len(head), 2, replace=False)]
        sounds = [ea.read_mono(files[rng.integers(len(files))], rate=RATE) for _ in places]
        x = ea.render_scene(head, sounds, places).mixture.samples
        x = np.concatenate([x, np.zeros((2, int(rng.integers(4 * RATE))))], axis=1)
        taken += x.shape[1]
        yield x


def blocks(atlas: ea.Atlas, minutes: float, seed: int) -> None:
    """The same sound in blocks of several sizes: an error where what comes out differs."""
    streams = [atlas.live(rate=RATE) for _ in BLOCKS]
    taken = given = names = told = 0
    for x in coming_and_going(minutes, seed):
        taken += x.shape[1]
        out = [in_blocks(live, x, n) for live, n in zip(streams, BLOCKS, strict=True)]
        tracks, sounds = out[0]
        for n, (other_tracks, other_sounds) in zip(BLOCKS[1:], out[1:], strict=True):
            same = other_sounds.keys() == sounds.keys() and all(
                np.array_equal(sounds[i], other_sounds[i]) for i in sounds
            )
            if not same or tracks != other_tracks:
                at = taken / RATE
                raise SystemExit(f"blocks of {BLOCKS[0]} and {n} differ before {at:.1f} s")
        given += sum(sound.shape[1] for sound in sounds.values())
        names = max([names, *sounds])
        if taken >= (told + 1) * 60 * RATE:
            told = int(taken / RATE / 60)
            print(f"blocks: alike at minute {taken / RATE / 60:.1f}", flush=True)
    print(
        f"blocks of {', '.join(map(str, BLOCKS))}: {taken / RATE / 60:.1f} minutes, {names} names, "
        f"{given} samples of sources, all tracks and samples the same",
        flush=True,
    )


def in_blocks(
    live: ea.Live, x: Array, size: int
) -> tuple[list[tuple[object, ...]], dict[int, Array]]:
    """The tracks at the end of a stretch, and all that came out during it, by name."""
    parts: list[ea.LiveReport] = []
    for i in range(0, x.shape[1], size):
        parts.append(live.push(x[:, i : i + size]))
    start, n = parts[0].start, sum(report.samples for report in parts)
    sounds: dict[int, Array] = {}
    for report in parts:
        for source in (*report.sources, *report.ended):
            if source.samples.any():
                whole = sounds.setdefault(source.id, np.zeros((2, n)))
                at = report.start - start
                whole[:, at : at + source.samples.shape[1]] = source.samples
    return [(s.id, *s.direction, s.confirmed, s.radius_90) for s in parts[-1].sources], sounds


def soak(atlas: ea.Atlas, minutes: float, seed: int) -> None:
    """Talkers come and go for a long time; memory and samples."""
    live = atlas.live(rate=RATE)
    taken = tracks = 0
    cpu, early, due = 0.0, 0.0, 1.0
    for x in coming_and_going(minutes, seed):
        begun = time.process_time()
        for i in range(0, x.shape[1], BLOCK):
            report = live.push(x[:, i : i + BLOCK])
            tracks = max([tracks, *(s.id for s in report.sources if s.confirmed)])
        cpu += time.process_time() - begun
        taken += x.shape[1]
        passed = taken / RATE / 60
        if passed >= due:
            early = early or _resident()
            print(
                f"soak: minute {passed:.1f}, {tracks} names, peak memory {_resident():.0f} MB, "
                f"{cpu / (taken / RATE):.2f} CPU seconds a second",
                flush=True,
            )
            due = 5.0 * (passed // 5 + 1)
    last = live.finish()
    lost = taken - last.start - last.samples
    print(
        f"soak: {taken / RATE / 60:.1f} minutes, {tracks} names; peak memory {early:.0f} MB after "
        f"the first minute, {_resident():.0f} MB at the end; {max(lost, 0)} samples lost; "
        f"{cpu / (taken / RATE):.2f} CPU seconds a second",
        flush=True,
    )


def _resident() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=list(PARTS[:2]))
    parser.add_argument("--count", type=int, default=6)
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--atlas", type=Path, help="ku100 learned whole; without it, learned here")
    parser.add_argument("--hats", type=Path, help="hats learned whole; without it, learned here")
    options = parser.parse_args()

    def atlas_of(name: str, path: Path | None) -> ea.Atlas:
        return ea.learn(head_of(name)) if path is None else ea.Atlas.load(path)

    ku100 = atlas_of("ku100", options.atlas)
    count, seed = options.count, options.seed
    if {"standing", "walking"} & set(options.parts):
        print(
            "| | SDR live (median) | low delay | `separate` | confirmed after, median / 90 % | "
            "missed | false a minute | swaps a minute | error, median / 90 % | within radius | "
            "CPU s a second: live, low delay, `separate` |\n|" + "---|" * 11
        )
    if "standing" in options.parts:
        for title, scenes in standers(count, seed):
            standing(title, ku100, scenes)
        standing("room A", atlas_of("hats", options.hats), in_room_a(count, seed))
    if "walking" in options.parts:
        walking(ku100, count, seed)
    if "walked" in options.parts:
        walked(ku100, count, seed)
    if "tracks" in options.parts:
        print(
            "| | confirmed after, median / 90 % | missed | false a minute | swaps a minute | "
            "error, median / 90 % | within radius |\n|" + "---|" * 7
        )
        for title, some in (*standers(count, seed), *walkers(count, seed)):
            print(f"| {title} | {followed(ku100, some).row()} |", flush=True)
        hats = atlas_of("hats", options.hats)
        print(f"| room A | {followed(hats, in_room_a(count, seed)).row()} |", flush=True)
    if "fullband" in options.parts:
        at_48_khz(ku100, count)
    if "blocks" in options.parts:
        blocks(ku100, options.minutes, seed)
    if "soak" in options.parts:
        soak(ku100, options.minutes, seed)


if __name__ == "__main__":
    main()
