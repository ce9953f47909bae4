"""`earatlas listen --separate`: blocks in; a table, files, JSON, PCM and sockets out."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TextIO

import numpy as np

from earatlas.cli.audio_input import Clock, PcmFormat, to_pcm
from earatlas.cli.console import err, out, print_json, say
from earatlas.cli.listen_options import Wishes
from earatlas.cli.live_table import live_line, live_table
from earatlas.cli.yaw_feed import YawFeed
from earatlas.errors import InputError, harmless
from earatlas.geometry.angles import great_circle_error
from earatlas.localization.diagnostics import Doubt
from earatlas.streaming.report import LiveReport, LiveSource
from earatlas.streaming.sockets import LiveServer
from earatlas.streaming.stream import Live
from earatlas.streaming.track_files import TrackFiles
from earatlas.types import Array

__all__ = ["BLOCK_SECONDS", "follow"]

BLOCK_SECONDS = 0.032
_FARTHEST = 60.0  # degrees: nobody so far from where --only looks is meant
_BEHIND = 0.5  # seconds from which on it is told that the work does not keep up


def follow(live: Live, blocks: Iterator[Array], clock: Clock, wishes: Wishes) -> None:
    """Until the input ends or the user ends it; then say how it went."""
    with ExitStack() as closing:
        sinks, files, server = _sinks(live, clock, wishes, closing)
        feed = None
        if wishes.yaw_stream is not None:
            feed = YawFeed(wishes.yaw_stream)
            closing.callback(feed.close)
        # An interruption is how one ends listening; all that was heard is kept.
        with suppress(KeyboardInterrupt), _ended_by_signal():
            _run(live, blocks, clock, feed, sinks)
        sinks.end(live.finish())
    _tell(live, clock, wishes, files, server)
    if not wishes.as_json:
        _tell_doubts(clock, sinks, feed, wishes)
    if not clock.samples:
        raise InputError(
            "input must hold sound in raw stereo samples, got nothing. Pipe a recorder into it."
        )


@contextmanager
def _ended_by_signal() -> Iterator[None]:
    """SIGTERM ends listening as an interruption does: services and timeouts send it."""
    if threading.current_thread() is not threading.main_thread():  # others may set no handlers
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(
    live: Live, blocks: Iterator[Array], clock: Clock, feed: YawFeed | None, sinks: _Sinks
) -> None:
    for block in blocks:
        begun = time.perf_counter()
        seconds = (clock.samples + block.shape[1]) / live.rate
        report = live.push(block, yaw=None if feed is None else feed.at(seconds))
        sinks.take(report)
        clock.worked(time.perf_counter() - begun, block.shape[1])


class _Sinks:
    """Where reports go: sound with every block, the rest every so often."""

    def __init__(self, every: float) -> None:
        self._every, self._next = every, every
        self.sound: list[Callable[[LiveReport], None]] = []
        self.told: list[Callable[[LiveReport], None]] = []
        self.doubts: tuple[Doubt, ...] = ()  # of all that is heard, lately

    def take(self, report: LiveReport) -> None:
        self.doubts = report.doubts
        for sink in self.sound:
            sink(report)
        if report.time >= self._next - 1e-9:
            while self._next <= report.time + 1e-9:
                self._next += self._every
            for sink in self.told:
                sink(report)

    def end(self, report: LiveReport) -> None:
        for sink in (*self.sound, *self.told):
            sink(report)


def _told_on(wishes: Wishes) -> TextIO:
    """Standard output, or standard error where that has the sound."""
    return sys.stdout if wishes.only is None else sys.stderr


def _sinks(
    live: Live, clock: Clock, wishes: Wishes, closing: ExitStack
) -> tuple[_Sinks, TrackFiles | None, LiveServer | None]:
    sinks = _Sinks(wishes.every)
    files = server = None
    if wishes.socket is not None:
        server = LiveServer(*wishes.socket, live.rate)
        closing.callback(server.close)
        sinks.sound.append(server.send_sound)
        sinks.told.append(server.send_tracks)
    if wishes.folder is not None:
        files = TrackFiles(wishes.folder, live.rate)
        closing.callback(files.close)
        sinks.sound.append(files.write)
    if wishes.only is not None:
        sinks.sound.append(_OnlyOne(wishes.only, wishes.form))
    if wishes.as_json:
        sinks.told.append(lambda report: print_json(_json(report, files), _told_on(wishes)))
        return sinks, files, server
    console = out if wishes.only is None else err
    if console.is_terminal:
        sinks.told.append(_shown(live, clock, console, closing))
    elif wishes.only is None:
        sinks.told.append(_said)
    return sinks, files, server


def _said(report: LiveReport) -> None:
    say(live_line(report))
    sys.stdout.flush()


def _shown(
    live: Live, clock: Clock, console: Any, closing: ExitStack
) -> Callable[[LiveReport], None]:
    from rich.live import Live as Screen

    screen = closing.enter_context(Screen(console=console, auto_refresh=False))
    delay = f"sounds come {1000 * live.delay_seconds:.0f} ms late"

    def show(report: LiveReport) -> None:
        behind = clock.behind_seconds
        lag = f" · {behind:.1f} s behind: this machine is too slow" if behind > _BEHIND else ""
        footer = f"{report.time:.1f} s · {delay}{lag} · Ctrl-C ends it"
        screen.update(live_table(report, footer, console.width), refresh=True)

    return show


def _json(report: LiveReport, files: TrackFiles | None) -> dict[str, Any]:
    told = report.to_dict()
    for source in told["sources"]:
        track = None if files is None else files.tracks.get(source["id"])
        source["file"] = None if track is None else track["file"]
    return told


class _OnlyOne:
    """Writes the source nearest a direction to standard output; silence where there is none."""

    def __init__(self, direction: tuple[float, float], form: PcmFormat) -> None:
        self._direction, self._form = np.array(direction), form

    def __call__(self, report: LiveReport) -> None:
        sources = [s for s in (*report.sources, *report.ended) if s.confirmed]
        near = [s for s in sources if self._gap(s) < _FARTHEST]
        sound = min(near, key=self._gap).samples if near else np.zeros((2, report.samples))
        sys.stdout.buffer.write(to_pcm(sound, self._form))
        sys.stdout.buffer.flush()

    def _gap(self, source: LiveSource) -> float:
        place = source.direction if len(source.direction) > 1 else np.append(source.direction, 0.0)
        return float(great_circle_error(self._direction, place))


def _tell(
    live: Live, clock: Clock, wishes: Wishes, files: TrackFiles | None, server: LiveServer | None
) -> None:
    """How it went."""
    seconds, delay = clock.samples / live.rate, 1000 * live.delay_seconds
    measured = None
    if clock.live:
        measured = round(delay + 1000 * (clock.usual_work_seconds + BLOCK_SECONDS), 1)
    tracks = [] if files is None else list(files.summary)
    if wishes.as_json:
        summary = {
            "seconds": round(seconds, 3),
            "delay_ms": round(delay, 1),
            "measured_delay_ms": measured,
            "work_seconds": round(clock.worked_seconds, 3),
            "late_blocks": clock.late_blocks,
            "dropped_samples": clock.dropped_samples,
            "left_over_bytes": clock.left_over_bytes,
            "dropped_messages": 0
            if server is None
            else server.tracks.dropped + server.sound.dropped,
            "tracks": tracks,
        }
        print_json({"summary": summary}, _told_on(wishes))
        return
    write = say if wishes.only is None else lambda text: err.print(text, highlight=False)
    kept_up = f"worked through in {clock.worked_seconds:.1f} s"
    if measured is not None:
        kept_up = f"{measured:.0f} ms measured · {clock.late_blocks} blocks late"
    write(
        f"{seconds:.1f} s heard · delay {delay:.0f} ms by the method, {kept_up} · "
        f"{clock.dropped_samples} samples dropped"
    )
    for track in tracks:
        write(f"  {track['file']}: from {track['start']:.1f} s, {track['seconds']:.1f} s")


def _tell_doubts(clock: Clock, sinks: _Sinks, feed: YawFeed | None, wishes: Wishes) -> None:
    """What was wrong with the input."""
    faults = [f"doubtful: {harmless(str(doubt))}" for doubt in sinks.doubts]
    if clock.left_over_bytes:
        faults.append(
            f"doubtful: {clock.left_over_bytes} bytes at the end are no whole sample of "
            f"{wishes.form} in this many channels. Check --format and --channels."
        )
    if feed is not None and feed.skipped:
        faults.append(
            f"doubtful: {feed.skipped} lines of the yaw stream were no yaw that a head can have. "
            'One is {"yaw": 12.5}, in degrees to the left.'
        )
    for fault in faults:
        err.print(fault, highlight=False, markup=False, style="yellow")
