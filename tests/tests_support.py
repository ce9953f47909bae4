"""Helpers that several test files share."""

import subprocess

_OTHER_LINES = ("warning:", "started:")  # lines of standard error that are not errors


def refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    """Assert exit code 2, an empty standard output, and one line of error with these words."""
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if not line.startswith(_OTHER_LINES)]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("error: ")
    for word in words:
        assert word in lines[0]
    assert lines[0].endswith((".", ").", "?")), "the message must be a sentence with a remedy"
