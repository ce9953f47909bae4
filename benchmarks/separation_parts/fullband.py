"""Separation at 48 kHz: two talkers of EARATLAS_DATA/fullband, below and above 8 kHz."""

import time
from collections.abc import Iterator
from itertools import combinations, cycle, islice

import numpy as np
from protocol import DATA
from scipy.signal import firwin, oaconvolve

import earatlas as ea
from earatlas.evaluation.quality import assign_estimates, separation_quality
from earatlas.features.audio import resample
from earatlas.features.audio_files import read_mono
from earatlas.types import Array

RATE, SECONDS, MIN_SEPARATION_DEGREES = 48_000, 4.0, 20.0
TALKERS = ("talker_a_44k1.wav", "talker_b_48k.wav", "talker_c_44k1.wav")


def scenes(
    head: ea.Head, count: int, seconds: float = SECONDS, *, room: ea.Room | None = None
) -> Iterator[ea.SimulatedScene]:
    """Yield pairs of the three talkers, random excerpts, at random directions over 20° apart."""
    rng = np.random.default_rng(3)
    dry = {name: read_mono(DATA / "fullband" / name, rate=RATE) for name in TALKERS}
    for number, pair in enumerate(islice(cycle(combinations(TALKERS, 2)), count)):
        n = min(int(seconds * RATE), *(len(dry[name]) for name in pair))
        starts = [rng.integers(len(dry[name]) - n + 1) for name in pair]
        sounds = [dry[name][s : s + n] for name, s in zip(pair, starts, strict=True)]
        while True:
            directions = head.directions[rng.integers(len(head), size=2)]
            if ea.great_circle_error(*directions) > MIN_SEPARATION_DEGREES:
                break
        yield ea.render_scene(
            head, sounds, directions, rate=RATE, settings=ea.SceneSettings(seed=number), room=room
        )


def above(x: Array) -> Array:
    """High-pass signals at 8.2 kHz."""
    taps = firwin(1023, 8200, pass_zero=False, fs=RATE)
    high: Array = oaconvolve(x, taps.reshape((1,) * (x.ndim - 1) + (-1,)), mode="same", axes=-1)
    return high


def sdr_db(true: Array, estimate: Array) -> float:
    """Return the SDR without a distortion filter, mean over sources and ears, in dB."""
    ratios = (true**2).sum(axis=-1) / ((true - estimate) ** 2).sum(axis=-1)
    return float(10 * np.log10(ratios).mean())


def metrics(scene: ea.SimulatedScene, atlas: ea.Atlas) -> list[float]:
    """Return SDRs in dB and costs in CPU seconds per second.

    SDR below 8 kHz at rates 16 and 48 kHz; SDR above 8 kHz of the mixture, of the outputs, and of
    the outputs by BSS-eval; cost at 16 and 48 kHz.
    """
    start = time.process_time()
    narrow = atlas.separate(scene.mixture, n_sources=2, rate=16_000)
    between = time.process_time()
    wide = atlas.separate(scene.mixture, n_sources=2)
    end = time.process_time()
    low = np.stack([s.audio.samples for s in narrow.sources])
    images = resample(scene.images, RATE, 16_000)[..., : low.shape[-1]]
    permutation = assign_estimates(images, low).found
    sounds = np.stack([wide.sources[m].audio.samples for m in permutation])
    below = resample(sounds, RATE, 16_000)[..., : low.shape[-1]]
    mixture = np.repeat(scene.mixture.samples[None], 2, axis=0)
    return [
        separation_quality(images, low[permutation]).mean().sdr_db,
        separation_quality(images, below).mean().sdr_db,
        sdr_db(above(scene.images), above(mixture)),
        sdr_db(above(scene.images), above(sounds)),
        separation_quality(above(scene.images), above(sounds)).mean().sdr_db,
        (between - start) / scene.mixture.seconds,
        (end - between) / scene.mixture.seconds,
    ]


def table(atlas: ea.Atlas, held_out: ea.Head, count: int) -> None:
    """Print the means, and the mean SDR above 8 kHz of the worst tenth."""
    rows = np.array([metrics(scene, atlas) for scene in scenes(held_out, count)])
    worst = np.sort(rows[:, 3])[: max(count // 10, 1)].mean()
    cells = [f"{v:.1f}" for v in rows[:, :5].mean(axis=0)] + [f"{worst:.1f}"]
    cells += [f"{v:.2f}" for v in rows[:, 5:].mean(axis=0)]
    print(
        f"\n| 2 talkers at 48 kHz, {count} mixtures | below 8 kHz, at 16 kHz | at 48 kHz | above "
        "8 kHz, mixture | separated | BSS-eval | worst tenth | s per s at 16 kHz | at 48 kHz |"
        "\n|---|---|---|---|---|---|---|---|---|\n| SDR dB | " + " | ".join(cells) + " |"
    )
