"""Positions in an image: median error in pixels for one and two talkers.

A camera of 640 x 480 pixels with a field of view of 60 degrees looks straight ahead from a head.
The head is learned at a grid of pixels, from impulse responses or, with `--noise`, from a recording
of one second of white noise each, and tested with talkers between them; responses are interpolated
for measured heads.

    python benchmarks/pixels.py --head ku100 --count 20
    python benchmarks/pixels.py --head ku100 --count 20 --noise
"""

import argparse
from functools import cache

import numpy as np
from protocol import DATA, load_head

import earatlas as ea
from earatlas.evaluation.assignment import best_assignment
from earatlas.experiments.simulated_camil import ALL_CUES, recorded_noise_cues
from earatlas.features.audio_files import read_mono
from earatlas.features.layout import CueLayout
from earatlas.hrtf.head import MeasuredCues
from earatlas.simulation.camera import Camera
from earatlas.types import Array

CAMERA = Camera(640, 480)


def pixel_grid(step: int) -> Array:
    """Return positions (N, 2) in the image, `step` pixels apart."""
    axes = [np.arange(step / 2, size, step) for size in (CAMERA.width, CAMERA.height)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)


@cache
def measured_head(name: str) -> ea.Head:
    """Return a measured head."""
    return load_head(name)


def head_at(name: str, positions: Array) -> ea.Head:
    """Return a head at the directions of positions."""
    directions = CAMERA.directions(positions)
    if name == "simulated":
        return ea.simulated_head(directions)
    return ea.interpolated_head(measured_head(name), directions)


def recorded_noise(head: ea.Head) -> ea.Head:
    """Return what is known of a head from recordings of white noise, 30 dB above the background."""
    cues = recorded_noise_cues(head.responses().at_rate(CueLayout().rate))
    return ea.Head(head.name, head.directions, MeasuredCues(cues, ALL_CUES))


def talkers(count: int, seed: int) -> list[Array]:
    """Return 3 s of different talkers: recorded speech if there is any, otherwise synthetic."""
    files = sorted((DATA / "speech").rglob("*.flac"))
    rng = np.random.default_rng((31, seed))
    if len(files) < count:
        return [ea.synthetic_speech(3.0, seed=int(s)) for s in rng.integers(1_000_000, size=count)]
    sounds = (read_mono(files[i], rate=16000) for i in rng.permutation(len(files)))
    long = (sound[: 3 * 16000] for sound in sounds if len(sound) >= 3 * 16000)
    return [next(long) for _ in range(count)]


def main() -> None:
    """Print median errors, calibration of the 90 % radius, and found numbers of sources."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--head", default="simulated", help="simulated, or a head of the data")
    parser.add_argument("--step", type=int, default=40, help="distance of learned pixels")
    parser.add_argument("--noise", action="store_true", help="learn from recordings of noise")
    parser.add_argument("--talkers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seed", type=int, default=77)
    parser.add_argument("--count", type=int, default=20, help="scenes per number of talkers")
    options = parser.parse_args()
    measured = head_at(options.head, pixel_grid(options.step))
    learned = CAMERA.head(recorded_noise(measured) if options.noise else measured)
    atlas = ea.learn(learned)
    assert atlas.accuracy is not None
    held_out = atlas.accuracy.in_units(atlas.space)["median_pixels"]
    kind = "noise" if options.noise else "impulse responses"
    print(f"{options.head}, {kind}: {len(learned)} pixels {options.step} apart, held-out median "
          f"{held_out:.1f} pixels")  # fmt: skip
    rng = np.random.default_rng(options.seed)
    for n_sources in options.talkers:
        errors, inside, found = [], [], []
        for seed in range(options.seed, options.seed + options.count):
            while True:
                true = rng.uniform(
                    (30, 30), (CAMERA.width - 30, CAMERA.height - 30), (n_sources, 2)
                )
                if n_sources == 1 or np.linalg.norm(true[0] - true[1]) > 160:
                    break
            head = head_at(options.head, true)
            sounds = talkers(n_sources, seed)
            mixture = ea.render_scene(head, sounds, head.directions).mixture
            results: list[ea.Localization | ea.Source]
            if n_sources == 1:
                results = [atlas.localize(mixture)]
            else:
                results = list(atlas.separate(mixture, n_sources=n_sources).sources)
                found.append(len(atlas.separate(mixture, rendering="soft").sources) == n_sources)
            estimates = np.stack([result.direction for result in results])
            distances = np.linalg.norm(true[:, None] - estimates[None], axis=-1)
            order = best_assignment(distances).found
            errors += [float(distances[m, order[m]]) for m in range(n_sources)]
            inside += [errors[m - n_sources] <= results[order[m]].radius_90
                       for m in range(n_sources)]  # fmt: skip
        number = f", number found {100 * np.mean(found):.0f} %" if found else ""
        print(f"{n_sources} talkers, {options.count} scenes: median {np.median(errors):.1f}, 90 % "
              f"{np.quantile(errors, 0.9):.1f} pixels, within radius_90 "
              f"{100 * np.mean(inside):.0f} %{number}")  # fmt: skip


if __name__ == "__main__":
    main()
