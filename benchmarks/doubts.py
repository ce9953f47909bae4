"""How often `localize` reports each doubt, in conditions where it applies and where it does not.

    python benchmarks/doubts.py [--count 20] [--seed 0] [--heads ku100 kemar_full …]

Each head is learned without a fifth of its directions; talkers are at these. "Another head" is the
next one of the list. Columns: percentage of recordings without a doubt and with each doubt (one
recording may have several), and percentage of true directions within the 90 % region.
"""

import argparse
from collections import Counter
from collections.abc import Iterator

import numpy as np
from protocol import load_head, mixtures, single_talkers, speech_excerpt, split, utterances

import earatlas as ea
from earatlas.localization.diagnostics import DoubtKind
from earatlas.types import Array

DOUBTS = (
    DoubtKind.TOO_SHORT,
    DoubtKind.NOISY,
    DoubtKind.REVERBERANT,
    DoubtKind.SEVERAL_SOUNDS,
    DoubtKind.HEAD_MISMATCH,
    DoubtKind.NOT_DIRECTIONAL,
)
Recordings = Iterator[tuple[Array | None, ea.Audio]]


def two_talkers(
    held_out: ea.Head, count: int, seed: int, room: ea.Room | None, room_head: ea.Head
) -> Recordings:
    """Yield mixtures for `localize`, which expects one source: there is no true direction."""
    for scene in mixtures(held_out, count, 2, room=room, room_head=room_head, seed=seed):
        yield None, scene.mixture


def dual_mono(count: int, seed: int, *, right: float = 1.0) -> Recordings:
    """Yield talkers with the same signal in both channels, the right one scaled by `right`."""
    rng, files = np.random.default_rng(seed), utterances()
    for _ in range(count):
        sound = speech_excerpt(files[rng.integers(len(files))], 3.0, rng)
        yield None, ea.Audio(np.stack([sound, right * sound]), 16_000)


def independent_noise(count: int, seed: int) -> Recordings:
    """Yield independent white noise at both ears."""
    for number in range(count):
        noise = np.random.default_rng((seed, number)).normal(0, 0.05, (2, 48_000))
        yield None, ea.Audio(noise, 16_000)


def loudest_excerpt(recordings: Recordings, seconds: float) -> Recordings:
    """Cut each recording to its loudest excerpt of the given length."""
    for truth, audio in recordings:
        n = int(seconds * audio.rate)
        energy = np.cumsum((audio.samples**2).sum(axis=0))
        start = int(np.argmax(energy[n:] - energy[:-n]))
        yield truth, ea.Audio(audio.samples[:, start : start + n], audio.rate)


def row(atlas: ea.Atlas, recordings: Recordings) -> str:
    """Return the cells of one row: percentages of doubts, and coverage of the 90 % region."""
    counts: Counter[DoubtKind] = Counter()
    inside, undoubted, total = [], 0, 0
    for truth, audio in recordings:
        result = atlas.localize(audio)
        doubts = {doubt.word for doubt in result.doubts}
        counts.update(doubts)
        undoubted, total = undoubted + (not doubts), total + 1
        if truth is not None:
            inside.append(result.posterior.credible_level(truth, 500) <= 0.9)
    coverage = f"{100 * np.mean(inside):.0f}" if inside else "–"
    percentages = " | ".join(f"{100 * counts[word] / total:.0f}" for word in DOUBTS)
    return f"{100 * undoubted / total:.0f} | {percentages} | {coverage}"


def conditions(
    held_out: ea.Head, whole: ea.Head, other: ea.Head, n: int, seed: int
) -> Iterator[tuple[str, Recordings]]:
    """Yield the conditions and their recordings."""
    rooms = {t60: ea.Room(t60_seconds=t60) for t60 in (0.2, 0.3, 0.5)}
    yield "anechoic", single_talkers(held_out, n, seed=seed)
    yield "noise at 20 dB", single_talkers(held_out, n, snr_db=20.0, seed=seed)
    yield "noise at 0 dB", single_talkers(held_out, n, snr_db=0.0, seed=seed)
    for t60, room in rooms.items():
        yield f"T60 {t60:g} s", single_talkers(whole, n, room=room, seed=seed)
    yield "two talkers", two_talkers(held_out, n, seed, None, whole)
    yield "two talkers, T60 0.3 s", two_talkers(held_out, n, seed, rooms[0.3], whole)
    yield "another head", single_talkers(other, n, seed=seed)
    yield "another head, T60 0.3 s", single_talkers(other, n, room=rooms[0.3], seed=seed)
    yield "0.3 s", loudest_excerpt(single_talkers(held_out, n, seed=seed), 0.3)
    yield "one microphone", dual_mono(n, seed)
    yield "panned by 6 dB", dual_mono(n, seed, right=0.5)
    yield "noise alone", independent_noise(n, seed)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20, help="number of recordings per row")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--heads", nargs="+", default=["ku100", "kemar_full", "cipic_021"])
    options = parser.parse_args()
    heads = {name: load_head(name) for name in options.heads}
    print(
        f"| | none | {' | '.join(DOUBTS)} | within the 90 % region |\n|"
        + "---|" * (len(DOUBTS) + 3)
    )
    for number, (name, head) in enumerate(heads.items()):
        training, held_out = split(head, options.seed)
        other = heads[options.heads[(number + 1) % len(heads)]]
        atlas = ea.learn(training)
        for condition, recordings in conditions(held_out, head, other, options.count, options.seed):
            print(f"| {name}, {condition} | {row(atlas, recordings)} |", flush=True)


if __name__ == "__main__":
    main()
