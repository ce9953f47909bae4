"""The commands by name, each imported when it is called, and how their help looks.

`earatlas --help` shows the sentences below and imports no command. A module of this package that is
named in `COMMANDS` has an `app`, a `typer.Typer` of one command whose docstring opens with the same
sentence.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

import earatlas
from earatlas.cli.console import say

__all__ = ["COMMANDS", "Command", "app", "examples", "one_command"]

COMMANDS = {
    "info": "Say what a head has, and what cannot be learned from it; or what an atlas holds.",
    "cues": "Say how much of a recording carries interaural cues, and draw them.",
    "learn": "Learn a head: its charts, held-out errors, and how sure it may be.",
    "localize": "Say where the one sound of each recording comes from, and how sure that is.",
    "listen": "Say where a live sound comes from, again and again, until interrupted.",
    "separate": "Write each sound of each recording to a file of its own, and say where it is.",
    "manifold": "Unroll the surface of each kind of cue, score it against the directions, and "
    "draw it.",
    "simulate": "Write a scene with known truth: mixture, each source's image, and scene.json.",
    "demo": "Learn the built-in simulated head, let two talkers speak at once, and take them "
    "apart.",
    "studio": "Look, listen and try in the browser: drop a recording, see where everything is, "
    "hear it.",
    "reproduce": "Run the paper's experiments and put paper and ours side by side on a page.",
}


def one_command() -> typer.Typer:
    """The app of a module that has one command."""
    return typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich"
    )


def examples(*lines: str) -> str:
    """The end of a command's help: a line an example, which can be copied."""
    return "\n".join(["Example:" if len(lines) == 1 else "Examples:", *lines])


class _Argument(TyperArgument):
    """An argument whose name says what it is; `<list[Path]>` beside it would say it to nobody."""

    def display_type_rich(self, ctx: Any) -> str | None:
        return None

    def get_usage_pieces(self, ctx: Any) -> list[str]:
        return [f"{self.metavar or self.name}{'' if self.nargs == 1 else '...'}"]


class _Plain:
    """Help without Python's names of types: of a flag there is nothing to be given."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if isinstance(param, TyperArgument):
                param.__class__ = _Argument  # typer has no other way to choose the class
            elif isinstance(param, TyperOption) and param.is_flag:
                param.metavar = ""
        return params


class Command(_Plain, TyperCommand):
    """A command of this package."""


class _Menu(_Plain, TyperGroup):
    """All commands: in a list by their sentences, and imported when one is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        return Command(cmd_name, help=COMMANDS[cmd_name])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and name is not None:
            command = get_command(import_module(f"earatlas.cli.{name}").app)
            command.name = name
        return name, command, rest


app = typer.Typer(
    cls=_Menu,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
    help="Learn how a head hears directions; localize and separate sounds with two microphones.",
    epilog="A head is a .sofa file, a .csv table of recordings, 'simulated' or 'kemar'.",
)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        say(f"earatlas {earatlas.__version__}")
        raise typer.Exit
