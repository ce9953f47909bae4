"""Reading of CSV tables with required columns and numeric cells.

Columns that are not required are ignored. Errors are `InputError`s that name the line.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from earatlas.errors import InputError

__all__ = ["TableRow", "read_header", "read_table"]


@dataclass(frozen=True)
class TableRow:
    """One row of a table, with its location for error messages."""

    cells: dict[str, Any]  # by column name
    line: int
    path: Path
    argument: str  # name of the table in error messages

    def numbers(self, *columns: str) -> tuple[float, ...]:
        """Return the values of these columns as numbers."""
        try:
            return tuple(float(self.cells[name]) for name in columns)
        except (TypeError, ValueError):
            values = " and ".join(repr(self.cells[name]) for name in columns)
            raise InputError(
                f"{self.argument} must have numbers for {' and '.join(columns)}, got {values} in "
                f"line {self.line} of '{self.path}'. Correct that line."
            ) from None


def read_table(path: Path, columns: Sequence[str], argument: str) -> Iterator[TableRow]:
    """Yield the rows of a CSV file that has these columns; `argument` names it in errors."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as handle:
            reader = csv.DictReader(handle)
            reader.fieldnames = _check_header(reader.fieldnames or [], columns, path, argument)
            for cells in reader:
                _check_length(cells, reader.line_num, path, argument)
                yield TableRow(cells, reader.line_num, path, argument)
    except (csv.Error, OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{argument} must be a readable text file, got '{path}' ({error}). Save it as CSV."
        ) from error


def read_header(path: Path, argument: str) -> list[str]:
    """Return the names of the columns of a CSV file in lower case."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as handle:
            return _check_header(next(csv.reader(handle), []), (), path, argument)
    except (csv.Error, OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{argument} must be a readable text file, got '{path}' ({error}). Save it as CSV."
        ) from error


def _check_header(
    header: Sequence[str], required: Sequence[str], path: Path, argument: str
) -> list[str]:
    """Return the column names in lower case; raise an `InputError` if a required one is missing."""
    columns = [name.strip().lower() for name in header]
    missing = [name for name in required if name not in columns]
    if missing:
        wrong_delimiter = len(columns) == 1 and any(mark in columns[0] for mark in ";\t")
        remedy = "Separate columns by commas" if wrong_delimiter else f"Add: {', '.join(missing)}"
        raise InputError(
            f"{argument} must have the columns {', '.join(required)}, got "
            f"{', '.join(columns) or 'none'} in '{path}'. {remedy}."
        )
    return columns


def _check_length(cells: dict[Any, Any], line: int, path: Path, argument: str) -> None:
    """Raise an `InputError` if a row has more cells than the header."""
    if extra := cells.get(None):
        raise InputError(
            f"{argument} must have as many cells in each row as in the header, got {len(extra)} "
            f"more in line {line} of '{path}'. Use decimal points, not commas, and quote names "
            "that contain commas."
        )
