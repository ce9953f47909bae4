"""`earatlas listen --separate`: blocks to a table, files, JSON lines, raw samples and sockets."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TextIO

import numpy as np

from earatlas.cli.audio_input import PcmFormat, StreamClock, to_pcm
from earatlas.cli.console import err, out, print_json, print_line
from earatlas.cli.listen_adapt import StreamAdaptation
from earatlas.cli.listen_options import ListenOptions
from earatlas.cli.live_table import live_line, live_table
from earatlas.cli.yaw_feed import YawFeed, open_yaw_feed
from earatlas.errors import InputError, sanitize
from earatlas.geometry.angles import great_circle_error
from earatlas.localization.diagnostics import Doubt
from earatlas.streaming.report import LiveReport, LiveSource
from earatlas.streaming.sockets import LiveServer
from earatlas.streaming.stream import Live
from earatlas.streaming.track_files import TrackFiles
from earatlas.types import Array

__all__ = ["BLOCK_SECONDS", "separate_stream"]

BLOCK_SECONDS = 0.032  # length of a block of sound, s
_MAX_ONLY_DEGREES = 60.0  # distance of a source from --only, beyond which it is ignored
_SHOWN_LAG_SECONDS = 0.5  # a larger lag of the processing is shown


def separate_stream(
    live: Live,
    blocks: Iterator[Array],
    clock: StreamClock,
    options: ListenOptions,
    adaptation: StreamAdaptation | None = None,
) -> None:
    """Separate blocks until the input ends or the user interrupts; then print a summary."""
    with ExitStack() as closing:
        outputs, files, server = _open_outputs(live, clock, options, closing)
        feed = None
        if options.yaw_stream is not None:
            feed = open_yaw_feed(options.yaw_stream)
            closing.callback(feed.close)
        # An interruption is the normal end of listening; all results are kept.
        with suppress(KeyboardInterrupt), _interrupt_on_sigterm():
            _run(live, blocks, clock, feed, outputs, adaptation)
        outputs.end(live.finish())
    if adaptation is not None:
        adaptation.close(options.folder)
    _print_summary(live, clock, options, files, server)
    if not options.as_json:
        _print_faults(clock, outputs, feed, options)
    if not clock.samples:
        raise InputError(
            "input must hold sound in raw stereo samples, got nothing. Pipe a recorder into it."
        )


@contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    """Treat SIGTERM, which services and timeouts send, as a keyboard interrupt."""
    # Only the main thread can set handlers.
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _run(
    live: Live,
    blocks: Iterator[Array],
    clock: StreamClock,
    feed: YawFeed | None,
    outputs: _Outputs,
    adaptation: StreamAdaptation | None,
) -> None:
    """Separate each block, and pass the reports on."""
    for block in blocks:
        start = time.perf_counter()
        seconds = (clock.samples + block.shape[1]) / live.rate
        report = live.push(block, yaw=None if feed is None else feed.at(seconds))
        outputs.take(report)
        if adaptation is not None:
            active = [source.id for source in report.sources if source.confirmed and source.active]
            adapted = adaptation.add(block, active[0] if len(active) == 1 else None)
            if adapted is not None:
                live.use_head(adapted.separator)
        clock.add_block(time.perf_counter() - start, block.shape[1])


class _Outputs:
    """Receivers of reports: sound with every block, the rest at regular intervals."""

    def __init__(self, every: float) -> None:
        self._every, self._next = every, every
        self.sound: list[Callable[[LiveReport], None]] = []
        self.periodic: list[Callable[[LiveReport], None]] = []
        self.doubts: tuple[Doubt, ...] = ()  # doubts of the most recent report
        self._last_time = -math.inf  # of the last report that all receivers got

    def take(self, report: LiveReport) -> None:
        """Pass a report to the receivers that are due."""
        self.doubts = report.doubts
        for receiver in self.sound:
            receiver(report)
        if report.time >= self._next - 1e-9:
            while self._next <= report.time + 1e-9:
                self._next += self._every
            self._last_time = report.time
            for receiver in self.periodic:
                receiver(report)

    def end(self, report: LiveReport) -> None:
        """Pass the last report to all receivers, but no state twice."""
        repeated = report.time <= self._last_time and not report.ended
        for receiver in (*self.sound, *(() if repeated else self.periodic)):
            receiver(report)


def _text_stream(options: ListenOptions) -> TextIO:
    """Return standard output, or standard error if standard output carries sound."""
    return sys.stdout if options.only is None else sys.stderr


def _open_outputs(
    live: Live, clock: StreamClock, options: ListenOptions, closing: ExitStack
) -> tuple[_Outputs, TrackFiles | None, LiveServer | None]:
    """Open the outputs that the options ask for; `closing` closes them."""
    outputs = _Outputs(options.every)
    files = server = None
    if options.socket is not None:
        server = LiveServer(*options.socket, live.rate)
        closing.callback(server.close)
        outputs.sound.append(server.send_sound)
        outputs.periodic.append(server.send_tracks)
    if options.folder is not None:
        files = TrackFiles(options.folder, live.rate)
        closing.callback(files.close)
        outputs.sound.append(files.write)
    for sink in options.exports.open():
        closing.callback(sink.close)
        outputs.sound.append(sink.send)
    if options.only is not None:
        outputs.sound.append(_NearestSource(options.only, options.form))
    if options.as_json:
        outputs.periodic.append(
            lambda report: print_json(_json(report, files), _text_stream(options))
        )
        return outputs, files, server
    console = out if options.only is None else err
    if console.is_terminal:
        outputs.periodic.append(_table_on_screen(live, clock, console, closing))
    elif options.only is None:
        outputs.periodic.append(_print_report)
    return outputs, files, server


def _print_report(report: LiveReport) -> None:
    """Print a report as one line."""
    print_line(live_line(report))
    sys.stdout.flush()


def _table_on_screen(
    live: Live, clock: StreamClock, console: Any, closing: ExitStack
) -> Callable[[LiveReport], None]:
    """Return a function that shows a report as a table on the terminal."""
    from rich.live import Live as Screen

    screen = closing.enter_context(Screen(console=console, auto_refresh=False))
    delay = f"latency {1000 * live.delay_seconds:.0f} ms"

    def show(report: LiveReport) -> None:
        behind = clock.lag_seconds
        lag = (
            f" · {behind:.1f} s behind: this computer is too slow"
            if behind > _SHOWN_LAG_SECONDS
            else ""
        )
        footer = f"{report.time:.1f} s · {delay}{lag} · Ctrl-C to stop"
        screen.update(live_table(report, footer, console.width), refresh=True)

    return show


def _json(report: LiveReport, files: TrackFiles | None) -> dict[str, Any]:
    """Return a report as JSON values, with the file of each track."""
    answer = report.to_dict()
    for source in answer["sources"]:
        track = None if files is None else files.tracks.get(source["id"])
        source["file"] = None if track is None else track["file"]
    return answer


class _NearestSource:
    """Writes the source nearest to a direction to standard output, or silence without one."""

    def __init__(self, direction: tuple[float, float], form: PcmFormat) -> None:
        self._direction, self._form = np.array(direction), form

    def __call__(self, report: LiveReport) -> None:
        sources = [s for s in (*report.sources, *report.ended) if s.confirmed]
        near = [s for s in sources if self._distance(s) < _MAX_ONLY_DEGREES]
        sound = min(near, key=self._distance).samples if near else np.zeros((2, report.samples))
        sys.stdout.buffer.write(to_pcm(sound, self._form))
        sys.stdout.buffer.flush()

    def _distance(self, source: LiveSource) -> float:
        """Return the angle between a source and the direction, in degrees."""
        direction = (
            source.direction if len(source.direction) > 1 else np.append(source.direction, 0.0)
        )
        return float(great_circle_error(self._direction, direction))


def _print_summary(
    live: Live,
    clock: StreamClock,
    options: ListenOptions,
    files: TrackFiles | None,
    server: LiveServer | None,
) -> None:
    """Print the duration, the latency and the tracks."""
    seconds, delay = clock.samples / live.rate, 1000 * live.delay_seconds
    measured = None
    if clock.live:
        measured = round(delay + 1000 * (clock.latency_seconds + BLOCK_SECONDS), 1)
    tracks = [] if files is None else list(files.summary)
    if options.as_json:
        summary = {
            "seconds": round(seconds, 3),
            "delay_ms": round(delay, 1),
            "measured_delay_ms": measured,
            "work_seconds": round(clock.processing_seconds, 3),
            "late_blocks": clock.late_blocks,
            "dropped_samples": clock.dropped_samples,
            "left_over_bytes": clock.left_over_bytes,
            "dropped_messages": 0
            if server is None
            else server.tracks.dropped + server.sound.dropped,
            "tracks": tracks,
        }
        print_json({"summary": summary}, _text_stream(options))
        return
    write = print_line if options.only is None else lambda text: err.print(text, highlight=False)
    timing = f"processed in {clock.processing_seconds:.1f} s"
    if measured is not None:
        timing = f"{measured:.0f} ms measured · {clock.late_blocks} late blocks"
    write(
        f"{seconds:.1f} s of sound · latency {delay:.0f} ms by design, {timing} · "
        f"{clock.dropped_samples} samples dropped"
    )
    for track in tracks:
        write(f"  {track['file']}: from {track['start']:.1f} s, {track['seconds']:.1f} s")


def _print_faults(
    clock: StreamClock, outputs: _Outputs, feed: YawFeed | None, options: ListenOptions
) -> None:
    """Print doubts, and faults of the input."""
    faults = [f"doubtful: {sanitize(str(doubt))}" for doubt in outputs.doubts]
    if clock.left_over_bytes:
        faults.append(
            f"doubtful: {clock.left_over_bytes} bytes at the end are not a whole frame of "
            f"{options.form} samples. Check --format and --channels."
        )
    if feed is not None and feed.skipped:
        faults.append(
            f"doubtful: {feed.skipped} lines of the yaw stream were not a valid yaw. "
            'Write lines such as {"yaw": 12.5}, in degrees, positive to the left.'
        )
    for fault in faults:
        err.print(fault, highlight=False, markup=False, style="yellow")
