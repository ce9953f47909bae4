"""The main tasks with ku100: the command line, learning, localization, separation and streams."""

import time
import warnings
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from protocol import DATA, load_head, mixtures, utterances
from separation_parts import fullband
from separation_parts.metrics import signal_metrics
from tracks import RATE, minute

import earatlas as ea
from earatlas.packaged_atlases import EXAMPLE_ATLAS
from speed_parts.timing import Row, command_line, cpu_seconds

RECORDING = EXAMPLE_ATLAS.with_name("recording.flac")
ROOM = ea.Room(t60_seconds=0.3)
CONDITIONS = {"anechoic": None, "T60 0.3 s": ROOM}
SECONDS = 10.0  # of a recording
HOP_SECONDS = 0.016  # of a stream


@dataclass(frozen=True)
class Setting:
    """What all parts share: the atlas of ku100, a folder, and the number of repetitions."""

    atlas_file: Path
    folder: Path
    repeats: int

    @cached_property
    def atlas(self) -> ea.Atlas:
        """The atlas of ku100."""
        return ea.Atlas.load(self.atlas_file)

    @cached_property
    def head(self) -> ea.Head:
        """All directions of ku100."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ea.EaratlasWarning)
            return load_head("ku100")


def learn_ku100(file: Path) -> Row:
    """Learn ku100 on the command line."""
    path = DATA / "heads" / "ku100.sofa"
    seconds, megabytes = command_line("learn", path, "-o", file)
    return Row("`earatlas learn ku100.sofa`, with rooms", seconds, "", f"{megabytes:.0f} MB")


def short_files(setting: Setting) -> list[Row]:
    """Measure the command line on a recording of 2.5 s, with start-up."""
    tasks: dict[str, list[object]] = {
        "`earatlas --version`": ["--version"],
        "`earatlas info`, packaged atlas": ["info", EXAMPLE_ATLAS],
        "`earatlas localize`, 2.5 s, packaged atlas": ["localize", EXAMPLE_ATLAS, RECORDING],
        "`earatlas localize`, 2.5 s, ku100": ["localize", setting.atlas_file, RECORDING],
        "`earatlas separate`, 2.5 s, ku100": [
            "separate", setting.atlas_file, RECORDING, "-o", setting.folder / "short", "--force"
        ],
    }  # fmt: skip
    rows = []
    for name, arguments in tasks.items():
        seconds, megabytes = command_line(*arguments, repeats=setting.repeats)
        rows.append(Row(name, seconds, "", f"{megabytes:.0f} MB"))
    return rows


def localization(setting: Setting) -> list[Row]:
    """Measure `localize` of one talker, and the windows of a track."""
    rows, tracks = [], []
    for condition, room in CONDITIONS.items():
        samples, direction = minute(setting.head, utterances(), 1, room)
        whole = ea.Audio(samples, RATE)
        short = ea.Audio(samples[:, : int(SECONDS * RATE)], RATE)
        localize = partial(setting.atlas.localize, short)
        seconds = cpu_seconds(localize, setting.repeats)
        error = float(ea.great_circle_error(direction, localize().direction))
        rows.append(
            Row(
                f"`localize`, {condition}, {SECONDS:g} s",
                seconds,
                per_second(seconds),
                f"error {error:.1f}°",
            )
        )
        frames = partial(setting.atlas.localize_frames, whole)
        track = frames()
        seconds = cpu_seconds(frames, min(setting.repeats, 2))
        errors = ea.great_circle_error(direction[None], track.directions)
        tracks.append(
            Row(
                f"`localize --track`, {condition}, 60 s",
                seconds,
                f"{1000 * seconds / len(track.directions):.2f} ms per window",
                # Windows without sound have no direction.
                f"median error {np.nanmedian(errors):.1f}°",
            )
        )
    return rows + tracks


def separation(setting: Setting) -> list[Row]:
    """Measure `separate` of two and three talkers, their number given and not given."""
    return [
        separate_row(setting, M, condition, given=given)
        for M in (2, 3)
        for condition in CONDITIONS
        for given in (True, False)
    ]


def separate_row(setting: Setting, M: int, condition: str, *, given: bool) -> Row:
    """Measure `separate` of one mixture of M talkers."""
    room = CONDITIONS[condition]
    (scene,) = mixtures(setting.head, 1, M, seconds=SECONDS, room=room, seed=31)
    separate = partial(setting.atlas.separate, scene.mixture, n_sources=M if given else None)
    found = separate()
    seconds = cpu_seconds(separate, min(setting.repeats, 2))
    result = f"{len(found.sources)} of {M} found"
    if len(found.sources) == M:
        sounds = np.stack([source.audio.samples for source in found.sources])
        result = f"SDR {signal_metrics(scene, sounds)[0]:.1f} dB"
    talkers = f"{M} talker{'s' if M > 1 else ''}"
    name = f"`separate`, {talkers}{'' if given else ', number not given'}, {condition}"
    return Row(name, seconds, per_second(seconds), result)


def streams(setting: Setting) -> list[Row]:
    """Measure streams of two talkers: the mean, and the longest hop."""
    rows = []
    for condition, room in CONDITIONS.items():
        (scene,) = mixtures(setting.head, 1, 2, seconds=SECONDS, room=room, seed=31)
        rows.append(stream_row(setting.atlas, scene, f"{condition}, 16 kHz"))
    for condition, room in CONDITIONS.items():
        (scene,) = fullband.scenes(setting.head, 1, SECONDS, room=room)
        rows.append(stream_row(setting.atlas, scene, f"{condition}, 48 kHz"))
    return rows


def stream_row(atlas: ea.Atlas, scene: ea.SimulatedScene, condition: str) -> Row:
    """Push a mixture hop by hop to a stream."""
    samples, rate = scene.mixture.samples, scene.mixture.rate
    live, hop, spent = atlas.live(rate=rate), int(HOP_SECONDS * rate), []
    for first in range(0, samples.shape[1], hop):
        start = time.process_time()
        live.push(samples[:, first : first + hop])
        spent.append(time.process_time() - start)
    live.finish()
    seconds = float(np.sum(spent))
    milliseconds = 1000 * np.array(spent)
    return Row(
        f"stream, two talkers, {condition}", seconds,
        f"{seconds / scene.mixture.seconds:.3f} s per s",
        f"longest hop {milliseconds.max():.0f} ms, p99 {np.quantile(milliseconds, 0.99):.0f} ms",
    )  # fmt: skip


def per_second(seconds: float) -> str:
    """Return the CPU time per second of a recording of the usual duration."""
    return f"{seconds / SECONDS:.3f} s per s"
