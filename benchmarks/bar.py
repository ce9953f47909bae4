"""Whether the bar of a long `separate` tells the truth: the share told, and the share of the time.

Two talkers of measured speech, ku100, the same minute over and over. Needs the measured data.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from protocol import DATA, head_of, of_long_recordings

import earatlas as ea
from earatlas.features.audio_files import read_mono

RATE = 16_000
SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.97)  # of the time


def recording(path: Path, head: ea.Head, minutes: int, t60: float | None) -> Path:
    """So many minutes of two talkers, in the open or in a room."""
    files = sorted((DATA / "speech").glob("*.flac"))
    voices = [
        np.concatenate([read_mono(file, rate=RATE) for file in files[first : first + 9]])
        for first in (10, 20)
    ]
    room = None if t60 is None else ea.Room(t60_seconds=t60)
    places = [(40.0, 0.0), (-30.0, 10.0)]
    scene = ea.render_scene(head, [v[: 60 * RATE] for v in voices], places, room=room)
    samples = np.tile(scene.mixture.samples[:, : 60 * RATE], (1, minutes))
    return ea.Audio(samples, RATE).write(path)


def main() -> None:
    """Measure and print; CPU seconds stand for time, as other things may run beside it."""
    wish = of_long_recordings(__doc__).parse_args()
    head = head_of("ku100")
    atlas = ea.learn(head) if wish.atlas is None else ea.Atlas.load(wish.atlas)
    told: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as name:
        file = recording(Path(name) / "long.wav", head, wish.minutes, wish.t60)
        begin = time.process_time()
        atlas.separate_file(
            file,
            Path(name) / "out",
            progress=lambda *now: told.append((time.process_time() - begin, now[0] / now[1])),
        )
        seconds = time.process_time() - begin
    when, share = np.array(told).T
    print(f"{wish.minutes} minutes, {seconds:.0f} CPU s; share of the time: share told")
    print(", ".join(f"{s:.2f}: {np.interp(s * seconds, when, share):.2f}" for s in SHARES))


if __name__ == "__main__":
    main()
