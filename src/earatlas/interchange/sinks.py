"""Interface of everything that receives the reports of a live stream, and growing text files."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Protocol

from earatlas.errors import check_path
from earatlas.files import write_error
from earatlas.streaming.report import LiveReport

__all__ = ["GrowingText", "ReportSink"]


class ReportSink(Protocol):
    """A file or a connection that receives every report of a stream."""

    def send(self, report: LiveReport) -> None:
        """Take the report of one block."""

    def close(self) -> None:
        """Write what is still due, and close the file or the connection."""


class GrowingText:
    """A text file whose complete lines are on the disk after every `write`."""

    def __init__(self, path: str | Path) -> None:
        self.path = check_path(path)
        try:
            self._file: IO[str] = self.path.open("w", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise write_error(self.path, "output", error) from error

    def write(self, lines: list[str]) -> None:
        """Append lines, which have no line breaks."""
        try:
            self._file.writelines(f"{line}\n" for line in lines)
            self._file.flush()
        except OSError as error:
            raise write_error(self.path, "output", error) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()
