"""Errors of the command-line parser as sentences: what is wrong, what was found, what to do.

Input: the exceptions of Typer. Output: the text of an `InputError`, like those of all other errors.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import typer

from earatlas.errors import abbreviate

__all__ = ["UsageError", "example_of", "usage_sentence"]

# The base class of all errors of the parser, which Typer does not export.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

# Rule for each type of error of pydantic, with the values that its context names.
_RULES = {
    "int_parsing": "a whole number",
    "float_parsing": "a number",
    "greater_than_equal": "at least {ge:g}",
    "less_than_equal": "at most {le:g}",
}


def usage_sentence(error: Any, command: Any, path: str) -> str:
    """Return the sentence for an error; `path` is the name of the command, "earatlas learn"."""
    if hasattr(error, "possibilities"):  # NoSuchOption
        similar = error.possibilities or get_close_matches(error.option_name, _options(command))
        remedy = f"Did you mean {similar[0]}?" if similar else f"See {path} --help."
        option = abbreviate(error.option_name)
        return f"options must be those of `{path}`, got '{option}'. {remedy}"
    if hasattr(error, "option_name"):  # BadOptionUsage
        if "not take" in error.message:
            return f"{error.option_name} must be used without a value, got one. Remove it."
        return f"{error.option_name} must have its value, got none. See {path} --help."
    if hasattr(error, "param_type"):  # MissingParameter
        return f"{_name(error.param)} must be given, got none. {example_of(command, path)}"
    if getattr(error, "param", None) is None:
        return f"{error.format_message()} See {path} --help."
    details: list[Any] = getattr(error.__cause__, "errors", list)()
    if not details:
        message = error.message.removeprefix("Value error, ").rstrip(".")
        return f"{_name(error.param)} must be usable, got an error ({message}). See {path} --help."
    value = abbreviate(str(details[0]["input"]))
    return f"{_name(error.param)} must be {_rule(details[0])}, got '{value}'. See {path} --help."


def _rule(details: dict[str, Any]) -> str:
    """Return which rule a value violates.

    The cause is a ValidationError of pydantic, whose own text names no option and no value.
    """
    if details["type"] in _RULES:
        return _RULES[details["type"]].format(**details.get("ctx", {}))
    _, _, choices = str(details["msg"]).rstrip(".").partition(" is not one of ")
    return f"one of {choices}" if choices else f"valid ({details['msg']})"


def example_of(command: Any, path: str) -> str:
    """Return a remedy with the first example of the help of a command."""
    lines = (command.epilog or "").splitlines()
    example = next((line for line in lines if line.startswith("earatlas ")), None)
    return f"See {path} --help." if example is None else f"For example: {example}."


def _options(command: Any) -> list[str]:
    """Return the names of the options of a command."""
    return [option for param in command.params for option in param.opts if option.startswith("-")]


def _name(param: Any) -> str:
    """Return the longest name of an option, or the last word of the metavar of an argument."""
    names = [name for name in param.opts if name.startswith("-")]
    return max(names, key=len) if names else str(param.metavar or param.name).split()[-1]
