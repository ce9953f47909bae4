"""The public API is documented in the numpydoc format: sections, parameter names and examples."""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from types import FunctionType
from typing import Any

import pytest

import earatlas as ea

FUNCTIONS = [name for name in ea.__all__ if inspect.isfunction(getattr(ea, name))]
CLASSES = [name for name in ea.__all__ if inspect.isclass(getattr(ea, name))]
HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)


def sections(documented: Any) -> dict[str, str]:
    """Return the numpydoc sections of a docstring, from heading to text."""
    text = inspect.cleandoc(documented.__doc__ or "")
    parts = HEADING.split(text)
    return {"Summary": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def described(section: str) -> list[str]:
    """Return the names that a Parameters or Attributes section describes, in order."""
    entries = re.findall(r"^(\*{0,2}\w+(?:, \w+)*) : ", section, re.MULTILINE)
    return [name.strip("*") for entry in entries for name in entry.split(", ")]


def parameters(function: Callable[..., Any]) -> list[str]:
    """Return the names of the public parameters of a function or method, without self and cls."""
    names = inspect.signature(function).parameters
    return [name for name in names if name not in {"self", "cls"} and not name.startswith("_")]


def problems(function: Callable[..., Any], *, example: bool) -> Iterator[str]:
    """Yield what the docstring of a function or method lacks."""
    found = sections(function)
    if not found["Summary"]:
        yield "no summary"
    if described(found.get("Parameters", "")) != parameters(function):
        yield f"Parameters must describe {', '.join(parameters(function)) or 'nothing'}"
    returned = inspect.signature(function).return_annotation
    if returned not in {None, "None"} and not {"Returns", "Yields"} & set(found):
        yield f"no Returns or Yields ({returned})"
    if example and ">>> " not in found.get("Examples", ""):
        yield "no Examples"


def class_problems(documented: type) -> Iterator[str]:
    """Yield what the docstrings of a class and of its public methods and properties lack."""
    found = sections(documented)
    if not {"Parameters", "Attributes"} & set(found):
        yield "no Parameters or Attributes"
    if "Parameters" in found and described(found["Parameters"]) != parameters(documented):
        yield f"Parameters must describe {', '.join(parameters(documented))}"
    if is_dataclass(documented):
        names = described(found.get("Parameters", "") + found.get("Attributes", ""))
        public = [field.name for field in fields(documented) if not field.name.startswith("_")]
        if missing := [name for name in public if name not in names]:
            yield f"Parameters or Attributes must describe {', '.join(missing)}"
    if ">>> " not in found.get("Examples", ""):
        yield "no Examples"
    for owner in documented.__mro__:
        if not owner.__module__.startswith("earatlas"):
            continue
        for name, member in vars(owner).items():
            if name.startswith("_"):
                continue
            if isinstance(member, property | cached_property):
                if not (member.__doc__ or "").strip().partition("\n")[0].endswith("."):
                    yield f"{name}: no summary of one sentence"
            elif isinstance(member, FunctionType | classmethod | staticmethod):
                function = member if isinstance(member, FunctionType) else member.__func__
                for problem in problems(function, example=False):
                    yield f"{owner.__name__}.{name}: {problem}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_is_documented(name: str) -> None:
    """A public function describes all its parameters and its result, and has an example."""
    assert list(problems(getattr(ea, name), example=True)) == []


@pytest.mark.parametrize("name", CLASSES)
def test_class_is_documented(name: str) -> None:
    """A public class describes its parameters or attributes and its methods; it has an example."""
    assert list(class_problems(getattr(ea, name))) == []


def test_every_public_name_is_checked() -> None:
    """All public names are functions or classes."""
    assert sorted([*FUNCTIONS, *CLASSES]) == sorted(ea.__all__)


def documented(first: int, *, second: float = 0.0) -> float:
    """Return the sum.

    Parameters
    ----------
    first : int
        A number.
    second : float, default 0.0
        Another number.

    Returns
    -------
    float
        The sum.

    Examples
    --------
    >>> documented(1)
    1.0
    """
    return first + second


def undocumented(first: int, *, second: float = 0.0) -> float:  # noqa: D417
    """Return the sum.

    Parameters
    ----------
    second : float, default 0.0
        A number.
    """
    return first + second


def test_gaps_of_functions_are_detected() -> None:
    """Missing parameters, results and examples are detected; without gaps there are none."""
    assert list(problems(documented, example=True)) == []
    assert list(problems(undocumented, example=True)) == [
        "Parameters must describe first, second",
        f"no Returns or Yields ({float})",
        "no Examples",
    ]


@dataclass(frozen=True)
class Undocumented:
    """A number.

    Parameters
    ----------
    other : int
        No field of the class.
    """

    number: int

    @property
    def double(self) -> int:
        """twice"""  # noqa: D400, D415
        return 2 * self.number

    def plus(self, other: int) -> int:
        """Return the sum."""
        return self.number + other


def test_gaps_of_classes_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong parameters, missing examples, and gaps of properties and methods are detected."""
    monkeypatch.setattr(Undocumented, "__module__", "earatlas.example")
    assert list(class_problems(Undocumented)) == [
        "Parameters must describe number",
        "Parameters or Attributes must describe number",
        "no Examples",
        "double: no summary of one sentence",
        "Undocumented.plus: Parameters must describe other",
        f"Undocumented.plus: no Returns or Yields ({int})",
    ]
