"""`earatlas listen`: where live sound is, from a device, standard input or a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from earatlas.atlas import Atlas
from earatlas.cli.console import print_json, say
from earatlas.cli.incoming import Clock, PcmFormat, device_blocks, file_blocks, stdin_blocks
from earatlas.cli.localize import line
from earatlas.cli.menu import Command, examples, one_command
from earatlas.cli.options import AtlasArgument, JsonOption, YawOption, opened_yaw
from earatlas.errors import InputError
from earatlas.localization.answer import Localization
from earatlas.localization.stream import Localizer
from earatlas.types import Array

__all__ = ["app", "listen_command"]

app = one_command()
_MOST_CHANNELS = 64


@app.command(
    cls=Command,
    epilog=examples(
        "earatlas listen ku100.atlas",
        "earatlas listen ku100.atlas --separate -o tracks",
        "earatlas listen ku100.atlas --separate --from party.wav --json",
        "arecord -f S16_LE -c 2 -r 48000 -t raw | earatlas listen ku100.atlas --stdin",
    ),
)
def listen_command(
    atlas: AtlasArgument,
    separate: Annotated[
        bool, typer.Option("--separate", help="Follow several sources, and take them apart.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="A sound file a source, there."),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(metavar="AZ,EL", help="Raw sound of the source nearest, on standard output."),
    ] = None,
    from_stdin: Annotated[
        bool, typer.Option("--stdin", help="Read raw samples from standard input.")
    ] = False,
    from_file: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Play a recording as if live.")
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="With --from: without waiting.")] = False,
    rate: Annotated[int, typer.Option(metavar="HZ", help="Of the input.")] = 48_000,
    form: Annotated[
        PcmFormat, typer.Option("--format", help="Of raw samples, in and out; little-endian.")
    ] = PcmFormat.s16,
    channels: Annotated[
        int, typer.Option(metavar="N", help="Of standard input; the first two are the ears.")
    ] = 2,
    device: Annotated[
        str | None, typer.Option(metavar="DEVICE", help="Input device, by name or number.")
    ] = None,
    low_delay: Annotated[
        bool, typer.Option("--low-delay", help="24 ms instead of 112, less well separated.")
    ] = False,
    sources: Annotated[int, typer.Option(metavar="N", help="At most, with --separate.")] = 4,
    socket: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Send tracks there as JSON, sound on the next port."
        ),
    ] = None,
    memory: Annotated[
        float, typer.Option(metavar="SECONDS", help="After which one sound fades by 1/e.")
    ] = 1.0,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="Between answers.")] = 0.5,
    yaw: YawOption = None,
    yaw_stream: Annotated[
        str | None,
        typer.Option(metavar="fd:N|HOST:PORT|FILE", help='Of JSON lines {"yaw": 12.5}, live.'),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say where a live sound comes from, again and again, until interrupted.

    With --separate: who is where, each with a name that stays, and each by itself.
    """
    learned = Atlas.load(atlas)
    _check(every, rate, channels, from_stdin=from_stdin, from_file=from_file)
    if from_file is not None:
        rate = _rate_of(from_file)
    clock = Clock(rate)

    def blocks(seconds: float) -> Iterator[Array]:
        size = max(int(seconds * rate), 1)
        if from_file is not None:
            return file_blocks(from_file, size, rate, fast=fast)
        if from_stdin:
            return stdin_blocks(size, form, channels, clock)
        return device_blocks(device, rate, size, clock)

    if not separate:
        _check_alone(output=output, only=only, socket=socket, yaw_stream=yaw_stream)
        localizer = learned.localizer(rate=rate, memory_seconds=memory, yaw=opened_yaw(yaw))
        _one_sound(localizer, blocks(every), rate, as_json=as_json)
        return
    from earatlas.cli.following import (
        BLOCK_SECONDS,
        Wishes,
        follow,
        parsed_direction,
        parsed_socket,
    )

    wishes = Wishes(
        folder=_folder(output),
        only=None if only is None else parsed_direction(only),
        form=form,
        as_json=as_json,
        every=every,
        socket=None if socket is None else parsed_socket(socket),
        yaw_stream=yaw_stream,
    )
    live = learned.live(rate=rate, low_delay=low_delay, max_sources=sources, yaw=opened_yaw(yaw))
    follow(live, blocks(BLOCK_SECONDS), clock, wishes)


def _check(
    every: float, rate: int, channels: int, *, from_stdin: bool, from_file: Path | None
) -> None:
    if not 0.02 <= every <= 60 or rate < 1000:
        raise InputError(
            f"every must be between 0.02 and 60 seconds and rate at least 1000, got {every} and "
            f"{rate}. 0.5 and 48000 are the defaults."
        )
    if not 2 <= channels <= _MOST_CHANNELS:
        raise InputError(
            f"channels must be from 2 to {_MOST_CHANNELS}, left and right first, got {channels}. "
            "One alone carries no interaural cues."
        )
    if from_stdin and from_file is not None:
        raise InputError("input must be one, got --stdin and --from. Leave one of them out.")


def _check_alone(**wishes: object) -> None:
    """Refuse what only several sources have."""
    names = {"output": "-o", "only": "--only", "socket": "--socket", "yaw_stream": "--yaw-stream"}
    given = [names[name] for name, wish in wishes.items() if wish is not None]
    if given:
        raise InputError(
            f"{given[0]} must come with --separate, got it without. Add --separate to the command."
        )


def _folder(output: Path | None) -> Path | None:
    """The folder, made if it is missing; what another run left there is not overwritten."""
    if output is None:
        return None
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"output must be a folder that can be made, got '{output}' ({error.strerror}). "
            "Choose another."
        ) from error
    if any(output.glob("track*.wav")):
        raise InputError(
            f"output must be a folder without tracks of before, got '{output}'. Choose another, or "
            "move them away: a live sound cannot be had again."
        )
    return output


def _rate_of(path: Path) -> int:
    from earatlas.hearing.files import read_blocks

    return next(iter(read_blocks(path, block_seconds=0.5, warn=False))).rate


def _one_sound(localizer: Localizer, blocks: Iterator[Array], rate: int, *, as_json: bool) -> None:
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
            f"input must hold sound in raw stereo samples, got {what}. Pipe a recorder into it, "
            "and check its level."
        )
