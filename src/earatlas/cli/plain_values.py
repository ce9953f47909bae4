"""Conversion of the usual values of the command line without pydantic.

Typer converts every value with pydantic, whose import takes as long as that of NumPy. Words, paths
and plain numbers need no such library. Everything else, and every value that is wrong, is left to
Typer, whose messages therefore stay the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

from typer.core import TyperArgument, TyperOption
from typer.models import ParameterInfo

__all__ = ["PlainArgument", "PlainOption"]

_INTEGER = re.compile(r"-?[0-9]{1,15}")
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{0,15})?")


class _UnusualValueError(Exception):
    """The value must be converted, or refused, by Typer."""


# The instances of Typer's classes get these classes, so that their layouts must be the same. They
# are not with a mixin.
class PlainArgument(TyperArgument):
    """Argument of a command whose usual values are converted without pydantic."""

    def process_value(self, ctx: Any, value: Any) -> Any:
        """Convert a value, here if it is a usual one, and else as Typer does."""
        return _process_value(self, ctx, value, super().process_value)


class PlainOption(TyperOption):
    """Option of a command whose usual values are converted without pydantic."""

    def process_value(self, ctx: Any, value: Any) -> Any:
        """Convert a value, here if it is a usual one, and else as Typer does."""
        return _process_value(self, ctx, value, super().process_value)


def _process_value(
    param: TyperArgument | TyperOption, ctx: Any, value: Any, by_typer: Callable[[Any, Any], Any]
) -> Any:
    """Convert a value, here if it is a usual one and otherwise by Typer; call the callback."""
    try:
        converted = _convert(param, value)
    except (_UnusualValueError, AttributeError):  # the latter in other versions of Typer
        return by_typer(ctx, value)
    return converted if param.callback is None else param.callback(ctx, param, converted)


def _convert(param: TyperArgument | TyperOption, value: Any) -> Any:
    """Return the converted value of a parameter; raise _UnusualValueError if Typer must do it."""
    annotation: Any = param.type_descriptor.annotation
    info = param.type_descriptor.parameter_info
    several = param.multiple or param.nargs == -1
    if value is None:
        if param.required:
            raise _UnusualValueError
        return () if several else None
    if not several and not _has_text(value):
        return value  # the default of the function
    if info.parser is not None or param.nargs > 1:
        raise _UnusualValueError
    if not several:
        return _one_value(annotation, info, value)
    if get_origin(annotation) is not list or not value or isinstance(value, str):
        raise _UnusualValueError
    return [_one_value(get_args(annotation)[0], info, item) for item in value]


def _has_text(value: Any) -> bool:
    """Whether a value, or a part of it, is text that was typed; a choice is a string, too."""
    parts = value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(part, str) and not isinstance(part, Enum) for part in parts)


def _one_value(annotation: Any, info: ParameterInfo, text: Any) -> Any:
    """Return the converted text of one value."""
    convert: Callable[[str], Any] | None = None
    if isinstance(text, str):
        if annotation is str:
            convert = str
        elif annotation is Path and _is_plain_path(info, text):
            convert = Path
        elif info.min is None and info.max is None:
            if annotation is int and _INTEGER.fullmatch(text):
                convert = int
            elif annotation is float and _NUMBER.fullmatch(text):
                convert = float
    if convert is None:
        raise _UnusualValueError
    return convert(text)


def _is_plain_path(info: ParameterInfo, text: str) -> bool:
    """Whether a path has no rules except that an existing file is readable, and observes it."""
    rules = (info.exists, info.writable, info.resolve_path, not info.file_okay, not info.dir_okay)
    return not any(rules) and (os.access(text, os.R_OK) or not os.path.exists(text))
