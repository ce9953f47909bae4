"""Options of `earatlas listen --separate` for other programs: files and network protocols."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from earatlas.errors import InputError, check_path
from earatlas.interchange.sinks import ReportSink

__all__ = ["ListenExports", "parse_udp_address"]


@dataclass(frozen=True)
class ListenExports:
    """Receivers of the tracks of a stream."""

    rttm: Path | None = None
    dcase: Path | None = None
    osc: str | None = None  # HOST:PORT
    lsl: str | None = None  # name of the streams
    force: bool = False  # replace existing files

    def check(self, *inputs: Path | None) -> None:
        """Refuse to replace files, before anything is opened.

        The files of `inputs`, which the command reads, are not even replaced with --force.
        """
        outputs = [check_path(path) for path in (self.rttm, self.dcase) if path is not None]
        if len(outputs) == 2 and _is_same_file(*outputs):
            raise InputError(
                f"rttm and dcase must be two files, got '{outputs[0]}' for both. Choose another "
                "name for one of them."
            )
        for path in outputs:
            if any(one is not None and one.exists() and _is_same_file(path, one) for one in inputs):
                raise InputError(
                    f"output must not be a file that this command reads, got '{path}'. Choose "
                    "another name."
                )
            if not self.force and path.exists() and path.stat().st_size:
                raise InputError(
                    f"output must not be a file that exists, got '{path}'. Choose another name, "
                    "or pass --force to replace it."
                )

    def open(self) -> list[ReportSink]:
        """Open all receivers; if one cannot be opened, close the others.

        Connections are opened first, so that an invalid address replaces no file.
        """
        sinks: list[ReportSink] = []
        with ExitStack() as opened:
            for sink in self._opening():
                opened.callback(sink.close)
                sinks.append(sink)
            opened.pop_all()
        return sinks

    def _opening(self) -> Iterator[ReportSink]:
        """Open one receiver after the other; each package is imported only if it is needed."""
        if self.osc is not None:
            from earatlas.interchange.osc import OscSink

            yield OscSink(*parse_udp_address(self.osc, "osc"))
        if self.lsl is not None:
            from earatlas.interchange.lsl import LslSink

            yield LslSink(self.lsl)
        if self.rttm is not None:
            from earatlas.interchange.rttm import RttmSink

            yield RttmSink(self.rttm)
        if self.dcase is not None:
            from earatlas.interchange.dcase import DcaseSink

            yield DcaseSink(self.dcase)


def _is_same_file(a: Path, b: Path) -> bool:
    """Whether two paths, of which any may not exist, name one file."""
    if a.exists() and b.exists():
        return a.samefile(b)  # also hard links
    return os.path.realpath(a) == os.path.realpath(b)


def parse_udp_address(text: str, argument: str) -> tuple[str, int]:
    """Parse `HOST:PORT`, or a port of this machine."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or len(port) > 5 or int(port) > 65_535:
        raise InputError(
            f"{argument} must be HOST:PORT or PORT, up to 65535, got '{text}'. For example: "
            f"--{argument} 9000."
        )
    return host or "127.0.0.1", int(port)
