"""Wall time of `separate` on a busy machine, over that on a quiet one.

    python benchmarks/busy.py [--load 8] [--runs 3] [--atlas FILE]

Three anechoic talkers of 10 s, ku100 with all directions learned. Each measurement is made in a new
process without limits of numerical threads in its environment, while `--load` other processes of
one thread each compute, and without them. The ratio of CPU seconds shows time that threads waste
while they wait for each other. The quiet time is only right if nothing else runs.
"""

import argparse
import multiprocessing
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from protocol import load_head, mixtures

import earatlas as ea

LIMITS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def occupy_one_core() -> None:
    """Compute with one thread until the process is terminated."""
    number = 1
    while True:
        number = (48_271 * number) % 2_147_483_647


def separate_once(atlas: Path, recording: Path) -> tuple[float, float]:
    """Return wall and CPU seconds of one separation."""
    learned, audio = ea.Atlas.load(atlas), ea.read_audio(recording)
    learned.separate(ea.Audio(audio.samples[:, :16_000], audio.rate), n_sources=2)  # warm up
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    learned.separate(audio, n_sources=3)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(atlas: Path, recording: Path, load: int, runs: int) -> tuple[float, float]:
    """Return the median wall and CPU seconds beside `load` other processes."""
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=occupy_one_core, daemon=True) for _ in range(load)]
    for other in others:
        other.start()
    try:
        time.sleep(3.0 if load else 0.0)  # until they compute
        with context.Pool(1, maxtasksperchild=1) as pool:
            times = [pool.apply(separate_once, (atlas, recording)) for _ in range(runs)]
    finally:
        for other in others:
            other.terminate()
            other.join()
    wall, cpu = np.median(times, axis=0)
    return float(wall), float(cpu)


def main() -> None:
    """Print wall and CPU seconds, quiet and busy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--load", type=int, default=8, help="number of other processes")
    parser.add_argument("--runs", type=int, default=3, help="separations per measurement")
    parser.add_argument("--atlas", type=Path, help="atlas of ku100; default: learn it")
    options = parser.parse_args()
    head = load_head("ku100")
    with tempfile.TemporaryDirectory() as folder:
        atlas = options.atlas or ea.learn(head).save(Path(folder) / "ku100.atlas")
        (scene,) = mixtures(head, 1, 3, seconds=10.0, seed=31)
        recording = Path(folder) / "three.wav"
        scene.mixture.write(recording)
        for name in LIMITS:  # new processes choose their threads by themselves
            os.environ.pop(name, None)
        quiet = measure(atlas, recording, 0, options.runs)
        busy = measure(atlas, recording, options.load, options.runs)
    print("| | wall s | CPU s |\n|---|---|---|")
    print(f"| quiet | {quiet[0]:.1f} | {quiet[1]:.1f} |")
    print(f"| load {options.load} | {busy[0]:.1f} | {busy[1]:.1f} |")
    print(f"| ratio | {busy[0] / quiet[0]:.1f} | {busy[1] / quiet[1]:.1f} |")


if __name__ == "__main__":
    main()
