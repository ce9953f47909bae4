"""Options of `earatlas listen --separate` for other programs: files and network protocols."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from earatlas.errors import InputError
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

    def check(self) -> None:
        """Refuse to replace files, before anything is opened."""
        for path in (self.rttm, self.dcase):
            if path is not None and not self.force and path.exists() and path.stat().st_size:
                raise InputError(
                    f"output must not be a file that exists, got '{path}'. Choose another name, "
                    "or pass --force to replace it."
                )

    def open(self) -> list[ReportSink]:
        """Open all receivers; each package is imported only if it is needed."""
        sinks: list[ReportSink] = []
        if self.rttm is not None:
            from earatlas.interchange.rttm import RttmSink

            sinks.append(RttmSink(self.rttm))
        if self.dcase is not None:
            from earatlas.interchange.dcase import DcaseSink

            sinks.append(DcaseSink(self.dcase))
        if self.osc is not None:
            from earatlas.interchange.osc import OscSink

            sinks.append(OscSink(*parse_udp_address(self.osc, "osc")))
        if self.lsl is not None:
            from earatlas.interchange.lsl import LslSink

            sinks.append(LslSink(self.lsl))
        return sinks


def parse_udp_address(text: str, argument: str) -> tuple[str, int]:
    """Parse `HOST:PORT`, or a port of this machine."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 <= int(port) <= 65_535:
        raise InputError(
            f"{argument} must be HOST:PORT or PORT, up to 65535, got '{text}'. For example: "
            f"--{argument} 9000."
        )
    return host or "127.0.0.1", int(port)
