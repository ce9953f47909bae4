"""What several test files share."""

import subprocess

_BESIDE = ("warning:", "begun:")  # lines that are no error


def refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit code 2, nothing on standard output, one line on standard error with these words."""
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if not line.startswith(_BESIDE)]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("error: ")
    for word in words:
        assert word in lines[0]
    assert lines[0].endswith((".", ").")), "a sentence that says what to do"
