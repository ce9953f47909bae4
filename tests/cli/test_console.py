"""Tests of the lines that commands print."""

import io

import pytest

from earatlas.cli import console

LINE = "  people.wav: azimuth 50.3° (50° left, front), 90 % within 32°, out/a-long-name_source1.wav"


@pytest.mark.parametrize("width", [34, 44, 80])
def test_terminals_get_lines_wrapped_between_words(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """No word and no percentage is broken; further lines are indented."""
    written = io.StringIO()
    made = type(console.out)(file=written, force_terminal=True, width=width)
    monkeypatch.setattr(console, "out", made)
    console.print_line(LINE)
    rows = written.getvalue().rstrip("\n").split("\n")
    assert len(rows) > 1
    assert all(len(row) <= width for row in rows)
    assert all(row.startswith(" " * 6) for row in rows[1:])
    assert " ".join(" ".join(rows).split()) == LINE.strip()
    assert not any(row.lstrip().startswith("%") for row in rows)


def test_files_get_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line in a file or a pipe is never wrapped."""
    written = io.StringIO()
    monkeypatch.setattr(console, "out", type(console.out)(file=written, width=30))
    console.print_line(LINE)
    assert written.getvalue() == LINE + "\n"
