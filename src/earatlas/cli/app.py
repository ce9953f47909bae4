"""The list of commands, which are imported when they are called, and the layout of their help.

`earatlas --help` shows the summaries below and imports no command. Each module of this package
that is named in `COMMANDS` has an `app`, a `typer.Typer` with one command whose docstring starts
with the same summary.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

import earatlas
from earatlas.cli import paused_garbage_collection
from earatlas.cli.console import print_line
from earatlas.cli.plain_values import PlainArgument, PlainOption
from earatlas.cli.usage_sentences import UsageError, example_of, usage_sentence
from earatlas.errors import InputError, abbreviate

__all__ = ["COMMANDS", "Command", "app", "command_app", "examples"]

COMMANDS = {
    "info": "Describe a head or an atlas.",
    "cues": "Measure the interaural cues of a recording, and plot them.",
    "learn": "Learn an atlas from a head.",
    "adapt": "Adapt an atlas of many heads to a listener.",
    "fit": "Find which of several heads made a recording.",
    "localize": "Estimate the direction of the sound in each recording.",
    "listen": "Localize or separate live sound.",
    "separate": "Separate each recording into its sources, and localize them.",
    "manifold": "Embed the interaural cues of a head in 3D, and score the embeddings.",
    "simulate": "Render a scene with known ground truth.",
    "demo": "Separate two simulated talkers; needs no data.",
    "studio": "Localize and separate recordings in the browser.",
    "reproduce": "Run the experiments of the paper, and compare the results.",
}


def command_app() -> typer.Typer:
    """Return the app of a module with one command."""
    return typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich"
    )


def examples(*lines: str) -> str:
    """Return the end of a command's help: examples to copy, one per line."""
    return "\n".join(["Example:" if len(lines) == 1 else "Examples:", *lines])


class _Argument(PlainArgument):
    """Argument whose help shows its name without a Python type such as `<list[Path]>`."""

    def display_type_rich(self, ctx: Any) -> str | None:
        return None

    def get_usage_pieces(self, ctx: Any) -> list[str]:
        return [f"{self.metavar or self.name}{'' if self.nargs == 1 else '...'}"]


class _PlainHelp:
    """Command mixin: help without Python type names, errors of the parser as sentences."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; a help without any arguments is not an error."""
        try:
            parsed: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        except UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError":
                raise
            raise InputError(usage_sentence(error, self, ctx.command_path)) from error
        return parsed

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if isinstance(param, TyperArgument):
                param.__class__ = _Argument  # typer offers no other way to set the class
            elif isinstance(param, TyperOption):
                param.__class__ = PlainOption
                if param.is_flag:
                    param.metavar = ""
        return params


class Command(_PlainHelp, TyperCommand):
    """Command whose help wraps at the width of the terminal, not at the lines of the docstring."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.help is not None:
            self.help = re.sub(r"(?<!\n)\n(?!\n)", " ", self.help)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; whatever is wrong gives one sentence."""
        ctx.allow_extra_args = True
        rest = super().parse_args(ctx, args)
        if rest:
            self.refuse_extra(rest, ctx.command_path)
        return rest

    def refuse_extra(self, rest: list[str], path: str) -> None:
        """Refuse arguments behind those that the command has."""
        names = [param.metavar or param.name for param in self.params if param.opts[0][0] != "-"]
        expected = " ".join(names or ["options"])
        raise InputError(
            f"arguments must be {expected} only, got also '{abbreviate(rest[0])}'. "
            f"{example_of(self, path)}"
        )


class _Menu(_PlainHelp, TyperGroup):
    """Group of all commands: listed with their summaries, imported when called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        return Command(cmd_name, help=COMMANDS[cmd_name])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            similar = get_close_matches(args[0].lower(), COMMANDS, n=1)
            remedy = f"Did you mean {similar[0]}?" if similar else "See earatlas --help."
            names = ", ".join(COMMANDS)
            raise InputError(
                f"command must be one of {names}, got '{abbreviate(args[0])}'. {remedy}"
            )
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and name is not None:
            with paused_garbage_collection():
                command = get_command(import_module(f"earatlas.cli.{name}").app)
            command.name = name
        return name, command, rest


app = typer.Typer(
    cls=_Menu,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
    help="Localize and separate sound sources in binaural recordings.\n\n"
    "First learn an atlas from a head (its head-related transfer functions), then localize or "
    "separate recordings made with that head. Without an atlas, that of people in general is used.",
    epilog="A head is a .sofa file, a .csv table of calibration recordings, 'simulated' or 'kemar'."
    "\n\nStart with: earatlas demo",
)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        print_line(f"earatlas {earatlas.__version__}")
        raise typer.Exit
