"""Tracks of long recordings: CPU seconds a window, and memory, of `earatlas localize --track`.

One talker of measured speech, ku100, who stands elsewhere each minute; in the open, and in a
simulated room. Needs the measured data. The hour of docs/figures.md: --minutes 60, in the open.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import soundfile
from protocol import DATA, head_of, of_long_recordings

import earatlas as ea
from earatlas.features.audio_files import read_mono

RATE = 16_000


def minute(head: ea.Head, speech: list[Path], seed: int, room: ea.Room | None) -> np.ndarray:
    """A minute (n, 2) of one talker somewhere."""
    rng = np.random.default_rng(seed)
    voice: list[np.ndarray] = []
    while sum(map(len, voice)) < 60 * RATE:
        voice.append(read_mono(speech[int(rng.integers(len(speech)))], rate=RATE))
    place = head.directions[int(rng.integers(len(head)))]
    scene = ea.render_scene(head, [np.concatenate(voice)[: 60 * RATE]], [place], room=room)
    samples: np.ndarray = scene.mixture.samples[:, : 60 * RATE].T
    return samples


def measured(atlas: Path, recording: Path, folder: Path) -> tuple[float, float, int]:
    """CPU seconds, megabytes and windows of the command."""
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
    wish = of_long_recordings(__doc__).parse_args()
    head = head_of("ku100")
    speech = sorted((DATA / "speech").glob("*.flac"))
    room = None if wish.t60 is None else ea.Room(t60_seconds=wish.t60)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        atlas = wish.atlas or ea.learn(head).save(folder / "ku100.atlas")
        with soundfile.SoundFile(folder / "long.wav", "w", RATE, 2, "FLOAT") as file:
            for n in range(wish.minutes):
                file.write(minute(head, speech, n, room))
        cpu, megabytes, windows = measured(atlas, folder / "long.wav", folder)
    place = "in the open" if room is None else f"T60 {wish.t60:g} s"
    print(
        f"{wish.minutes} minutes, {place}: {windows} windows, {cpu:.0f} CPU s, "
        f"{1000 * cpu / windows:.1f} ms a window, {megabytes:.0f} MB"
    )


if __name__ == "__main__":
    main()
