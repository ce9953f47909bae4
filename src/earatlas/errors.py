"""What a user can get wrong, and how it is said.

Every message follows one wording: `<argument> must <rule>, got <value>. <what to do>.`
The command line turns these, and only these, into one sentence and exit code 2; anything else
that is raised is a bug of ours and keeps its traceback.

A message repeats names and values that come from anywhere: what would steer a terminal is shown,
not sent (`harmless`), and what is long is shortened (`brief`).
"""

from __future__ import annotations

import re
import stat
import unicodedata
from pathlib import Path

__all__ = ["EaratlasWarning", "InputError", "brief", "existing_file", "harmless", "missing_extra"]

_LONGEST_VALUE = 200  # letters of a name or value that a message repeats
_LONGEST_MESSAGE = 900  # our own sentences have at most 600
# What stands in quotation marks, of which the first follows a space, and words without an end.
_LONG = tuple(
    re.compile(pattern % (_LONGEST_VALUE + 1))
    for pattern in (r"(?:(?<=\s')|(?<=\('))[^']{%d,}(?=')", r"\S{%d,}")
)
# Control, format (writing from right to left), surrogates (bytes of names that are no UTF-8) and
# separators of lines and paragraphs.
_STEERING = ("Cc", "Cf", "Cs", "Zl", "Zp")


def harmless(text: str, *, keep: str = "") -> str:
    r"""The text with what steers a terminal spelt out; letters in `keep` stay.

    >>> harmless("\x1b[2J")
    '\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(
        c if c in keep or unicodedata.category(c) not in _STEERING else _spelt(c) for c in text
    )


def _spelt(letter: str) -> str:
    """The letter as it is written in Python; of a byte that is no UTF-8, the byte."""
    if "\udc80" <= letter <= "\udcff":
        return f"\\x{ord(letter) - 0xDC00:02x}"
    return letter.encode("unicode_escape").decode()


def brief(text: str, longest: int = _LONGEST_VALUE) -> str:
    """The text, its middle left out where it is longer than that."""
    if len(text) <= longest:
        return text
    part = (longest - 3) // 2
    return f"{text[:part]} … {text[-part:]}"


def _sentence(message: object) -> str:
    """A message of ours whose foreign parts cannot do harm and are not long."""
    text = harmless(str(message))
    for long in _LONG:
        text = long.sub(lambda found: brief(found.group()), text)
    return brief(text, _LONGEST_MESSAGE)


class InputError(ValueError):
    """The input cannot be used as it is; the message says why and what to do."""

    def __init__(self, message: object = "") -> None:
        super().__init__(_sentence(message))


class EaratlasWarning(UserWarning):
    """The input was used, but the answer may suffer; the message says how."""

    def __init__(self, message: object = "") -> None:
        super().__init__(_sentence(message))


def existing_file(path: str | Path, what: str) -> Path:
    """The path, if it names a file; `what` is what the caller needs it for.

    A pipe or a device is no file: it may have no end, and cannot be read twice.
    """
    path = Path(path)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise InputError(
            f"{what} must be an existing file, got '{path}'. Check the name."
        ) from None
    except (OSError, ValueError) as error:  # a name that is too long, or has a zero byte
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{what} must be an existing file, got '{path}' ({reason}). Check the name."
        ) from error
    if stat.S_ISDIR(mode):
        raise InputError(f"{what} must be a file, got the folder '{path}'. Name a file in it.")
    if not stat.S_ISREG(mode):
        raise InputError(
            f"{what} must be a file, got the pipe or device '{path}'. Save it to a file first."
        )
    return path


def missing_extra(extra: str, package: str) -> InputError:
    """The error for a feature whose optional dependency is not installed."""
    return InputError(
        f"This needs the package {package}, which is not installed. "
        f"Install it with: pip install 'earatlas[{extra}]'."
    )
