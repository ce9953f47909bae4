"""Accuracy of the progress bar of a long `separate`: reported fraction by elapsed fraction.

Two talkers (recorded speech), ku100, one minute repeated. Needs the measured data.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from protocol import DATA, load_head, long_recording_parser

import earatlas as ea
from earatlas.features.audio_files import read_mono

RATE = 16_000
FRACTIONS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.97)  # of the total CPU time


def recording(path: Path, head: ea.Head, minutes: int, t60: float | None) -> Path:
    """Write a recording of two talkers, anechoic or reverberant."""
    files = sorted((DATA / "speech").glob("*.flac"))
    signals = [
        np.concatenate([read_mono(file, rate=RATE) for file in files[first : first + 9]])
        for first in (10, 20)
    ]
    room = None if t60 is None else ea.Room(t60_seconds=t60)
    directions = [(40.0, 0.0), (-30.0, 10.0)]
    scene = ea.render_scene(
        head, [signal[: 60 * RATE] for signal in signals], directions, room=room
    )
    samples = np.tile(scene.mixture.samples[:, : 60 * RATE], (1, minutes))
    return ea.Audio(samples, RATE).write(path)


def main() -> None:
    """Measure and print; time is CPU time, so that other processes do not matter."""
    options = long_recording_parser(__doc__).parse_args()
    head = load_head("ku100")
    atlas = ea.learn(head) if options.atlas is None else ea.Atlas.load(options.atlas)
    reports: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as name:
        file = recording(Path(name) / "long.wav", head, options.minutes, options.t60)
        start = time.process_time()
        atlas.separate_file(
            file,
            Path(name) / "out",
            progress=lambda *state: reports.append(
                (time.process_time() - start, state[0] / state[1])
            ),
        )
        seconds = time.process_time() - start
    times, fraction = np.array(reports).T
    print(f"{options.minutes} minutes, {seconds:.0f} CPU s; elapsed fraction: reported fraction")
    print(", ".join(f"{s:.2f}: {np.interp(s * seconds, times, fraction):.2f}" for s in FRACTIONS))


if __name__ == "__main__":
    main()
