"""Tables in text files (CSV): a header with the columns that are asked for, and rows of numbers.

In: a file from anywhere. Out: the rows, each with its line, or an InputError that names the line.
Other columns are left alone.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from earatlas.errors import InputError

__all__ = ["Row", "table_rows"]


@dataclass(frozen=True)
class Row:
    """A row of a table, and where it stands."""

    cells: dict[str, Any]  # by column
    line: int
    path: Path
    what: str  # the table is called in errors

    def numbers(self, *columns: str) -> tuple[float, ...]:
        """The values of these columns."""
        try:
            return tuple(float(self.cells[name]) for name in columns)
        except (TypeError, ValueError):
            told = " and ".join(repr(self.cells[name]) for name in columns)
            raise InputError(
                f"{self.what} must have numbers for {' and '.join(columns)}, got {told} in line "
                f"{self.line} of '{self.path}'. Correct that line."
            ) from None


def table_rows(path: Path, columns: Sequence[str], what: str) -> Iterator[Row]:
    """The rows of a table with these columns; `what` it is called in errors, such as "yaw"."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as handle:
            reader = csv.DictReader(handle)
            reader.fieldnames = _columns(reader.fieldnames or [], columns, path, what)
            for cells in reader:
                _check_length(cells, reader.line_num, path, what)
                yield Row(cells, reader.line_num, path, what)
    except (csv.Error, OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{what} must be a readable text file, got '{path}' ({error}). Save it as CSV."
        ) from error


def _columns(header: Sequence[str], wanted: Sequence[str], path: Path, what: str) -> list[str]:
    columns = [name.strip().lower() for name in header]
    missing = [name for name in wanted if name not in columns]
    if missing:
        apart = len(columns) == 1 and any(mark in columns[0] for mark in ";\t")
        remedy = "Columns must be separated by commas" if apart else f"Add: {', '.join(missing)}"
        raise InputError(
            f"{what} must have the columns {', '.join(wanted)}, got "
            f"{', '.join(columns) or 'none'} in '{path}'. {remedy}."
        )
    return columns


def _check_length(cells: dict[Any, Any], line: int, path: Path, what: str) -> None:
    """Refuse a row of more cells than the header has: which of them is which is not known."""
    if more := cells.get(None):
        raise InputError(
            f"{what} must have as many cells in a row as in its header, got {len(more)} more in "
            f"line {line} of '{path}'. Write decimals with points, not commas, and put names that "
            "hold commas into quotation marks."
        )
