"""What a user can get wrong, and how it is said.

Every message follows one wording: `<argument> must <rule>, got <value>. <what to do>.`
The command line turns these, and only these, into one sentence and exit code 2; anything else
that is raised is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["EaratlasWarning", "InputError", "existing_file", "missing_extra"]


class InputError(ValueError):
    """The input cannot be used as it is; the message says why and what to do."""


class EaratlasWarning(UserWarning):
    """The input was used, but the answer may suffer; the message says how."""


def existing_file(path: str | Path, what: str) -> Path:
    """The path, if it names a file; `what` is what the caller needs it for."""
    path = Path(path)
    try:
        if path.is_dir():
            raise InputError(f"{what} must be a file, got the folder '{path}'. Name a file in it.")
        found = path.exists()
    except OSError as error:  # such as a name that is too long for the file system
        raise InputError(
            f"{what} must be an existing file, got '{path}' ({error.strerror}). Check the name."
        ) from error
    if not found:
        raise InputError(f"{what} must be an existing file, got '{path}'. Check the name.")
    return path


def missing_extra(extra: str, package: str) -> InputError:
    """The error for a feature whose optional dependency is not installed."""
    return InputError(
        f"This needs the package {package}, which is not installed. "
        f"Install it with: pip install 'earatlas[{extra}]'."
    )
