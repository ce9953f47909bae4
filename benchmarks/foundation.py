"""The foundation's figures; run as `python benchmarks/foundation.py [--long]`.

Resampling and transform against their alternatives (ratios within this run), cues of long
recordings (speed and peak memory), reading heads, and the simulated head. `--long` adds the
60-minute recording.
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
from protocol import DATA, best_seconds

import earatlas as ea
from earatlas.features.audio import resample
from earatlas.features.stft import stft
from earatlas.hrtf.diagnosis import nearest_neighbour_errors
from earatlas.hrtf.simulated import camil_directions


def resampling() -> None:
    """Soxr against scipy's polyphase filter: speed, and what is left of a tone above 8 kHz."""
    x = np.random.default_rng(0).normal(size=(2, 48_000 * 20))
    soxr_seconds = best_seconds(lambda: resample(x, 48_000, 16_000))
    poly_seconds = best_seconds(lambda: scipy.signal.resample_poly(x, 1, 3, axis=1))
    t = np.arange(48_000) / 48_000
    tone, alias = np.sin(2 * np.pi * 7000 * t), np.sin(2 * np.pi * 8600 * t)
    print("\nresampling 48 -> 16 kHz                 soxr VHQ   resample_poly")
    print(
        f"  seconds a minute of stereo            {soxr_seconds * 3:8.3f}   {poly_seconds * 3:8.3f}"
    )
    for name, sound in (("7.0 kHz tone kept, dB", tone), ("8.6 kHz tone left over, dB", alias)):
        kept = [
            10 * np.log10((y[2000:-2000] ** 2).mean() / 0.5 + 1e-30)
            for y in (
                resample(sound[None], 48_000, 16_000)[0],
                scipy.signal.resample_poly(sound, 1, 3),
            )
        ]
        print(f"  {name:37s} {kept[0]:8.2f}   {kept[1]:8.2f}")


def transform() -> None:
    """Our transform against scipy's ShortTimeFFT on a minute of stereo."""
    x = np.random.default_rng(0).normal(size=(2, 16_000 * 60))
    reference = scipy.signal.ShortTimeFFT(scipy.signal.windows.hann(1024, sym=False), 128, 16_000)
    ours = best_seconds(lambda: stft(x, 1024, 128))
    theirs = best_seconds(lambda: reference.stft(x, p0=0, p1=7501))
    print(
        f"\nstft of a minute: {ours:.3f} s; ShortTimeFFT {theirs:.3f} s; ratio {theirs / ours:.1f}"
    )


def long_recording(minutes: int) -> None:
    """Real-time factor and peak memory of `earatlas cues` on a noisy stereo file at 48 kHz."""
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
    """Reading the measured heads, and their cues."""
    print()
    if not (DATA / "heads").is_dir():
        print(f"measured heads: not there ({DATA}); set EARATLAS_DATA")
        return
    for path in sorted((DATA / "heads").glob("*.sofa")):
        start = time.perf_counter()
        head = ea.read_sofa(path)
        read = time.perf_counter()
        shape = head.cues().shape
        done = time.perf_counter()
        print(f"{head.name}: read in {read - start:.2f} s, cues {shape} in {done - read:.2f} s")


def simulated() -> None:
    """The paper's grid, and whether cues determine direction."""
    x = camil_directions()
    seconds = best_seconds(lambda: ea.simulated_head(x), 2)
    errors = nearest_neighbour_errors(ea.simulated_head(x))
    print(
        f"\nsimulated head, {len(x)} directions: {seconds:.2f} s; look-up of a held-out half: "
        f"median error {np.median(errors):.2f} degrees, "
        f"{100 * np.mean(errors > 30):.2f} % beyond 30"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="add the 60-minute recording")
    options = parser.parse_args()
    resampling()
    transform()
    for minutes in (10, 60) if options.long else (10,):
        long_recording(minutes)
    heads()
    simulated()
