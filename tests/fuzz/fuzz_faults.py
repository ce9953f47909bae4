"""Formats whose mutants fail in every way that the guard must detect."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from fuzz_mutators import Format

from earatlas.errors import InputError

__all__ = ["FORMATS"]


class _ControlSequenceError(InputError):
    """An error whose message would clear the terminal."""

    def __str__(self) -> str:
        return "\x1b[2J"


def _traceback() -> None:
    raise KeyError("x")


def _message() -> None:
    raise _ControlSequenceError


def _large() -> None:
    _ = b"x" * (400 << 20)


def _fault(name: str, fail: Callable[[], object]) -> Format:
    def use(path: Path) -> None:
        if path.read_bytes() == b"bad":
            fail()

    return Format(name, "x", lambda _: [b"good"], lambda *_: b"bad", use)


FORMATS = {
    name: _fault(name, fail)
    for name, fail in (
        ("traceback", _traceback),
        ("crash", os.abort),
        ("hang", lambda: time.sleep(60)),
        ("large", _large),
        ("prints", lambda: os.write(1, b"message of a library")),
        ("message", _message),
    )
}
