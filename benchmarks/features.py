"""Speed of the feature extraction and of heads; run as `python benchmarks/features.py [--long]`.

Resampler and STFT in comparison with their alternatives (ratios within this run), cues of long
recordings (speed and peak memory), reading of heads, and the simulated head. `--long` adds a
recording of 60 minutes.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.signal
import soundfile
from protocol import DATA, min_seconds

import earatlas as ea
from earatlas.features.audio import resample
from earatlas.features.stft import stft
from earatlas.hrtf.diagnosis import nearest_neighbour_errors
from earatlas.hrtf.simulated import camil_directions


def resampling() -> None:
    """Compare soxr with the polyphase filter of scipy: speed, and aliases of a tone above 8 kHz."""
    x = np.random.default_rng(0).normal(size=(2, 48_000 * 20))
    soxr_seconds = min_seconds(lambda: resample(x, 48_000, 16_000))
    poly_seconds = min_seconds(lambda: scipy.signal.resample_poly(x, 1, 3, axis=1))
    t = np.arange(48_000) / 48_000
    tone, alias = np.sin(2 * np.pi * 7000 * t), np.sin(2 * np.pi * 8600 * t)
    print("\nresampling 48 -> 16 kHz                 soxr VHQ   resample_poly")
    print(
        f"  seconds per minute of stereo          {soxr_seconds * 3:8.3f}   {poly_seconds * 3:8.3f}"
    )
    for name, sound in (
        ("level of a 7.0 kHz tone, dB", tone),
        ("level of the alias of 8.6 kHz, dB", alias),
    ):
        levels_db = [
            10 * np.log10((y[2000:-2000] ** 2).mean() / 0.5 + 1e-30)
            for y in (
                resample(sound[None], 48_000, 16_000)[0],
                scipy.signal.resample_poly(sound, 1, 3),
            )
        ]
        print(f"  {name:37s} {levels_db[0]:8.2f}   {levels_db[1]:8.2f}")


def short_time_fft() -> None:
    """Compare the STFT with scipy's ShortTimeFFT on one minute of stereo."""
    x = np.random.default_rng(0).normal(size=(2, 16_000 * 60))
    reference = scipy.signal.ShortTimeFFT(scipy.signal.windows.hann(1024, sym=False), 128, 16_000)
    ours = min_seconds(lambda: stft(x, 1024, 128))
    theirs = min_seconds(lambda: reference.stft(x, p0=0, p1=7501))
    print(
        f"\nSTFT of one minute: {ours:.3f} s; ShortTimeFFT {theirs:.3f} s; "
        f"ratio {theirs / ours:.1f}"
    )


def long_recording(minutes: int) -> None:
    """Print real-time factor and peak memory of `earatlas cues` on stereo noise at 48 kHz."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.wav"
        rng = np.random.default_rng(0)
        with soundfile.SoundFile(path, "w", 48_000, 2, "PCM_16") as sound:
            for _ in range(minutes):
                sound.write(0.1 * rng.normal(size=(48_000 * 60, 2)))
        start = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-m", "earatlas", "cues", str(path)], stdout=subprocess.DEVNULL
        ) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - start
    print(
        f"cues of {minutes} minutes at 48 kHz: {seconds:.1f} s, real-time factor "
        f"{seconds / (60 * minutes):.4f}, peak memory {usage.ru_maxrss / 1024:.0f} MB"
    )


def heads() -> None:
    """Print the time for reading the measured heads and for computing their cues."""
    print()
    if not (DATA / "heads").is_dir():
        print(f"No measured heads in {DATA}. Set EARATLAS_DATA to the data folder.")
        return
    for path in sorted((DATA / "heads").glob("*.sofa")):
        start = time.perf_counter()
        head = ea.read_sofa(path)
        read = time.perf_counter()
        shape = head.cues().shape
        done = time.perf_counter()
        print(f"{head.name}: read in {read - start:.2f} s, cues {shape} in {done - read:.2f} s")


def simulated() -> None:
    """Print the time for the paper's grid, and how well a cue vector determines its direction."""
    x = camil_directions()
    seconds = min_seconds(lambda: ea.simulated_head(x), 2)
    errors = nearest_neighbour_errors(ea.simulated_head(x))
    print(
        f"\nsimulated head, {len(x)} directions: {seconds:.2f} s; "
        f"nearest neighbours of a held-out half: "
        f"median error {np.median(errors):.2f} degrees, "
        f"{100 * np.mean(errors > 30):.2f} % beyond 30"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="add a recording of 60 minutes")
    options = parser.parse_args()
    resampling()
    short_time_fft()
    for minutes in (10, 60) if options.long else (10,):
        long_recording(minutes)
    heads()
    simulated()
