"""Commands on what was learned: `learn`, `localize`, `listen`."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from earatlas.atlas import Atlas, learn
from earatlas.cli.console import (
    ChannelsOption,
    Duplicates,
    DuplicatesOption,
    HeadArgument,
    JsonOption,
    Kind,
    KindOption,
    opened_head,
    out,
    print_json,
    progress,
    say,
)
from earatlas.errors import InputError, missing_extra
from earatlas.hearing.files import audio_seconds
from earatlas.hearing.recording import FileRecording
from earatlas.localization.answer import Localization
from earatlas.localization.track import Windows, windows_of
from earatlas.space.spaces import Circle, Cylinder, Plane, Space, Sphere
from earatlas.types import Array

__all__ = ["commands"]

commands = typer.Typer()


class SpaceName(StrEnum):
    """Where directions live."""

    plane = "plane"
    circle = "circle"
    cylinder = "cylinder"
    sphere = "sphere"


_SPACES: dict[str, Space] = {
    "plane": Plane(),
    "circle": Circle(),
    "cylinder": Cylinder(),
    "sphere": Sphere(),
}

AtlasArgument = Annotated[
    Path, typer.Argument(metavar="ATLAS", help="What `earatlas learn` wrote, such as ku100.atlas.")
]


@commands.command(
    name="learn",
    epilog="Examples: earatlas learn ku100.sofa -o ku100.atlas; "
    "earatlas learn calibration.csv -o robot.atlas --space cylinder --components 64",
)
def learn_command(
    head: HeadArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the atlas.")],
    space: Annotated[
        SpaceName | None, typer.Option(help="Default: sphere, or circle for one elevation.")
    ] = None,
    components: Annotated[
        int | None, typer.Option(help="Finest number of charts. Default: one for ten directions.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the start and the held-out part.")] = 0,
    kind: KindOption = Kind.auto,
    channels: ChannelsOption = (0, 1),
    duplicates: DuplicatesOption = Duplicates.error,
    as_json: JsonOption = False,
) -> None:
    """Learn a head: its charts at all scales, held-out errors, and how sure it may be."""
    _check_writable(output)
    opened = opened_head(head, kind=kind, channels=channels, duplicates=duplicates)
    start = time.perf_counter()
    with progress(f"learning {opened.name}") as update:
        atlas = learn(
            opened,
            space=None if space is None else _SPACES[space.value],
            components=components,
            seed=seed,
            progress=update,
        )
    atlas.save(output)
    seconds = time.perf_counter() - start
    if as_json:
        accuracy = atlas.accuracy
        print_json(
            {
                "atlas": str(output),
                "head": opened.name,
                "space": atlas.space.name,
                "components": len(atlas.model.weights),
                "scales": [len(atlas.model.weights)],
                "directions": atlas.about["directions"],
                "held_out": None if accuracy is None else vars(accuracy),
                "seconds": round(seconds, 2),
            }
        )
        return
    _print_atlas(atlas, output, seconds)


def _print_atlas(atlas: Atlas, path: Path, seconds: float) -> None:
    space = atlas.space.name
    left_out = atlas.about["left_out"]
    say(
        f"{atlas.about['head']}: {atlas.about['directions']} directions on the {space}"
        f"{f' ({left_out} outside it left out)' if left_out else ''}, "
        f"{len(atlas.model.weights)} charts, in {seconds:.1f} s"
    )
    accuracy = atlas.accuracy
    if accuracy is None:
        say(
            "Too few directions to hold some out: no errors were measured, and how sure the answers"
        )
        say("are is a cautious guess.")
    else:
        table = Table("held-out directions", str(accuracy.held_out), box=None, padding=(0, 2))
        for name, value in (
            ("median error", f"{accuracy.median_degrees:.2f}°"),
            ("mean error", f"{accuracy.mean_degrees:.2f}°"),
            ("beyond 30°", f"{100 * accuracy.beyond_30_share:.2f} %"),
            ("mean azimuth error", f"{accuracy.mean_azimuth_degrees:.2f}°"),
            ("mean elevation error", f"{accuracy.mean_elevation_degrees:.2f}°"),
        ):
            table.add_row(name, value)
        out.print(table, highlight=False)
    say(f"atlas: {path} ({path.stat().st_size / 1e6:.1f} MB)")


def _check_writable(output: Path) -> None:
    """Refuse an output that cannot be written before the work, not after it."""
    if output.is_dir() or not output.absolute().parent.is_dir():
        raise InputError(
            f"output must be a file in a folder that exists, got '{output}'. "
            "Name a file, and make its folder first."
        )


@commands.command(
    name="localize",
    epilog="Examples: earatlas localize ku100.atlas talker.wav; "
    "earatlas localize ku100.atlas *.wav --json; "
    "earatlas localize ku100.atlas walk.wav --track walk.csv",
)
def localize_command(
    atlas: AtlasArgument,
    recordings: Annotated[list[Path], typer.Argument(help="Two-channel recordings.")],
    channels: ChannelsOption = (0, 1),
    plot: Annotated[
        Path | None, typer.Option(help="Write a map of the belief (.png, .svg, .pdf).")
    ] = None,
    track: Annotated[
        Path | None, typer.Option(help="Write directions over time (.csv or .json).")
    ] = None,
    window: Annotated[float, typer.Option(help="Seconds of sound an answer of the track.")] = 0.5,
    hop: Annotated[float, typer.Option(help="Seconds between answers of the track.")] = 0.1,
    as_json: JsonOption = False,
) -> None:
    """Say where the one sound of each recording comes from, and how sure that is."""
    learned = Atlas.load(atlas)
    if (plot or track) and len(recordings) > 1:
        raise InputError(
            f"--plot and --track must go with one recording, got {len(recordings)}. "
            "Run the command once for each."
        )
    if track is not None and track.suffix.lower() not in {".csv", ".json"}:
        raise InputError(f"track must end in .csv or .json, got '{track}'. Rename the output.")
    if track is not None:
        _check_writable(track)
        Windows(window, hop).frames(learned.layout)
    if plot is not None:
        from earatlas.drawing.beliefs import plot_belief
        from earatlas.drawing.style import check_picture, save

        check_picture(plot)
        _check_writable(plot)
    for recording in recordings:
        start = time.perf_counter()
        where = learned.localize_file(recording, channels=channels)
        if not as_json:
            say(_line(str(recording), where))
            continue
        answer = {"file": str(recording), **where.to_dict()}
        answer["seconds"] = round(time.perf_counter() - start, 4)
        answer["recording_seconds"] = round(audio_seconds(recording), 3)
        print_json(answer)
    if track is not None:
        _write_track(learned, recordings[0], channels, (window, hop), track)
        if not as_json:
            say(f"track: {track}")
    if plot is not None:
        with progress("drawing"):
            save(plot_belief(where.belief, title=recordings[0].name), plot)
        if not as_json:
            say(f"picture: {plot}")


def _line(name: str, where: Localization) -> str:
    """A readable answer: direction in numbers and words, and its 90 % region."""
    azimuth, elevation = where.direction
    height = "" if where.belief.space.dims == 1 else f", elevation {elevation:.1f}°"
    return (
        f"{name}: azimuth {azimuth:.1f}°{height} ({_words(azimuth, elevation)}), within "
        f"{where.radius_degrees(0.9):.0f}° at 90 %, {100 * where.observed_share:.0f} % of the bins "
        "heard"
    )


def _words(azimuth: float, elevation: float) -> str:
    """A direction as people say it."""
    if abs(elevation) > 60:
        return "above" if elevation > 0 else "below"
    side = (
        "" if min(abs(azimuth), 180 - abs(azimuth)) < 10 else ("left" if azimuth > 0 else "right")
    )
    ahead = "" if 75 < abs(azimuth) < 105 else ("ahead" if abs(azimuth) <= 75 else "behind")
    high = "" if abs(elevation) < 20 else ("up" if elevation > 0 else "down")
    return " ".join(word for word in (high, side, ahead) if word)


def _write_track(
    atlas: Atlas, recording: Path, channels: tuple[int, int], sizes: tuple[float, float], path: Path
) -> None:
    windows = Windows(*sizes)
    with progress("tracking") as update:
        # Rows, not a Track: the beliefs of an hour's windows are gigabytes.
        rows = [
            window.to_row(time)
            for time, window in windows_of(
                atlas, FileRecording(recording, channels), windows, progress=update
            )
        ]
    try:
        if path.suffix.lower() == ".json":
            path.write_text(json.dumps(rows) + "\n")
            return
        with path.open("w", newline="") as handle:
            writer = csv.writer(handle)
            writer.writerow(["time", "azimuth", "elevation", "credible_90_area", "observed_share"])
            for row in rows:
                azimuth, elevation = row["direction"] or ("", "")
                area = row["credible_90_area"]
                writer.writerow(
                    [row["time"], azimuth, elevation, "" if area is None else area,
                     row["observed_share"]]
                )  # fmt: skip
    except OSError as error:
        raise InputError(
            f"track must be a file that can be written, got '{path}' ({error.strerror}). "
            "Check that its folder exists and is writable."
        ) from error


@commands.command(
    name="listen",
    epilog="Examples: earatlas listen ku100.atlas; arecord -f S16_LE -c 2 -r 48000 -t raw | "
    "earatlas listen ku100.atlas --stdin --rate 48000",
)
def listen_command(
    atlas: AtlasArgument,
    from_stdin: Annotated[
        bool, typer.Option("--stdin", help="Read raw 16-bit stereo PCM from standard input.")
    ] = False,
    rate: Annotated[int, typer.Option(help="Sampling rate of the input.")] = 48_000,
    device: Annotated[str | None, typer.Option(help="Input device, by name or number.")] = None,
    memory: Annotated[float, typer.Option(help="Seconds after which sound fades by 1/e.")] = 1.0,
    every: Annotated[float, typer.Option(help="Seconds between answers.")] = 0.5,
    as_json: JsonOption = False,
) -> None:
    """Say where a live sound comes from, again and again, until interrupted."""
    learned = Atlas.load(atlas)
    if not 0.02 <= every <= 60 or rate < 1000:
        raise InputError(
            f"every must be between 0.02 and 60 seconds and rate at least 1000, got {every} and "
            f"{rate}. 0.5 and 48000 are the defaults."
        )
    localizer = learned.localizer(rate=rate, memory_seconds=memory)
    size = max(int(every * rate), 1)
    blocks = _stdin_blocks(size) if from_stdin else _device_blocks(device, rate, size)
    done, heard = 0, False
    for block in blocks:
        localizer.push(block)
        done += block.shape[1]
        where = localizer.where()
        if where.observed_share == 0:
            continue
        heard = True
        if as_json:
            print_json({"time": round(done / rate, 3), **where.to_dict()})
        else:
            say(_line(f"{done / rate:7.1f} s", where))
        sys.stdout.flush()
    if not heard:
        what = "silence" if done else "nothing"
        raise InputError(
            f"input must hold sound in 16-bit stereo samples, got {what}. Pipe a recorder into it, "
            "and check its level."
        )


def _stdin_blocks(size: int) -> Iterator[Array]:
    """Blocks (2, n) of interleaved little-endian 16-bit samples."""
    while data := sys.stdin.buffer.read(4 * size):
        whole = len(data) - len(data) % 4
        yield np.frombuffer(data[:whole], dtype="<i2").reshape(-1, 2).T / 32768.0


def _device_blocks(device: str | None, rate: int, size: int) -> Iterator[Array]:
    """Blocks (2, n) from an input device, until interrupted."""
    try:
        import sounddevice
    except (ImportError, OSError) as error:
        raise missing_extra("live", "sounddevice (with PortAudio)") from error
    number: Any = int(device) if device is not None and device.isdigit() else device
    try:
        with sounddevice.InputStream(
            samplerate=rate, channels=2, device=number, dtype="float32"
        ) as stream:
            while True:
                data, _ = stream.read(size)
                yield np.asarray(data.T, dtype=np.float64)
    except sounddevice.PortAudioError as error:
        raise InputError(
            f"device must be a stereo input at {rate} Hz, got {device or 'the default'} ({error}). "
            "List devices with: python -m sounddevice."
        ) from error
