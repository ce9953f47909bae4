"""CSV tables: required columns, numeric cells, and errors that name the line."""

from pathlib import Path

import pytest

from earatlas.csv_tables import read_table
from earatlas.errors import InputError


def write(folder: Path, text: str) -> Path:
    """Write a table."""
    path = folder / "table.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_rows_and_numbers(tmp_path: Path) -> None:
    """Column names ignore case, spaces and a byte order mark; other columns are ignored."""
    path = write(tmp_path, '\ufeffYaw, TIME ,note\n1.5,2,"a, b"\n-3,4e1,\n')
    rows = list(read_table(path, ("time", "yaw"), "yaw"))
    assert [row.numbers("time", "yaw") for row in rows] == [(2.0, 1.5), (40.0, -3.0)]
    assert [row.line for row in rows] == [2, 3]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time\n1\n", "yaw must have the columns time, yaw, got time in .* Add: yaw."),
        ("time;yaw\n1;2\n", "Separate columns by commas."),
        ("", "got none in"),
        ("time,yaw\n1,2\n1,2,5\n", "got 1 more in line 3 of"),
        ("time,yaw\n1,left\n", "numbers for time and yaw, got '1' and 'left' in line 2 of"),
        ("time,yaw\n1\n", "got '1' and None in line 2 of"),
    ],
)
def test_bad_tables(tmp_path: Path, text: str, words: str) -> None:
    """The message has the fault, its line and a remedy."""
    path = write(tmp_path, text)
    with pytest.raises(InputError, match=words):
        _ = [row.numbers("time", "yaw") for row in read_table(path, ("time", "yaw"), "yaw")]


def test_files_that_are_not_text(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 are refused."""
    path = tmp_path / "table.csv"
    path.write_bytes(b"time,yaw\n\xff\xfe\n")
    with pytest.raises(InputError, match="yaw must be a readable text file"):
        list(read_table(path, ("time", "yaw"), "yaw"))
