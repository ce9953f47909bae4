"""What commands share: where they write, what they say, and their progress bar.

Answers go to standard output, everything else to standard error: progress, warnings (each once a
command), errors, and what was replaced. Which files a command may replace is decided in `outputs`.
Names come from anywhere: what in them would steer a terminal is spelt out, here, for all commands.
"""

from __future__ import annotations

import json
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult
from rich.markup import escape
from rich.segment import Segment

from earatlas.errors import EaratlasWarning, InputError, brief, harmless

__all__ = [
    "Tally",
    "Warned",
    "degrees",
    "err",
    "note",
    "out",
    "print_json",
    "progress",
    "say",
    "say_doubts",
    "show_warnings_once",
    "warn",
]

# What Python calls otherwise than the command line does.
_OPTIONS = {
    "n_sources": "--sources",
    "hop_seconds": "--hop",
    "window_seconds": "--window",
    "memory_seconds": "--memory",
    "snr_db": "--snr-db",
    "levels_db": "--level",
    "distance_metres": "--distance",
    "size_metres": "--room",
    "listener_metres": "--listener",
    "t60_seconds": "--t60",
}
_ARGUMENTS = re.compile(rf"(?<![\w'/.-])({'|'.join(_OPTIONS)})(?![\w'/-])")
_LONGEST_AGAIN = 120  # letters of a warning that was told already
_NAME = re.compile(r"(?<!\w)'.*?'(?!\w)")  # of a file, in a warning
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]\d+)?")
_OTHERS = "…"  # stands for a number that is another for each file
_LINES = "\n\t"  # of what steers a terminal, what an answer may hold


class _Harmless:
    """A table, or whatever else is drawn, with its letters made harmless."""

    def __init__(self, drawn: ConsoleRenderable) -> None:
        self.drawn = drawn

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for text, style, control in console.render(self.drawn, options):
            yield Segment(text if control else harmless(text, keep=_LINES), style, control)


class _HarmlessConsole(Console):
    """A console that sends nothing to the terminal but text and its own colours."""

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich has it."""
        super().print(*map(_made_harmless, objects), **options)


def _made_harmless(thing: Any) -> Any:
    if isinstance(thing, str):
        return harmless(thing, keep=_LINES)
    return _Harmless(thing) if isinstance(thing, ConsoleRenderable) else thing


# No emoji: a path such as a:b:c would come out as pictures.
out = _HarmlessConsole(emoji=False)
err = _HarmlessConsole(stderr=True, emoji=False)

_warned: set[str] = set()  # by this command
_Kind = tuple[str, ...]  # of a warning: what stands between its numbers, without names


def say(text: str) -> None:
    """A line of the answer, as it is: neither wrapped nor coloured."""
    out.print(harmless(text), markup=False, highlight=False, soft_wrap=True)


def say_doubts(doubts: Sequence[str], label: str = "doubtful") -> None:
    """What speaks against an answer, a line each."""
    for doubt in doubts:
        say(f"  {label}: {doubt}")


def degrees(angle: float) -> str:
    """An angle with one digit, never -0.0."""
    from earatlas.wording import one_digit  # it needs numpy, which help and version do without

    return f"{one_digit(angle)}°"


def note(label: str, text: str) -> None:
    """A line on standard error; the label has markup, the text none. Options have their names.

    A terminal would break it in the midst of a word: there it is wrapped.
    """
    told = _ARGUMENTS.sub(lambda found: _OPTIONS[found.group()], harmless(text))
    err.print(f"{label} {escape(told)}", highlight=False, soft_wrap=not err.is_terminal)


def warn(text: str) -> None:
    """A warning on standard error; the same one only once a command."""
    if text not in _warned:
        _warned.add(text)
        note("[yellow]warning:[/]", text)


class Warned:
    """Warnings of one file after the other: each once, with the file, and of how many more.

    They are the same if they differ in names and numbers alone: ten thousand clipped recordings
    have two lines. Of one file alone nobody needs to be told which.
    """

    def __init__(self, total: int, what: str = "recordings") -> None:
        self.total, self.what = total, what
        self._count: Counter[_Kind] = Counter()  # files
        self._numbers: dict[_Kind, list[str]] = {}  # that stand between the parts

    def tell(self, file: object, texts: Iterable[str]) -> None:
        """What was warned of a file."""
        kinds: set[_Kind] = set()
        for text in dict.fromkeys(texts):
            plain = _NAME.sub("", text.replace(f"'{file}'", "")).strip()
            kind, numbers = tuple(_NUMBER.split(plain)), _NUMBER.findall(plain)
            before = self._numbers.get(kind, numbers)
            both = zip(before, numbers, strict=True)
            self._numbers[kind] = [a if a == b else _OTHERS for a, b in both]
            if kind not in self._count:
                named = self.total == 1 or str(file) in text
                warn(text if named else f"{file}: {text}")
            kinds.add(kind)
        self._count.update(kinds)

    @contextmanager
    def catching(self, file: object) -> Iterator[None]:
        """What is warned meanwhile is of that file; if it is alone, it is told as it comes."""
        if self.total == 1:
            yield
            return
        with warnings.catch_warnings(record=True) as caught:
            try:
                yield
            finally:
                ours = (w for w in caught if issubclass(w.category, EaratlasWarning))
                self.tell(file, [str(warning.message) for warning in ours])

    def close(self) -> None:
        """Tell how many files had the same."""
        for kind, numbers in self._numbers.items():
            if self._count[kind] > 1:
                text = "".join(chain(*zip(kind, [*numbers, ""], strict=True)))
                more = f"{self._count[kind] - 1} more {self.what}"
                warn(f"so for {more}: {brief(text, _LONGEST_AGAIN)}")


def show_warnings_once() -> None:
    """From here on warnings of ours are a line each, once; those of other packages are not shown.

    A recording that is read twice, for its answer and for its track, would warn twice.
    """
    _warned.clear()
    warnings.showwarning = _show_warning
    warnings.simplefilter("always", EaratlasWarning)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, EaratlasWarning):
        warn(str(message))


def print_json(answer: dict[str, Any], file: TextIO | None = None) -> None:
    """The answer on one line of JSON, on standard output unless another file is named."""
    stream = file or sys.stdout
    stream.write(json.dumps(answer) + "\n")
    stream.flush()


@contextmanager
def progress(label: str, *, logged: bool = False) -> Iterator[Callable[[float, float], None]]:
    """A progress bar on standard error, gone when done; yields `update(done, total)`.

    Where that is no terminal, there is none; what is `logged` has a line at its start and its end.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    quiet = not err.is_terminal  # a log file needs no bars
    start = time.monotonic()
    if quiet and logged:
        note("[cyan]begun:[/]", f"{label}.")
    with Progress(*columns, console=err, transient=True, disable=quiet) as bar:
        task = bar.add_task(escape(harmless(label)), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
    if quiet and logged:
        note("[cyan]done:[/]", f"{label}, in {time.monotonic() - start:.1f} s.")


class Tally:
    """Recordings one after the other: a bad one is told, and the others go on.

    One recording alone that fails is an InputError, as all bad input; of several, each is told on
    a line, and the exit code is 1 at the end.
    """

    def __init__(self, total: int, *, as_json: bool, what: str = "recordings") -> None:
        self.total, self.as_json, self.what = total, as_json, what
        self.failed = 0

    def fail(self, file: object, problem: str) -> None:
        """Tell that a recording failed."""
        if str(file) not in problem:
            problem = f"{file}: {problem}"
        if self.as_json:
            print_json({"file": str(file), "error": problem})
        if self.total == 1:
            raise InputError(problem)
        self.failed += 1
        note("[bold red]error:[/]", problem)

    def close(self) -> None:
        """Tell how many failed, if any did, and leave with exit code 1."""
        if self.failed:
            import typer

            note("[bold red]error:[/]", f"{self.failed} of {self.total} {self.what} failed.")
            raise typer.Exit(1)
