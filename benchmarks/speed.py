"""CPU time of the command line and of the main tasks, as ratios to a calibration loop.

The calibration loop (FFTs, matrix products and Python calls) is measured in the same run, so that
machines compare. Uses the packaged atlas and recording; each figure is the least of `--repeats`.

    python benchmarks/speed.py [--repeats 5]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

import numpy as np

import earatlas as ea
from earatlas.atlas import EXAMPLE_ATLAS

RECORDING = EXAMPLE_ATLAS.with_name("recording.flac")


def calibration() -> None:
    """Do a fixed amount of work of the kinds that dominate the tasks."""
    x = np.random.default_rng(0).standard_normal((200, 1024))
    for _ in range(300):
        np.fft.rfft(x)
        x[:, :200] @ x[:, :200].T
        np.exp(-(x**2))
    sum(len(str(n)) for n in range(1_000_000))


def cpu_seconds(task: Callable[[], object], repeats: int) -> float:
    """Return the least CPU time of a task, with the processes that it waits for."""
    seconds = []
    for _ in range(repeats):
        start = _used_seconds()
        task()
        seconds.append(_used_seconds() - start)
    return min(seconds)


def _used_seconds() -> float:
    """Return the CPU time of this process and of its ended children."""
    used = [getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def command(*arguments: object) -> Callable[[], object]:
    """Return a function that runs the command line in a new process."""
    call = [sys.executable, "-m", "earatlas", *map(str, arguments)]
    return lambda: subprocess.run(call, capture_output=True, check=True)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5, help="the least time is reported")
    options = parser.parse_args()
    atlas, recording = ea.example_atlas(), ea.example_recording()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "out"
        tasks: dict[str, Callable[[], object]] = {
            "`earatlas --version`": command("--version"),
            "`earatlas info`": command("info", EXAMPLE_ATLAS),
            "`earatlas localize`, 2.5 s": command("localize", EXAMPLE_ATLAS, RECORDING),
            "`earatlas separate`, 2.5 s": command(
                "separate", EXAMPLE_ATLAS, RECORDING, "-o", output
            ),
            "`Atlas.localize`, 2.5 s": lambda: atlas.localize(recording),
            "`Atlas.separate`, 2.5 s, two given": lambda: atlas.separate(recording, n_sources=2),
            "`Atlas.separate`, 2.5 s, number not given": lambda: atlas.separate(recording),
        }
        unit = cpu_seconds(calibration, options.repeats)
        print(f"Calibration loop: {unit:.2f} CPU s\n")
        print("| task | CPU s | ratio to the loop |\n|---|---|---|")
        for name, task in tasks.items():
            seconds = cpu_seconds(task, options.repeats)
            print(f"| {name} | {seconds:.2f} | {seconds / unit:.1f} |", flush=True)


if __name__ == "__main__":
    main()
