"""Streaming: quality of separation and tracking for static and moving talkers, and long runs.

    python benchmarks/streaming.py [static moving after_motion tracks fullband blocks soak
                                    development judgement own_head
                                    static_development static_judgement]
                                   [--count 6] [--atlas FILE] [--seed 31] [--minutes 60]

`static`: two talkers of 9 s, ku100 with all directions learned, anechoic and at T60 0.3 s, and the
HATS in measured room A: SDR after the first 3 s with both delays and of `separate`, seconds until
a track is confirmed, missed talkers, false tracks, identity swaps, direction errors, and CPU
seconds per second. `moving`: one talker at 20 degrees per second, and two that cross.
`after_motion`: two talkers, of which one moves from 2 to 7 s and is static afterwards, SDR in each
second, in comparison with two static talkers at the final directions. `tracks`: the tracking
figures of `static` and `moving` alone. `fullband`: two anechoic talkers at 48 kHz, SDR and CPU
seconds per second. `blocks`: the same signal in blocks of 64, 1000 and 48,000 samples; exits with
an error if tracks or samples differ. `soak`: talkers come and go; peak memory after one minute and
every five minutes, samples in and out. `development`, `judgement`, `own_head`: how honest the radii
are with other heads than the learned one and in rooms (`streaming_parts.other_heads`).
`static_development`, `static_judgement`: false motion and false splits of single static talkers
(`streaming_parts.false_motion`).

Every 50 ms, talkers and confirmed tracks within 20 degrees are matched: previous matches are kept
while they are valid (as in CLEAR MOT), the others are matched by Hungarian assignment. A track that
is matched in less than half of its steps is false. A swap is a step in which a talker is matched to
another track than before.
"""

import argparse
import resource
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from protocol import DATA, load_head, mixtures, speech_excerpt, utterances
from scipy.optimize import linear_sum_assignment
from separation_parts import fullband
from streaming_parts.false_motion import MOTION_DEVELOPMENT, MOTION_JUDGEMENT, false_motion
from streaming_parts.other_heads import DEVELOPMENT, JUDGEMENT, OWN_HEAD, other_heads

import earatlas as ea
from earatlas.geometry.angles import great_circle_error
from earatlas.types import Array

OTHER_HEADS = {"development": DEVELOPMENT, "judgement": JUDGEMENT, "own_head": OWN_HEAD}
KU100_PARTS = ("static", "moving", "after_motion", "tracks", "fullband", "blocks", "soak")
FALSE_MOTION = {"static_development": MOTION_DEVELOPMENT, "static_judgement": MOTION_JUDGEMENT}
PARTS = (*KU100_PARTS, *OTHER_HEADS, *FALSE_MOTION)
BLOCKS = (64, 1000, 48_000)  # block sizes in samples
RATE, SECONDS, LATE, STEP = 16_000, 9.0, 3 * 16_000, 800
DELAY, SHORT_DELAY = 0.112, 0.024  # seconds
BLOCK = 4000  # samples, block size of `soak`
NEAR = 20.0  # degrees, largest error of a match
# Start and end of the moving talker, and direction of the static talker, in degrees.
MOTIONS = (
    ((70, 0), (0, 0), (-45, 10)),
    ((-30, 0), (-90, 0), (40, 0)),
    ((70, 0), (-60, 0), (-20, 10)),
)


@dataclass
class TrackingFigures:
    """Tracking figures, accumulated over scenes."""

    seconds: float = 0.0
    missed: int = 0  # talkers without a track
    false: int = 0  # tracks
    swaps: int = 0
    waits: list[float] = field(default_factory=list)  # seconds until a track is confirmed
    errors: list[float] = field(default_factory=list)  # degrees
    within: list[bool] = field(default_factory=list)  # error at most radius_90

    def add(self, reports: list[ea.LiveReport], scene: ea.SimulatedScene) -> None:
        """Add the reports of one scene."""
        self.seconds += scene.mixture.seconds
        onsets = [_onset_seconds(image) for image in scene.images]
        matches: dict[int, int] = {}
        matched: dict[int, list[bool]] = {}
        for report in reports:
            tracks = [source for source in report.sources if source.confirmed]
            true = scene.directions_at([report.time])[:, 0]
            matched_now = _match(true, tracks, matches)
            for track in tracks:
                matched.setdefault(track.id, []).append(track.id in matched_now.values())
            for m, number in matched_now.items():
                if m not in matches:
                    self.waits.append(max(report.time - onsets[m], 0.0))
                self.swaps += matches.get(m, number) != number
                matches[m] = number
                own = next(track for track in tracks if track.id == number)
                error = float(great_circle_error(true[m], own.direction))
                self.errors.append(error)
                self.within.append(error <= own.radius_90)
        self.missed += len(scene.images) - len(matches)
        self.false += sum(sum(steps) < 0.5 * len(steps) for steps in matched.values())

    def row(self) -> str:
        """Return the cells of one row."""
        minutes = self.seconds / 60
        return (
            f"{np.median(self.waits):.2f} / {np.quantile(self.waits, 0.9):.2f} s | {self.missed} | "
            f"{self.false / minutes:.1f} | {self.swaps / minutes:.1f} | "
            f"{np.median(self.errors):.1f}° / {np.quantile(self.errors, 0.9):.1f}° | "
            f"{100 * np.mean(self.within):.0f} %"
        )


def _match(true: Array, tracks: list[ea.LiveSource], matches: dict[int, int]) -> dict[int, int]:
    """Return the matched track of each talker; `matches` are the previous ones."""
    if not tracks:
        return {}
    angles = np.stack([great_circle_error(true, track.direction[None]) for track in tracks], axis=1)
    costs = np.minimum(angles, 2 * NEAR)
    for m, name in matches.items():
        for j, track in enumerate(tracks):
            if track.id == name and angles[m, j] < NEAR:
                costs[m, j] -= 1e3
    rows, columns = linear_sum_assignment(costs)
    return {int(m): tracks[j].id for m, j in zip(rows, columns, strict=True) if angles[m, j] < NEAR}


def _onset_seconds(image: Array) -> float:
    """Return the time at which an image (2, n) has 0.1 % of its energy."""
    energy = np.cumsum((image**2).sum(axis=0))
    return float(np.argmax(energy > 1e-3 * energy[-1])) / RATE


def run_stream(
    live: ea.Live, samples: Array
) -> tuple[list[ea.LiveReport], dict[int, Array], float]:
    """Run a stream; return reports, signals (2, n) by track, and CPU seconds per second."""
    start, reports = time.process_time(), []
    sounds: dict[int, Array] = {}
    for i in range(0, samples.shape[1] + STEP, STEP):
        last = i >= samples.shape[1]
        report = live.finish() if last else live.push(samples[:, i : i + STEP])
        reports.append(report)
        for source in (*report.sources, *report.ended):
            whole = sounds.setdefault(source.id, np.zeros(samples.shape))
            whole[:, report.start : report.start + source.samples.shape[1]] = source.samples
    return reports, sounds, (time.process_time() - start) / (samples.shape[1] / live.rate)


def sdr(image: Array, estimate: Array) -> float:
    """Return the SDR after the first 3 s, in dB."""
    image, estimate = image[:, LATE:], estimate[:, LATE:]
    return 10 * float(np.log10((image**2).sum() / ((image - estimate) ** 2).sum()))


def best_sdr(images: Array, sounds: list[Array]) -> float:
    """Return the mean SDR over talkers, each with the signal that is closest to it, in dB."""
    silence = np.zeros_like(images[0])
    return float(np.mean([max(sdr(image, s) for s in [*sounds, silence]) for image in images]))


def room_a_scenes(count: int, seed: int) -> Iterator[ea.SimulatedScene]:
    """Yield scenes of two talkers in measured room A, at least 20 degrees apart."""
    room = ea.read_recordings(DATA / "rooms" / "room_a" / "positions.csv", kind="responses")
    yield from mixtures(room, count, 2, seconds=SECONDS, min_separation_degrees=20.0, seed=seed)


def static(title: str, atlas: ea.Atlas, scenes: Iterator[ea.SimulatedScene]) -> None:
    """Print one row for scenes of two static talkers."""
    tracking, sdrs, costs = TrackingFigures(), [], []
    for scene in scenes:
        x = scene.mixture.samples
        reports, sounds, cost = run_stream(atlas.live(rate=RATE), x)
        tracking.add(reports, scene)
        _, short, short_cost = run_stream(atlas.live(rate=RATE, delay_seconds=SHORT_DELAY), x)
        start = time.process_time()
        offline = atlas.separate(scene.mixture, n_sources=2)
        offline_cost = (time.process_time() - start) / SECONDS
        separated = [source.audio.samples for source in offline.sources]
        outputs = [list(sounds.values()), list(short.values()), separated]
        sdrs.append([best_sdr(scene.images, each) for each in outputs])
        costs.append([cost, short_cost, offline_cost])
    live, short_delay, offline_db = np.mean(sdrs, axis=0)
    median = np.median(sdrs, axis=0)
    usual_cost, short_cost, offline_cost = np.mean(costs, axis=0)
    print(
        f"| {title} | {live:.1f} ({median[0]:.1f}) | {short_delay:.1f} ({median[1]:.1f}) | "
        f"{offline_db:.1f} ({median[2]:.1f}) | {tracking.row()} | "
        f"{usual_cost:.2f}, {short_cost:.2f}, {offline_cost:.2f} |",
        flush=True,
    )


def moving_scenes(count: int, seed: int) -> Iterator[tuple[str, list[ea.SimulatedScene]]]:
    """Yield titles and scenes of one moving talker, and of two that cross."""
    rng, files, head = np.random.default_rng(seed), utterances(), load_head("ku100")
    files = [path for path in files if len(ea.read_mono(path, rate=RATE)) > 8 * RATE]
    for title, motions in (
        ("one source moves at 20°/s", [((0, 8), ((80, 0), (-80, 0)))]),
        ("two sources cross", [((0, 8), ((60, 0), (-60, 0))), ((0, 8), ((-60, 0), (60, 0)))]),
    ):
        scenes = []
        for _ in range(count):
            sounds = [speech_excerpt(files[rng.integers(len(files))], 8.0, rng) for _ in motions]
            scenes.append(
                ea.render_scene(head, sounds, [ea.Trajectory(*motion) for motion in motions])
            )
        yield title, scenes


def moving(atlas: ea.Atlas, count: int, seed: int) -> None:
    """Print the rows of moving talkers."""
    for title, scenes in moving_scenes(count, seed):
        print(f"| {title} | – | – | – | {tracking_figures(atlas, scenes).row()} | – |", flush=True)


def after_motion(atlas: ea.Atlas, count: int, seed: int) -> None:
    """Print the SDR in each second: one of two talkers moves, and both static."""
    rng, head, seconds = np.random.default_rng(seed), load_head("ku100"), 14
    files = [path for path in utterances() if len(ea.read_mono(path, rate=RATE)) > seconds * RATE]
    rows: dict[str, list[Array]] = {"one source moves from 2 to 7 s": [], "both static": []}
    for number in range(count):
        begin, end, other = MOTIONS[number % len(MOTIONS)]
        paths = rng.choice(len(files), 2, replace=False)
        sounds = [speech_excerpt(files[i], seconds, rng) for i in paths]
        for row, times in zip(rows.values(), ((0, 2, 7, seconds), (0, seconds)), strict=True):
            stops = (begin, begin, end, end) if len(times) == 4 else (end, end)
            trajectories = [
                ea.Trajectory(times, stops),
                ea.Trajectory((0, seconds), (other, other)),
            ]
            scene = ea.render_scene(head, sounds, trajectories)
            separated = list(run_stream(atlas.live(rate=RATE), scene.mixture.samples)[1].values())
            row.append(sdr_by_second(scene.images, separated))
    print("\n| SDR in dB, by second | " + " | ".join(map(str, range(1, seconds))) + " |")
    print("|---" * seconds + "|")
    for title, each in rows.items():
        print(f"| {title} | " + " | ".join(f"{db:.0f}" for db in np.mean(each, axis=0)) + " |")


def sdr_by_second(images: Array, sounds: list[Array]) -> Array:
    """Return the mean SDR over talkers (S - 1,) in each second after the first, in dB.

    In each second, a talker is compared with the signal that is closest to it.
    """
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


def tracking_figures(atlas: ea.Atlas, scenes: Iterable[ea.SimulatedScene]) -> TrackingFigures:
    """Return the tracking figures of streams over scenes."""
    tracking = TrackingFigures()
    for scene in scenes:
        tracking.add(run_stream(atlas.live(rate=RATE), scene.mixture.samples)[0], scene)
    return tracking


def static_scenes(count: int, seed: int) -> Iterator[tuple[str, Iterator[ea.SimulatedScene]]]:
    """Yield titles and scenes of two static talkers, anechoic and in a simulated room."""
    head = load_head("ku100")
    for title, room in (("anechoic", None), ("T60 0.3 s", ea.Room(t60_seconds=0.3))):
        yield title, mixtures(head, count, 2, seconds=SECONDS, room=room, seed=seed)


def at_48_khz(atlas: ea.Atlas, count: int) -> None:
    """Print SDR and cost of two anechoic talkers at 48 kHz, with both delays."""
    rows = []
    for scene in fullband.scenes(load_head("ku100"), count, SECONDS):
        x, late = scene.mixture.samples, slice(3 * fullband.RATE, None)
        true = fullband.above(scene.images)[..., late]
        row = [fullband.sdr_db(true, fullband.above(x)[None, :, late])]
        for delay in (DELAY, SHORT_DELAY):
            live = atlas.live(rate=fullband.RATE, delay_seconds=delay)
            _, sounds, cost = run_stream(live, x)
            whole = np.array([*sounds.values(), np.zeros_like(x)])
            own = [int(np.argmin([((i - s) ** 2).sum() for s in whole])) for i in scene.images]
            estimates = whole[own]
            high = fullband.above(estimates)[..., late]
            row += [fullband.sdr_db(scene.images[..., late], estimates[..., late])]
            row += [fullband.sdr_db(true, high), cost]
        rows.append(row)
    mixture, *figures = np.mean(rows, axis=0)
    print(
        "\n| 48 kHz, two anechoic talkers | SDR dB | above 8 kHz | mixture above 8 kHz "
        "| CPU s per second |"
        "\n|---|---|---|---|---|"
    )
    for title, (all_db, high_db, cost) in zip(
        ("streaming", "delay of 24 ms"), np.reshape(figures, (2, 3)), strict=True
    ):
        print(
            f"| {title} | {all_db:.1f} | {high_db:.1f} | {mixture:.1f} | {cost:.2f} |", flush=True
        )


def coming_and_going(minutes: float, seed: int) -> Iterator[Array]:
    """Yield signals (2, n) of two talkers each, followed by up to 4 s of silence."""
    rng, files, head = np.random.default_rng(seed), utterances(), load_head("ku100")
    taken = 0
    while taken < minutes * 60 * RATE:
        directions = head.directions[rng.choice(len(head), 2, replace=False)]
        sounds = [ea.read_mono(files[rng.integers(len(files))], rate=RATE) for _ in directions]
        x = ea.render_scene(head, sounds, directions).mixture.samples
        x = np.concatenate([x, np.zeros((2, int(rng.integers(4 * RATE))))], axis=1)
        taken += x.shape[1]
        yield x


def blocks(atlas: ea.Atlas, minutes: float, seed: int) -> None:
    """Stream the same signal in blocks of several sizes; exit with an error if outputs differ."""
    streams = [atlas.live(rate=RATE) for _ in BLOCKS]
    taken = n_samples = last_track = printed_minute = 0
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
        n_samples += sum(sound.shape[1] for sound in sounds.values())
        last_track = max([last_track, *sounds])
        if taken >= (printed_minute + 1) * 60 * RATE:
            printed_minute = int(taken / RATE / 60)
            print(f"blocks: identical at minute {taken / RATE / 60:.1f}", flush=True)
    print(
        f"blocks of {', '.join(map(str, BLOCKS))}: {taken / RATE / 60:.1f} minutes, "
        f"{last_track} tracks, {n_samples} samples of sources, all tracks and samples identical",
        flush=True,
    )


def in_blocks(
    live: ea.Live, x: Array, size: int
) -> tuple[list[tuple[object, ...]], dict[int, Array]]:
    """Push a signal in blocks; return the final tracks and the signals (2, n) by track."""
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
    """Stream a long signal of talkers that come and go; print memory, cost and lost samples."""
    live = atlas.live(rate=RATE)
    taken = tracks = 0
    cpu, early_mb, next_minute = 0.0, 0.0, 1.0
    for x in coming_and_going(minutes, seed):
        start = time.process_time()
        for i in range(0, x.shape[1], BLOCK):
            report = live.push(x[:, i : i + BLOCK])
            tracks = max([tracks, *(s.id for s in report.sources if s.confirmed)])
        cpu += time.process_time() - start
        taken += x.shape[1]
        minutes_done = taken / RATE / 60
        if minutes_done >= next_minute:
            early_mb = early_mb or _peak_memory_mb()
            print(
                f"soak: minute {minutes_done:.1f}, {tracks} tracks, "
                f"peak memory {_peak_memory_mb():.0f} MB, "
                f"{cpu / (taken / RATE):.2f} CPU s per second",
                flush=True,
            )
            next_minute = 5.0 * (minutes_done // 5 + 1)
    last = live.finish()
    lost = taken - last.start - last.samples
    print(
        f"soak: {taken / RATE / 60:.1f} minutes, {tracks} tracks; "
        f"peak memory {early_mb:.0f} MB after the first minute, "
        f"{_peak_memory_mb():.0f} MB at the end; {max(lost, 0)} samples lost; "
        f"{cpu / (taken / RATE):.2f} CPU s per second",
        flush=True,
    )


def _peak_memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Run the given parts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=list(PARTS[:2]), help=", ".join(PARTS))
    parser.add_argument("--count", type=int, default=6, help="number of scenes per row")
    parser.add_argument("--seed", type=int, default=31, help="seed of the scenes")
    parser.add_argument("--minutes", type=float, default=60.0, help="length of blocks and soak")
    parser.add_argument(
        "--atlas", type=Path, help="atlas of all directions of ku100; default: learn it"
    )
    parser.add_argument(
        "--hats", type=Path, help="atlas of all directions of hats; default: learn it"
    )
    parser.add_argument("--atlases", type=Path, help="folder in which learned atlases are kept")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"PART must be one of {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")

    def load_or_learn(name: str, path: Path | None) -> ea.Atlas:
        return ea.learn(load_head(name)) if path is None else ea.Atlas.load(path)

    count, seed = options.count, options.seed
    for part in OTHER_HEADS.keys() & set(options.parts):
        other_heads(OTHER_HEADS[part], count, seed, options.atlases)
    for part in FALSE_MOTION.keys() & set(options.parts):
        false_motion(FALSE_MOTION[part], count, seed, options.atlases)
    if not set(KU100_PARTS) & set(options.parts):
        return
    ku100 = load_or_learn("ku100", options.atlas)
    if {"static", "moving"} & set(options.parts):
        print(
            "| | SDR streaming (median) | delay of 24 ms | `separate` | "
            "confirmed after, median / 90 % | missed | false per minute | swaps per minute | "
            "error, median / 90 % | within radius | "
            "CPU s per second: streaming, delay of 24 ms, `separate` |\n|" + "---|" * 11
        )
    if "static" in options.parts:
        for title, scenes in static_scenes(count, seed):
            static(title, ku100, scenes)
        static("room A", load_or_learn("hats", options.hats), room_a_scenes(count, seed))
    if "moving" in options.parts:
        moving(ku100, count, seed)
    if "after_motion" in options.parts:
        after_motion(ku100, count, seed)
    if "tracks" in options.parts:
        print(
            "| | confirmed after, median / 90 % | missed | false per minute | swaps per minute | "
            "error, median / 90 % | within radius |\n|" + "---|" * 7
        )
        for title, group in (*static_scenes(count, seed), *moving_scenes(count, seed)):
            print(f"| {title} | {tracking_figures(ku100, group).row()} |", flush=True)
        hats = load_or_learn("hats", options.hats)
        print(
            f"| room A | {tracking_figures(hats, room_a_scenes(count, seed)).row()} |", flush=True
        )
    if "fullband" in options.parts:
        at_48_khz(ku100, count)
    if "blocks" in options.parts:
        blocks(ku100, options.minutes, seed)
    if "soak" in options.parts:
        soak(ku100, options.minutes, seed)


if __name__ == "__main__":
    main()
