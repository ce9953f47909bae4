"""Growth of CPU time and memory with the number of sources, of directions, and with the duration.

Everything is measured in new processes, so that the memory of each is its own.
"""

import numpy as np
import soundfile
from protocol import mixtures, utterances
from tracks import RATE, minute

import earatlas as ea
from earatlas.types import Array
from speed_parts.tasks import SECONDS, Setting, separate_row
from speed_parts.timing import Row, command_line, in_new_process

DIRECTIONS = (1250, 2702, 5400, 10_800)
DURATIONS_SECONDS = (5, 60, 600, 1800, 3600)
LEARN = """
import sys
import numpy as np
import earatlas as ea
sphere = ea.Sphere()
head = ea.simulated_head(sphere.grid(np.sqrt(sphere.area / int(sys.argv[1]))))
atlas = ea.learn(head)
atlas.save(sys.argv[2])
"""
REPORT = "held out: median {0.median_degrees:.2f}°, mean {0.mean_degrees:.2f}°"


def sources(setting: Setting) -> list[Row]:
    """Measure `separate` of 1 to 5 talkers and of one in a room, their number not given."""
    rows = [separate_row(setting, M, "anechoic", given=False) for M in range(1, 6)]
    return [*rows, separate_row(setting, 1, "T60 0.3 s", given=False)]


def directions(setting: Setting) -> list[Row]:
    """Measure learning of simulated heads, with rooms."""
    rows = []
    for count in DIRECTIONS:
        file = setting.folder / f"{count}.atlas"
        seconds, megabytes = in_new_process("-c", LEARN, count, file)
        accuracy = ea.Atlas.load(file).accuracy
        report = "" if accuracy is None else ", " + REPORT.format(accuracy)
        rows.append(
            Row(f"learning {count} directions, with rooms", seconds,
                f"{1000 * seconds / count:.2f} ms per direction", f"{megabytes:.0f} MB{report}")
        )  # fmt: skip
    return rows


def durations(setting: Setting, longest_seconds: float) -> list[Row]:
    """Measure commands on recordings of 5 s to `longest_seconds`, from file to files."""
    rows = []
    for seconds in DURATIONS_SECONDS:
        if seconds > longest_seconds:
            continue
        one, two = setting.folder / "one.wav", setting.folder / "two.wav"
        _write(one, seconds, [minute(setting.head, utterances(), n, None)[0] for n in range(3)])
        scenes = mixtures(setting.head, 1, 2, seconds=SECONDS, seed=31)
        _write(two, seconds, [scene.mixture.samples for scene in scenes])
        track, output = setting.folder / "track.csv", setting.folder / "long"
        commands: dict[str, list[object]] = {
            "localize": ["localize", setting.atlas_file, one],
            "localize --track": ["localize", setting.atlas_file, one, "--track", track, "--force"],
            "separate, 2 talkers": [
                "separate", setting.atlas_file, two, "-o", output, "--sources", 2, "--force"
            ],
        }  # fmt: skip
        for name, arguments in commands.items():
            cpu, megabytes = command_line(*arguments)
            task = f"`earatlas {name}`, {seconds / 60:.2g} min"
            rows.append(Row(task, cpu, f"{cpu / seconds:.4f} s per s", f"{megabytes:.0f} MB"))
    return rows


def _write(path: object, seconds: float, parts: list[Array]) -> None:
    """Write a recording that repeats some samples (2, n)."""
    samples, remaining = np.concatenate(parts, axis=1).T, int(seconds * RATE)
    with soundfile.SoundFile(str(path), "w", RATE, 2, "PCM_16") as file:
        while remaining > 0:
            block = samples[:remaining] / max(np.abs(samples).max(), 1.0)
            file.write(block)
            remaining -= len(block)
