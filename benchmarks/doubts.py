"""What is doubted, and when: how often each doubt is told where it is true, and elsewhere.

    python benchmarks/doubts.py [--count 20] [--seed 0] [--heads ku100 kemar_full …]

Each head is learned without a fifth of its directions; talkers speak from these. The other head of
a row is the next of the list. Columns: of a hundred recordings how many were told so (several
doubts may be told of one), how many without any, and how many truths lie in the 90 % region.
"""

import argparse
from collections import Counter
from collections.abc import Iterator

import numpy as np
from protocol import head_of, mixtures, single_talkers, split, talker, utterances

import earatlas as ea
from earatlas.types import Array

_WORDS = (
    "too short",
    "noisy",
    "reverberant",
    "several sounds at once",
    "does not fit this head",
    "nothing directional",
)
Recordings = Iterator[tuple[Array | None, ea.Audio]]


def two_talkers(
    asked: ea.Head, count: int, seed: int, room: ea.Room | None, around: ea.Head
) -> Recordings:
    """Mixtures for `localize`, which is for one: no direction is the truth."""
    for scene in mixtures(asked, count, 2, room=room, around=around, seed=seed):
        yield None, scene.mixture


def dual_mono(count: int, seed: int, *, right: float = 1.0) -> Recordings:
    """A talker before one microphone, or panned: the right channel is that much of the left."""
    rng, files = np.random.default_rng(seed), utterances()
    for _ in range(count):
        sound = talker(files[rng.integers(len(files))], 3.0, rng)
        yield None, ea.Audio(np.stack([sound, right * sound]), 16_000)


def lone_noise(count: int, seed: int) -> Recordings:
    """White noise, another in each ear."""
    for number in range(count):
        noise = np.random.default_rng((seed, number)).normal(0, 0.05, (2, 48_000))
        yield None, ea.Audio(noise, 16_000)


def cut(recordings: Recordings, seconds: float) -> Recordings:
    """The loudest such stretch of each."""
    for truth, audio in recordings:
        n = int(seconds * audio.rate)
        energy = np.cumsum((audio.samples**2).sum(axis=0))
        start = int(np.argmax(energy[n:] - energy[:-n]))
        yield truth, ea.Audio(audio.samples[:, start : start + n], audio.rate)


def row(atlas: ea.Atlas, recordings: Recordings) -> str:
    """How often each doubt was told."""
    told: Counter[str] = Counter()
    levels, clean, total = [], 0, 0
    for truth, audio in recordings:
        where = atlas.localize(audio)
        words = {doubt.word for doubt in where.doubts}
        told.update(words)
        clean, total = clean + (not words), total + 1
        if truth is not None:
            levels.append(where.posterior.level_of(truth, 500) <= 0.9)
    held = f"{100 * np.mean(levels):.0f}" if levels else "–"
    shares = " | ".join(f"{100 * told[word] / total:.0f}" for word in _WORDS)
    return f"{100 * clean / total:.0f} | {shares} | {held}"


def rows(
    asked: ea.Head, whole: ea.Head, other: ea.Head, n: int, seed: int
) -> Iterator[tuple[str, Recordings]]:
    """Conditions, and recordings of each."""
    room = {t60: ea.Room(t60_seconds=t60) for t60 in (0.2, 0.3, 0.5)}
    yield "in the open", single_talkers(asked, n, seed=seed)
    yield "noise at 20 dB", single_talkers(asked, n, snr_db=20.0, seed=seed)
    yield "noise at 0 dB", single_talkers(asked, n, snr_db=0.0, seed=seed)
    for t60, walls in room.items():
        yield f"T60 {t60:g} s", single_talkers(whole, n, room=walls, seed=seed)
    yield "two talkers", two_talkers(asked, n, seed, None, whole)
    yield "two talkers, T60 0.3 s", two_talkers(asked, n, seed, room[0.3], whole)
    yield "another head", single_talkers(other, n, seed=seed)
    yield "another head, T60 0.3 s", single_talkers(other, n, room=room[0.3], seed=seed)
    yield "0.3 s", cut(single_talkers(asked, n, seed=seed), 0.3)
    yield "one microphone", dual_mono(n, seed)
    yield "panned by 6 dB", dual_mono(n, seed, right=0.5)
    yield "noise alone", lone_noise(n, seed)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20, help="recordings a row")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--heads", nargs="+", default=["ku100", "kemar_full", "cipic_021"])
    options = parser.parse_args()
    heads = {name: head_of(name) for name in options.heads}
    print(f"| | none | {' | '.join(_WORDS)} | in 90 % region |\n|" + "---|" * (len(_WORDS) + 3))
    for number, (name, head) in enumerate(heads.items()):
        known, asked = split(head, options.seed)
        other = heads[options.heads[(number + 1) % len(heads)]]
        atlas = ea.learn(known)
        for condition, recordings in rows(asked, head, other, options.count, options.seed):
            print(f"| {name}, {condition} | {row(atlas, recordings)} |", flush=True)


if __name__ == "__main__":
    main()
