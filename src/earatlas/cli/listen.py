"""`earatlas listen`: localize or separate sound from a device, standard input or a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from earatlas.cli.app import Command, command_app, examples
from earatlas.cli.atlas_argument import ChosenAtlas, is_recording
from earatlas.cli.audio_input import AudioInput, PcmFormat
from earatlas.cli.console import print_json
from earatlas.cli.listen_adapt import StreamAdaptation
from earatlas.cli.localize import print_localization
from earatlas.cli.options import JsonOption, YawOption, read_yaw
from earatlas.errors import InputError
from earatlas.features.audio_files import audio_seconds
from earatlas.localization.diagnostics import DoubtKind
from earatlas.localization.localizer import Localizer
from earatlas.localization.result import Localization
from earatlas.streaming.delay import DEFAULT_DELAY_SECONDS

__all__ = ["app", "listen_command"]

app = command_app()

_MIN_FILE_SECONDS = 0.5  # shortest recording that is certainly long enough, s
# Defaults of options
_RATE = 48_000  # Hz
_N_CHANNELS = 2
_MAX_SOURCES = 4
_MEMORY_SECONDS = 1.0


class _ListenCommand(Command):
    """Command that explains --from if a recording is given as an argument."""

    def refuse_extra(self, rest: list[str], path: str) -> None:
        raise InputError(
            f"listen must be given one atlas and no recording, got '{rest[0]}'. Add --from FILE "
            "to play a recording, or --stdin to read a pipe."
        )


@app.command(
    cls=_ListenCommand,
    epilog=examples(
        "earatlas listen",
        "earatlas listen ku100.atlas",
        "earatlas listen ku100.atlas --separate -o tracks",
        "earatlas listen ku100.atlas --separate --from party.wav --json",
        "earatlas listen people --separate --adapt -o tracks",
        "arecord -f S16_LE -c 2 -r 48000 -t raw | earatlas listen ku100.atlas --stdin",
    ),
)
def listen_command(
    atlas: Annotated[
        Path | None,
        typer.Argument(
            metavar="[ATLAS]",
            help="Atlas file written by `earatlas learn`, 'people' (the default) for heads that "
            "nobody measured, or 'simulated'. A recording is played as with --from.",
        ),
    ] = None,
    separate: Annotated[
        bool, typer.Option("--separate", help="Track several sources, and separate them.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="With --separate: write one sound file per source to this folder.",
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="AZ,EL",
            help="With --separate: write raw samples of the source nearest to this direction to "
            "standard output.",
        ),
    ] = None,
    from_stdin: Annotated[
        bool, typer.Option("--stdin", help="Read raw samples from standard input.")
    ] = False,
    from_file: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Play a recording in real time.")
    ] = None,
    fast: Annotated[
        bool, typer.Option("--fast", help="With --from: process as fast as possible.")
    ] = False,
    rate: Annotated[
        int, typer.Option(metavar="HZ", help="Sampling rate of the device or of standard input.")
    ] = _RATE,
    form: Annotated[
        PcmFormat, typer.Option("--format", help="Format of raw samples, little-endian.")
    ] = PcmFormat.s16,
    channels: Annotated[
        int,
        typer.Option(metavar="N", help="Number of channels of standard input."),
    ] = _N_CHANNELS,
    ears: Annotated[
        tuple[int, int],
        typer.Option(
            metavar="LEFT RIGHT",
            help="Channels of the left and right ear of the input, counted from 0.",
        ),
    ] = (0, 1),
    device: Annotated[
        str | None, typer.Option(metavar="DEVICE", help="Input device: name or number.")
    ] = None,
    delay: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="With --separate: largest latency of the signals, 0.024 to 1 s. A longer one "
            "separates better in reverberant rooms.",
        ),
    ] = DEFAULT_DELAY_SECONDS,
    sources: Annotated[
        int, typer.Option(metavar="N", help="With --separate: maximum number of sources.")
    ] = _MAX_SOURCES,
    socket: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="With --separate: serve tracks as JSON on this port, and sound on the next one.",
        ),
    ] = None,
    memory: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="Without --separate: time constant for forgetting older sound."
        ),
    ] = _MEMORY_SECONDS,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", help="Interval between results.")
    ] = 0.5,
    adapt: Annotated[
        bool,
        typer.Option(
            "--adapt",
            help="Adapt the atlas, which must be of many heads, to the listener while listening.",
        ),
    ] = False,
    yaw: YawOption = None,
    yaw_stream: Annotated[
        str | None,
        typer.Option(
            metavar="fd:N|HOST:PORT|FILE|osc:PORT",
            help="With --separate: read the head yaw while listening, one JSON object per line, or "
            "OSC messages of a head tracker.",
        ),
    ] = None,
    rttm: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --separate: write when each source is active."),
    ] = None,
    dcase: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --separate: write directions every 100 ms (DCASE CSV)."
        ),
    ] = None,
    osc: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="With --separate: send tracks as OSC messages."),
    ] = None,
    lsl: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With --separate: offer tracks and markers by LSL."),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="With -o: delete the tracks of an earlier run in the folder. Replace the files of "
            "--rttm and --dcase.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Localize or separate live sound.

    Prints the direction of the sound at regular intervals, until interrupted. With --separate,
    tracks and separates several sources at the same time.
    """
    if atlas is not None and from_file is None and is_recording(atlas):
        atlas, from_file = None, atlas
    _check(every, rate)
    _check_exclusive(
        {
            "--memory": memory != _MEMORY_SECONDS and separate and "--separate",
            "--yaw": yaw is not None and yaw_stream is not None and "--yaw-stream",
            "--rate": rate != _RATE and from_file is not None and "--from",
            "--channels": channels != _N_CHANNELS and from_file is not None and "--from",
            "--device": device is not None
            and ("--stdin" if from_stdin else from_file is not None and "--from"),
        }
    )
    chosen = ChosenAtlas.load(atlas)
    learned = chosen.atlas
    audio = AudioInput(
        from_file, from_stdin, device, rate=rate, form=form, channels=channels, fast=fast,
        ears=ears,
    )  # fmt: skip
    head_yaw = read_yaw(yaw)
    if head_yaw is not None and from_file is not None:
        head_yaw.check_end(audio_seconds(from_file))  # before any of the file is processed
    if not separate:
        _check_without_separate(
            output=output,
            only=only,
            socket=socket,
            yaw_stream=yaw_stream,
            delay=None if delay == DEFAULT_DELAY_SECONDS else delay,
            sources=None if sources == _MAX_SOURCES else sources,
            rttm=rttm,
            dcase=dcase,
            osc=osc,
            lsl=lsl,
        )
        localizer = learned.localizer(rate=audio.rate, memory_seconds=memory, yaw=head_yaw)
        adaptation = None
        if adapt:
            adaptation = StreamAdaptation.of(learned, audio.rate, None, wait=fast, force=force)
        chosen.note_default()
        _localize_stream(localizer, audio, every, chosen, adaptation, as_json=as_json)
        return
    from earatlas.cli.listen_exports import ListenExports
    from earatlas.cli.listen_options import ListenOptions
    from earatlas.cli.listen_separate import BLOCK_SECONDS, separate_stream

    exports = ListenExports(rttm, dcase, osc, lsl, force)
    exports.check(from_file, atlas)
    live = learned.live(rate=audio.rate, delay_seconds=delay, max_sources=sources, yaw=head_yaw)
    adaptation = None
    if adapt:
        adaptation = StreamAdaptation.of(learned, audio.rate, output, wait=fast, force=force)
    # The output folder is created last: an option that is refused would leave it empty.
    options = ListenOptions.of(
        output, only, socket, yaw_stream, form=form, as_json=as_json, every=every, force=force
    )
    options = replace(options, exports=exports)
    chosen.note_default()
    separate_stream(live, audio.blocks(BLOCK_SECONDS), audio.clock, options, adaptation)


def _check(every: float, rate: int) -> None:
    """Check the interval between results and the sampling rate."""
    if not 0.02 <= every <= 60:
        raise InputError(
            f"--every must be between 0.02 and 60 seconds, got {every:g}. 0.5 is the default."
        )
    if rate < 1000:
        raise InputError(f"--rate must be at least 1000 Hz, got {rate}. 48000 is the default.")


def _check_exclusive(other_options: dict[str, str | bool]) -> None:
    """Refuse options that have no effect together with another one, which is named, if given."""
    for option, other in other_options.items():
        if other:
            raise InputError(
                f"{option} must be used without {other}, got both. Remove one of them."
            )


def _check_without_separate(**options: object) -> None:
    """Refuse options that need --separate."""
    given = [
        "-o" if name == "output" else f"--{name.replace('_', '-')}"
        for name, value in options.items()
        if value is not None
    ]
    if given:
        raise InputError(
            f"{given[0]} must be used with --separate, got no --separate. Add it to the command."
        )


def _localize_stream(
    localizer: Localizer,
    audio: AudioInput,
    every: float,
    chosen: ChosenAtlas,
    adaptation: StreamAdaptation | None,
    *,
    as_json: bool,
) -> None:
    """Print the direction of the sound at intervals of `every` seconds."""
    for seconds, localization in _localizations(localizer, audio, every, adaptation):
        if as_json:
            answer = {"time": round(seconds, 3), **chosen.fields, **localization.to_dict()}
            print_json(answer)
        else:
            print_localization(f"{seconds:7.1f} s", localization)
            sys.stdout.flush()
    if adaptation is not None:
        adaptation.close(None)


def _localizations(
    localizer: Localizer, audio: AudioInput, every: float, adaptation: StreamAdaptation | None
) -> Iterator[tuple[float, Localization]]:
    """Yield (seconds, localization) after each block, from the first observed sound on."""
    done, observed = 0, False
    for block in audio.blocks(every):
        localizer.push(block)
        done += block.shape[1]
        localization = localizer.where()
        if adaptation is not None:
            several = any(doubt.word is DoubtKind.SEVERAL_SOUNDS for doubt in localization.doubts)
            single = localization.observed_share > 0 and not several
            adapted = adaptation.add(block, 1 if single else None)
            if adapted is not None:
                localizer.use_head(adapted)
        if localization.observed_share > 0:
            observed = True
            yield done / audio.rate, localization
    if not observed:
        raise _nothing_observed(audio.file, done / audio.rate)


def _nothing_observed(file: Path | None, seconds: float) -> InputError:
    """Return the error for an input of this duration without a localization."""
    if file is None:
        content = "silence" if seconds else "nothing"
        return InputError(
            f"input must hold sound in raw stereo samples, got {content}. Pipe a recorder into it, "
            "and check its level."
        )
    if seconds < _MIN_FILE_SECONDS:
        return InputError(
            f"The recording '{file}' is too short to be analysed: {seconds:.1f} s. Use at least "
            f"{_MIN_FILE_SECONDS:g} s."
        )
    return InputError(
        f"The recording '{file}' is too quiet: no sound exceeds the thresholds in both ears at "
        "once. Record at a higher level."
    )
