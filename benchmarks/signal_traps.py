"""Signal traps: broken and unusual input, and what the commands say about it.

    python benchmarks/signal_traps.py traps [--heads cipic_021] [--rows inverted mono]
    python benchmarks/signal_traps.py alarms [--heads ku100 cipic_003 …] [--count 20]

`traps`: the verdict of `localize`, `separate` and `listen --separate` on every row of
`tests/trap_table.py`. `alarms`: right recordings in which a fault of the input is found.
"""

import argparse
import csv
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import scipy.signal
from protocol import DATA, mixtures, single_talkers, speech_excerpt, utterances

import earatlas as ea
from earatlas.features.audio_files import audio_seconds
from earatlas.features.input_plausibility import InterauralLimits, find_input_faults
from earatlas.features.interaural_monitor import InterauralMonitor
from earatlas.features.onset_detector import OnsetDetectorSettings
from earatlas.hrtf.interaural_templates import InterauralTemplates
from earatlas.streaming.report import LiveReport
from earatlas.types import Array

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from trap_table import (
    TRAPS,
    Trap,
    TrapSetup,
    Verdict,
    judge_localization,
    judge_scene,
    judge_stream,
)

RATE = 16_000


def read_head(name: str) -> ea.Head:
    """Read a head of the folder of heads or of people."""
    for folder in ("heads", "people"):
        path = DATA / folder / f"{name}.sofa"
        if path.exists():
            return ea.read_sofa(path)
    raise SystemExit(f"No head '{name}' in {DATA}. Set EARATLAS_DATA to the data folder.")


def limits_of(head: ea.Head) -> InterauralLimits:
    """Return the limits that the atlas of a head has."""
    templates = InterauralTemplates.of(head, OnsetDetectorSettings().frequencies_hz)
    return InterauralLimits.of(templates.frequencies_hz, templates.measured_ratios)


def room_recordings(room: str, count: int, n_sources: int, seed: int) -> Iterator[Array]:
    """Yield talkers in a measured room, 2 to 5 s."""
    with (DATA / "rooms" / room / "positions.csv").open(newline="") as handle:
        positions = [row["file"] for row in csv.DictReader(handle)]
    rng, files = np.random.default_rng((seed, n_sources)), utterances()
    for _ in range(count):
        parts = []
        seconds = rng.uniform(2, 5)
        for file in rng.choice(positions, n_sources, replace=False):
            response = ea.read_audio(DATA / "rooms" / room / str(file)).samples
            sound = speech_excerpt(files[rng.integers(len(files))], seconds, rng)
            parts.append(scipy.signal.fftconvolve(sound[None] / sound.std(), response, axes=1))
        n = min(part.shape[1] for part in parts)
        yield np.sum([part[:, :n] for part in parts], axis=0)


def with_noise(recordings: Iterable[Array], snr_db: float) -> Iterator[Array]:
    """Add independent white noise to both channels."""
    for number, x in enumerate(recordings):
        noise = np.random.default_rng(number).normal(size=x.shape)
        yield x + noise * x.std() * 10 ** (-snr_db / 20)


def right_recordings(head: ea.Head, count: int, seed: int) -> dict[str, Iterable[Array]]:
    """Return recordings of a head, by condition, which are not broken."""
    lateral = head.subset(np.abs(np.sin(np.radians(head.directions[:, 0]))) > 0.97)
    room = ea.Room(t60_seconds=0.5)

    def talkers(of: ea.Head, snr_db: float, room: ea.Room | None = None) -> Iterator[Array]:
        scenes = single_talkers(of, count, snr_db=snr_db, room=room, seed=seed)
        return (audio.samples for _, audio in scenes)

    def several(n: int) -> Iterator[Array]:
        scenes = mixtures(head, count, n, snr_db=40.0, seed=seed)
        return (scene.mixture.samples for scene in scenes)

    return {
        "one talker, 40 dB": talkers(head, 40.0),
        "10 dB": talkers(head, 10.0),
        "0 dB": talkers(head, 0.0),
        "at the side, 40 dB": talkers(lateral, 40.0),
        "at the side, 0 dB": talkers(lateral, 0.0),
        "0.6 s": (x[:, -9600:] for x in talkers(head, 30.0)),
        "simulated room": talkers(head, 40.0, room),
        "two talkers": several(2),
        "three talkers": several(3),
    }


def measured_rooms(count: int, seed: int) -> dict[str, Iterable[Array]]:
    """Return recordings of the head HATS in measured rooms, by condition."""
    out: dict[str, Iterable[Array]] = {}
    for room in ("room_a", "room_d"):
        out[room] = room_recordings(room, count, 1, seed)
        out[f"{room}, two talkers"] = room_recordings(room, count, 2, seed)
        out[f"{room}, 10 dB"] = with_noise(room_recordings(room, count, 1, seed), 10.0)
        out[f"{room}, 0 dB"] = with_noise(room_recordings(room, count, 1, seed), 0.0)
    return out


def alarms(heads: list[str], count: int, seed: int, of: str | None) -> None:
    """Print the faults that are found in right recordings; `of`: the head that is learned."""
    print("| head | recordings | number | faults |\n|---|---|---|---|")
    total = wrong = 0
    for name in heads:
        head = read_head(name)
        limits = limits_of(head if of is None else read_head(of))
        rooms = name == "hats"
        conditions = measured_rooms(count, seed) if rooms else right_recordings(head, count, seed)
        for condition, recordings in conditions.items():
            found: Counter[str] = Counter()
            n = 0
            for x in recordings:
                monitor = InterauralMonitor(RATE)
                monitor.push(x)
                monitor.finish()
                faults = find_input_faults(monitor.statistics(), limits)
                found.update(f"{finding.fault} {finding.value:.3g}" for finding in faults)
                n += 1
                wrong += bool(faults)
            total += n
            print(f"| {name} | {condition} | {n} | {dict(found) or '–'} |", flush=True)
    print(f"\n{wrong} of {total} right recordings have a fault ({100 * wrong / total:.1f} %).")


def print_traps(heads: list[str], rows: list[str], atlas_file: Path | None) -> None:
    """Print the verdict of each command on each trap."""
    files = [path for path in utterances() if audio_seconds(path) > 4.0]
    for name in heads:
        head = read_head(name)
        atlas = ea.learn(head) if atlas_file is None else ea.Atlas.load(atlas_file)
        setup = TrapSetup(head, lambda n: ea.read_mono(files[n], rate=RATE)[: 4 * RATE])
        counts = [Counter[str]() for _ in range(3)]
        print(f"\n| {name} | `localize` | `separate` | `listen --separate` |\n|---|---|---|---|")
        for trap in TRAPS:
            if rows and not any(row in trap.name for row in rows):
                continue
            verdicts = judge(atlas, trap, setup)
            for count, verdict in zip(counts, verdicts, strict=True):
                count[verdict] += 1
            print(f"| {trap.name} | {' | '.join(verdicts)} |", flush=True)
        print("\n" + "\n".join(str(dict(count)) for count in counts))


def judge(atlas: ea.Atlas, trap: Trap, setup: TrapSetup) -> list[str]:
    """Return the verdict on `localize`, `separate` and `listen --separate`."""
    audio = ea.Audio(trap.make(setup), RATE)
    answers: tuple[Callable[[], Verdict], ...] = (
        lambda: judge_localization(trap, setup, atlas.localize(audio)),
        lambda: judge_scene(trap, setup, atlas.separate(audio)),
        lambda: judge_stream(trap, setup, stream_reports(atlas, audio)),
    )
    verdicts: list[str] = []
    for answer in answers:
        try:
            verdicts.append(str(answer()))
        except ea.InputError:
            verdicts.append("refused")
    return verdicts


def stream_reports(atlas: ea.Atlas, audio: ea.Audio) -> list[LiveReport]:
    """Return the reports of the last two seconds of a recording, in blocks of 0.1 s."""
    live, size = atlas.live(rate=audio.rate), audio.rate // 10
    starts = range(0, audio.samples.shape[1], size)
    return [live.push(audio.samples[:, start : start + size]) for start in starts][-20:]


def main() -> None:
    """Run a part of the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", choices=["traps", "alarms"])
    parser.add_argument("--heads", nargs="+", default=["ku100", "cipic_003", "hats"])
    parser.add_argument("--of", help="head that is learned; default: the one that records")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", nargs="+", default=[], help="words in the names of the traps")
    parser.add_argument("--atlas", type=Path, help="atlas of the head; default: learn it")
    arguments = parser.parse_args()
    if arguments.part == "traps":
        print_traps(arguments.heads, arguments.rows, arguments.atlas)
        return
    alarms(arguments.heads, arguments.count, arguments.seed, arguments.of)


if __name__ == "__main__":
    main()
