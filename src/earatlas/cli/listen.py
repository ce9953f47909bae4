"""`earatlas listen`: where live sound is, from a device, standard input or a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from earatlas.atlas import Atlas
from earatlas.cli.app import Command, examples, one_command
from earatlas.cli.audio_input import Input, PcmFormat
from earatlas.cli.console import print_json, say
from earatlas.cli.localize import line
from earatlas.cli.options import AtlasArgument, JsonOption, YawOption, opened_yaw
from earatlas.errors import InputError
from earatlas.features.audio_files import audio_seconds
from earatlas.localization.result import Localization
from earatlas.localization.streaming_localizer import Localizer
from earatlas.types import Array

__all__ = ["app", "listen_command"]

app = one_command()


class _ListenCommand(Command):
    """Says where a recording belongs, which other commands take after the atlas."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True
        rest = super().parse_args(ctx, args)
        if rest:
            raise InputError(
                f"listen must be given one atlas alone, got '{rest[0]}' after it. Add --from FILE "
                "to play a recording, or --stdin to read a pipe."
            )
        return rest


@app.command(
    cls=_ListenCommand,
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
        bool,
        typer.Option("--low-delay", help="24 ms instead of 112; in rooms, less well separated."),
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
        typer.Option(metavar="fd:N|HOST:PORT|FILE", help="A yaw a line, as JSON, live."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="With -o: delete the tracks of an earlier run there.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say where a live sound comes from, again and again, until interrupted.

    With --separate: who is where, each with a name that stays, and each by itself.
    """
    learned = Atlas.load(atlas)
    _check(every, rate)
    heard = Input(from_file, from_stdin, device, rate=rate, form=form, channels=channels, fast=fast)
    turned = opened_yaw(yaw)
    if turned is not None and from_file is not None:
        turned.check_end(audio_seconds(from_file))  # now, and not when all was worked through
    if not separate:
        _check_alone(
            output=output,
            only=only,
            socket=socket,
            yaw_stream=yaw_stream,
            low_delay=low_delay or None,
        )
        localizer = learned.localizer(rate=heard.rate, memory_seconds=memory, yaw=turned)
        _one_sound(localizer, heard.blocks(every), heard.rate, as_json=as_json)
        return
    from earatlas.cli.listen_options import Wishes
    from earatlas.cli.listen_separate import BLOCK_SECONDS, follow

    wishes = Wishes.of(
        output, only, socket, yaw_stream, form=form, as_json=as_json, every=every, force=force
    )
    live = learned.live(rate=heard.rate, low_delay=low_delay, max_sources=sources, yaw=turned)
    follow(live, heard.blocks(BLOCK_SECONDS), heard.clock, wishes)


def _check(every: float, rate: int) -> None:
    if not 0.02 <= every <= 60:
        raise InputError(
            f"--every must be between 0.02 and 60 seconds, got {every:g}. 0.5 is the default."
        )
    if rate < 1000:
        raise InputError(f"--rate must be at least 1000 Hz, got {rate}. 48000 is the default.")


def _check_alone(**wishes: object) -> None:
    """Refuse what only several sources have."""
    given = [
        "-o" if name == "output" else f"--{name.replace('_', '-')}"
        for name, wish in wishes.items()
        if wish is not None
    ]
    if given:
        raise InputError(
            f"{given[0]} must come with --separate, got it without. Add --separate to the command."
        )


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
