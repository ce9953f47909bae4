"""CPU time per window and memory of `earatlas localize --track` on long recordings.

One talker (recorded speech), ku100, at another direction every minute; anechoic or in a simulated
room. Needs the measured data. The hour in docs/figures/localization.md: --minutes 60, anechoic.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import soundfile
from protocol import DATA, load_head, long_recording_parser

import earatlas as ea
from earatlas.features.audio_files import read_mono
from earatlas.types import Array

RATE = 16_000


def minute(
    head: ea.Head, speech: list[Path], seed: int, room: ea.Room | None
) -> tuple[Array, Array]:
    """Return one minute (2, n) of a talker, and the random direction of the talker."""
    rng = np.random.default_rng(seed)
    signal: list[np.ndarray] = []
    while sum(map(len, signal)) < 60 * RATE:
        signal.append(read_mono(speech[int(rng.integers(len(speech)))], rate=RATE))
    direction = head.directions[int(rng.integers(len(head)))]
    scene = ea.render_scene(head, [np.concatenate(signal)[: 60 * RATE]], [direction], room=room)
    return scene.mixture.samples[:, : 60 * RATE], direction


def measure(atlas: Path, recording: Path, folder: Path) -> tuple[float, float, int]:
    """Return CPU seconds, peak memory in MB and the number of windows of the command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    track = folder / "track.csv"
    command = ["localize", str(atlas), str(recording), "--track", str(track)]
    subprocess.run([sys.executable, "-m", "earatlas", *command], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with track.open() as rows:
        return cpu, after.ru_maxrss / 1024, sum(1 for _ in rows) - 1


def main() -> None:
    """Measure and print."""
    options = long_recording_parser(__doc__).parse_args()
    head = load_head("ku100")
    speech = sorted((DATA / "speech").glob("*.flac"))
    room = None if options.t60 is None else ea.Room(t60_seconds=options.t60)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        atlas = options.atlas or ea.learn(head).save(folder / "ku100.atlas")
        with soundfile.SoundFile(folder / "long.wav", "w", RATE, 2, "FLOAT") as file:
            for n in range(options.minutes):
                file.write(minute(head, speech, n, room)[0].T)
        cpu, megabytes, windows = measure(atlas, folder / "long.wav", folder)
    condition = "anechoic" if room is None else f"T60 {options.t60:g} s"
    print(
        f"{options.minutes} minutes, {condition}: {windows} windows, {cpu:.0f} CPU s, "
        f"{1000 * cpu / windows:.1f} ms per window, {megabytes:.0f} MB"
    )


if __name__ == "__main__":
    main()
