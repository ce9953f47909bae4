"""The first seconds of two talkers in a stream: SDR, and level in comparison with the mixture.

    python benchmarks/new_pair.py [--pairs 4] [--first 1] [--frames 0.3]

Pairs of synthetic talkers of 2.5 s who sound all the time, with the packaged atlas of a simulated
head. Printed for each pair, in steps of 0.2 s: the level of the louder separated signal over that
of the mixture, and the mean SDR of the two talkers. `--frames` is the number of frames of diffuse
sound that count as observed at first (`SteeringSettings.diffuse_prior_frames`). The number was
chosen on pair 0, the others are for judging.
"""

import argparse
from dataclasses import replace
from unittest.mock import patch

import numpy as np
from streaming import RATE, run_stream

import earatlas as ea
from earatlas.packaged_atlases import EXAMPLE_ATLAS
from earatlas.streaming import stream
from earatlas.streaming.renderer import DEFAULT_LATENCY
from earatlas.types import Array

SECONDS, STEP = 2.5, RATE // 5
PLACES = (((41, 1), (-64, 24)), ((20, 0), (-20, 10)), ((75, -20), (10, 30)), ((-50, 0), (-5, 0)))


def levels_and_sdr(scene: ea.SimulatedScene, outputs: list[Array]) -> tuple[Array, Array]:
    """Return the level in dB of the loudest output over the mixture, and the mean SDR, by step."""

    def energies(x: Array) -> Array:
        whole = x[..., : x.shape[-1] // STEP * STEP].reshape(*x.shape[:-1], -1, STEP)
        return np.asarray((whole**2).sum(axis=(-3, -1)) + 1e-12)

    levels = np.max([energies(y) for y in outputs], axis=0) / energies(scene.mixture.samples)
    sdr = [
        energies(image) / np.min([energies(image - y) for y in outputs], axis=0)
        for image in scene.images
    ]
    return 10 * np.log10(levels), np.mean(10 * np.log10(sdr), axis=0)


def main() -> None:
    """Print two rows per pair."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=len(PLACES), help="number of pairs")
    parser.add_argument("--first", type=int, default=0, help="number of the first pair")
    parser.add_argument("--frames", type=float, help="frames of diffuse sound, if not the default")
    options = parser.parse_args()
    latency = DEFAULT_LATENCY
    if options.frames is not None:
        steering = replace(latency.steering, diffuse_prior_frames=options.frames)
        latency = replace(latency, steering=steering)
    atlas = ea.Atlas.load(EXAMPLE_ATLAS)
    with patch.object(stream, "latency_profile", return_value=latency):
        for pair in range(options.first, options.pairs):
            print_pair(pair, atlas)


def print_pair(pair: int, atlas: ea.Atlas) -> None:
    """Print the two rows of a pair."""
    places = PLACES[pair % len(PLACES)]
    talkers = [ea.synthetic_speech(SECONDS, seed=2 * pair + m) for m in (1, 2)]
    scene = ea.render_scene(ea.simulated_head(places), talkers, places)
    _, sounds, _ = run_stream(atlas.live(rate=RATE), scene.mixture.samples)
    levels, sdr = levels_and_sdr(scene, list(sounds.values()))
    print(f"pair {pair}, level dB: {' '.join(f'{db:.0f}' for db in levels)}", flush=True)
    print(f"pair {pair}, SDR dB:   {' '.join(f'{db:.0f}' for db in sdr)}", flush=True)


if __name__ == "__main__":
    main()
