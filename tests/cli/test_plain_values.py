"""Values of the command line that are converted without pydantic, against Typer's conversion."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.core import TyperArgument, TyperOption
from typer.main import get_command

from earatlas.cli import plain_values
from earatlas.cli.app import Command, command_app
from earatlas.errors import InputError


class Colour(StrEnum):
    """A choice."""

    red = "red"
    blue = "blue"


def parsed(cls: type[Any], arguments: list[str]) -> dict[str, Any]:
    """Return the values that a command of this class receives."""
    received: dict[str, Any] = {}
    app = command_app()

    @app.command(cls=cls)
    def command(
        files: list[Path],
        name: str = "none",
        count: int = 3,
        ratio: float = 0.5,
        level: Annotated[int, typer.Option(min=0, max=9)] = 1,
        folder: Path | None = None,
        existing: Annotated[Path | None, typer.Option(exists=True)] = None,
        channels: tuple[int, int] = (0, 1),
        at: Annotated[list[str] | None, typer.Option()] = None,
        colour: Colour = Colour.red,
        half: Annotated[float | None, typer.Option(parser=lambda text: float(text) / 2)] = None,
        force: Annotated[bool, typer.Option("--force")] = False,
    ) -> None:
        received.update(locals())

    get_command(app).main(arguments, standalone_mode=False)
    received.pop("received", None)
    return received


@pytest.mark.parametrize(
    "arguments",
    [
        ["a.wav"],
        ["a.wav", "b c.wav", "--force"],
        ["a", "--name", "été", "--count", "-12", "--ratio", "3", "--level", "9"],
        ["a", "--name", "", "--ratio", "-1.", "--folder", "", "--colour", "blue"],
        ["a", "--ratio", "1e-3", "--count", " 7", "--channels", "3", "2", "--half", "5"],
        ["a", "--ratio", "nan", "--at", "1:2", "--at", "3:4", "--existing", os.curdir],
        ["a", "--ratio", "1_0"],
        ["a", "--count", "1_000"],
        ["a", "--count", "007", "--ratio", "0012.50"],
    ],
)
def test_same_values_as_typer(arguments: list[str]) -> None:
    """Values and their types are those of Typer."""
    own, typers = parsed(Command, arguments), parsed(typer.core.TyperCommand, arguments)
    assert repr(own) == repr(typers)
    assert own["files"]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["a", "--count", "2.5"],
        ["a", "--count", "٣x"],
        ["a", "--level", "10"],
        ["a", "--existing", "missing"],
        ["a", "--colour", "green"],
        ["a", "--channels", "1", "x"],
        ["a", "--half", "x"],
    ],
)
def test_wrong_values_are_refused(arguments: list[str]) -> None:
    """What Typer refuses is refused."""
    for cls in (Command, typer.core.TyperCommand):
        with pytest.raises(Exception, match=r".") as error:
            parsed(cls, arguments)
        assert type(error.value).__name__ in {"BadParameter", "MissingParameter", "InputError"}


def test_unreadable_paths_are_left_to_typer(monkeypatch: pytest.MonkeyPatch) -> None:
    """An existing path that cannot be read is refused by Typer."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match=r"files must be usable, .* is not readable"):
        parsed(Command, [os.curdir])
    assert parsed(Command, ["missing"])["files"] == [Path("missing")]


def test_usual_values_need_no_conversion_by_typer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words, paths, plain numbers, flags and defaults do not reach Typer's conversion."""

    def fail(self: Any, *_: object) -> None:
        pytest.fail(f"{self.name} was converted by Typer")

    for cls in (TyperArgument, TyperOption):
        monkeypatch.setattr(cls, "process_value", fail)
    usual = ["a", "b", "--name", "x", "--count", "4", "--ratio", "-0.25", "--folder", "o"]
    assert parsed(Command, [*usual, "--force"])["files"] == [Path("a"), Path("b")]
    with pytest.raises(pytest.fail.Exception, match="level"):
        parsed(Command, ["a", "--level", "2"])
    assert plain_values.PlainOption.process_value is not TyperOption.process_value
