"""Errors and warnings about user input, and helpers for their messages.

Every message has one form: `<argument> must <rule>, got <value>. <remedy>.` The command line
prints an `InputError`, and nothing else, as one sentence with exit code 2. Any other exception is
a bug in this package and keeps its traceback.

Messages quote names and values from untrusted files. Characters that control a terminal are
escaped (`sanitize`) and long values are shortened (`abbreviate`).
"""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "EaratlasWarning",
    "InputError",
    "MissingExtraError",
    "SettingHint",
    "abbreviate",
    "check_path",
    "exceeded_limit",
    "existing_file",
    "missing_extra",
    "sanitize",
]

_MAX_VALUE_LENGTH = 200  # characters of a quoted name or value
_MAX_MESSAGE_LENGTH = 900  # characters; the messages of this package have at most 600
# Quoted values (the opening quote follows a space or a parenthesis), and words without spaces.
_LONG_VALUES = tuple(
    re.compile(pattern % (_MAX_VALUE_LENGTH + 1))
    for pattern in (r"(?:(?<=\s')|(?<=\('))[^']{%d,}(?=')", r"\S{%d,}")
)
# Unicode categories that are escaped: control characters, format characters (such as
# right-to-left overrides), surrogates (bytes of file names that are not UTF-8), and line and
# paragraph separators.
_CONTROL_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")


def sanitize(text: str, *, keep: str = "") -> str:
    r"""Escape the characters that control a terminal, except those in `keep`.

    >>> sanitize("\x1b[2J")
    '\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(
        c if c in keep or unicodedata.category(c) not in _CONTROL_CATEGORIES else _escape(c)
        for c in text
    )


def _escape(character: str) -> str:
    """Return a character as a Python escape sequence; a surrogate stands for a non-UTF-8 byte."""
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


def abbreviate(text: str, max_length: int = _MAX_VALUE_LENGTH) -> str:
    """Return the text, with its middle left out if it is longer than `max_length` characters."""
    if len(text) <= max_length:
        return text
    part = (max_length - 3) // 2
    return f"{text[:part]} … {text[-part:]}"


def _clean_message(message: object) -> str:
    """Return a message with its quoted values sanitized and shortened."""
    text = sanitize(str(message))
    for pattern in _LONG_VALUES:
        text = pattern.sub(lambda match: abbreviate(match.group()), text)
    return abbreviate(text, _MAX_MESSAGE_LENGTH)


@dataclass(frozen=True)
class SettingHint:
    """The setting that applies the remedy of a message, in Python and on the command line.

    >>> str(SettingHint("channels=(2, 3)", "--channels 2 3"))
    'Python: channels=(2, 3); command line: --channels 2 3.'
    """

    python: str
    option: str

    def __str__(self) -> str:
        return f"Python: {self.python}; command line: {self.option}."


class InputError(ValueError):
    """Raised when the input cannot be used; the message says why and what to do.

    It is a `ValueError`. The message has the form
    ``<argument> must <rule>, got <value>. <remedy>.``

    Parameters
    ----------
    message : object, default=""
        The message. Control characters in it are escaped, and long quoted values are shortened.
    hint : SettingHint or None, default=None
        The setting that applies the remedy. The text of the error ends with it; `message` is
        the text without it, for interfaces that have neither arguments nor options.

    Examples
    --------
    >>> import earatlas as ea
    >>> try:
    ...     ea.read_audio("missing.wav")
    ... except ea.InputError as error:
    ...     print(error)
    recording must be an existing file, got 'missing.wav'. Check the name.

    """

    def __init__(self, message: object = "", *, hint: SettingHint | None = None) -> None:
        self.message = _clean_message(message)
        super().__init__(f"{self.message} {hint}" if hint else self.message)


class MissingExtraError(InputError, ImportError):
    """Raised when a feature needs an optional dependency that is not installed.

    It is both an `InputError`, so the command line prints it as one sentence, and an
    `ImportError`, so code that tests for optional dependencies catches it.

    Parameters
    ----------
    message : object, default=""
        The message, which names the extra to install.
    name : str or None, default=None
        The missing package, as in `ImportError.name`.

    Examples
    --------
    >>> try:
    ...     raise MissingExtraError("This needs the package slab.", name="slab")
    ... except ImportError as error:
    ...     print(error.name)
    slab

    """

    def __init__(self, message: object = "", *, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


class EaratlasWarning(UserWarning):
    """Warning that the input was used, but that the result may be affected; the message says how.

    Parameters
    ----------
    message : object, default=""
        The message. Control characters in it are escaped, and long quoted values are shortened.
    hint : SettingHint or None, default=None
        The setting that changes what the warning is about, as for `InputError`.

    Examples
    --------
    Turn all warnings of this package into errors:

    >>> import warnings
    >>> import earatlas as ea
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", ea.EaratlasWarning)

    """

    def __init__(self, message: object = "", *, hint: SettingHint | None = None) -> None:
        self.message = _clean_message(message)
        super().__init__(f"{self.message} {hint}" if hint else self.message)


def check_path(path: str | os.PathLike[str]) -> Path:
    """Return a path as a `Path`; raise an `InputError` if it is neither a string nor a path."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(
            f"path must be a string or a path, got {abbreviate(repr(path))}. Name a file or folder."
        )
    return Path(path)


def existing_file(path: str | Path, argument: str) -> Path:
    """Return the path if it names a regular file; else raise an `InputError` about `argument`.

    Pipes and devices are refused: they may never end, and they cannot be read twice.
    """
    path = check_path(path)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise InputError(
            f"{argument} must be an existing file, got '{path}'. Check the name."
        ) from None
    except (OSError, ValueError) as error:  # the name is too long, or contains a null character
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{argument} must be an existing file, got '{path}' ({reason}). Check the name."
        ) from error
    if stat.S_ISDIR(mode):
        raise InputError(f"{argument} must be a file, got the folder '{path}'. Name a file in it.")
    if not stat.S_ISREG(mode):
        raise InputError(
            f"{argument} must be a file, got the pipe or device '{path}'. Save it to a file first."
        )
    return path


def missing_extra(extra: str, package: str) -> MissingExtraError:
    """Return the error for a missing optional dependency: `package`, installed by `extra`."""
    return MissingExtraError(
        f"This needs the package {package}, which is not installed. "
        f"Install it with: pip install 'earatlas[{extra}]'.",
        name=package,
    )


def exceeded_limit(error: BaseException) -> str | None:
    """Return a sentence about a limit of the system that was exceeded; None for other errors."""
    if isinstance(error, MemoryError):
        return (
            "memory must suffice for the input, got less. Increase its limit (ulimit -v), close "
            "other programs, or use a shorter recording or a head with fewer directions."
        )
    if not isinstance(error, OSError):
        return None
    match error.errno:
        case errno.ENOSPC:
            return "output must have room, got a full disk. Free some space."
        case errno.ENAMETOOLONG:
            path = os.fsencode(error.filename or "")
            longest = max(path.split(os.fsencode(os.sep)), key=len)
            if len(longest) <= 255:
                return (
                    f"paths must be shorter than 4096 bytes, got one with {len(path)}. "
                    "Use fewer or shorter folders."
                )
            return (
                "names of files and folders must be at most 255 bytes long, got "
                f"'{abbreviate(os.fsdecode(longest))}' with {len(longest)}. "
                "Use a shorter name; results have longer names than their recording."
            )
        case errno.EMFILE | errno.ENFILE:
            return (
                "the limit of open files must be larger, got too many open files. Increase it "
                "(ulimit -n), or reduce --jobs."
            )
    return None
