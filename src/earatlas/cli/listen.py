"""`earatlas listen`: where a live sound is, from a device or standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import typer

from earatlas.atlas import Atlas
from earatlas.cli.console import print_json, say
from earatlas.cli.localize import line
from earatlas.cli.menu import Command, examples, one_command
from earatlas.cli.options import AtlasArgument, JsonOption, YawOption, opened_yaw
from earatlas.errors import InputError, missing_extra
from earatlas.localization.answer import Localization
from earatlas.localization.stream import Localizer
from earatlas.types import Array

__all__ = ["app", "listen_command"]

app = one_command()


@app.command(
    cls=Command,
    epilog=examples(
        "earatlas listen ku100.atlas",
        "arecord -f S16_LE -c 2 -r 48000 -t raw | earatlas listen ku100.atlas --stdin",
    ),
)
def listen_command(
    atlas: AtlasArgument,
    from_stdin: Annotated[
        bool, typer.Option("--stdin", help="Read raw 16-bit stereo PCM from standard input.")
    ] = False,
    rate: Annotated[int, typer.Option(metavar="HZ", help="Of the input.")] = 48_000,
    device: Annotated[
        str | None, typer.Option(metavar="DEVICE", help="Input device, by name or number.")
    ] = None,
    memory: Annotated[
        float, typer.Option(metavar="SECONDS", help="After which sound fades by 1/e.")
    ] = 1.0,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="Between answers.")] = 0.5,
    yaw: YawOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say where a live sound comes from, again and again, until interrupted."""
    learned = Atlas.load(atlas)
    if not 0.02 <= every <= 60 or rate < 1000:
        raise InputError(
            f"every must be between 0.02 and 60 seconds and rate at least 1000, got {every} and "
            f"{rate}. 0.5 and 48000 are the defaults."
        )
    localizer = learned.localizer(rate=rate, memory_seconds=memory, yaw=opened_yaw(yaw))
    size = max(int(every * rate), 1)
    blocks = _stdin_blocks(size) if from_stdin else _device_blocks(device, rate, size)
    for seconds, where in _answers(localizer, blocks, rate):
        if as_json:
            print_json({"time": round(seconds, 3), **where.to_dict()})
        else:
            say(line(f"{seconds:7.1f} s", where))
            sys.stdout.flush()


def _answers(
    localizer: Localizer, blocks: Iterator[Array], rate: int
) -> Iterator[tuple[float, Localization]]:
    """(seconds so far, answer) after every block in which something was heard by then."""
    done, heard = 0, False
    for block in blocks:
        localizer.push(block)
        done += block.shape[1]
        where = localizer.where()
        if where.observed_share > 0:
            heard = True
            yield done / rate, where
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
    sounddevice = _sounddevice()
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


def _sounddevice() -> Any:
    """The package for devices, or what is missing: itself, or the library that it calls."""
    try:
        import sounddevice
    except ImportError as error:
        raise missing_extra("live", "sounddevice") from error
    except OSError as error:  # the package is there, and does not find the library
        raise InputError(
            f"This needs the library PortAudio, which was not found ({error}). Install it (Debian: "
            "apt install libportaudio2; macOS: brew install portaudio), or pipe a recorder into "
            "--stdin."
        ) from error
    return sounddevice
