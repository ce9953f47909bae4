"""Terminal output that all commands share: results, notes, warnings, errors and progress bars.

Results go to standard output, everything else to standard error: progress, warnings (each once per
command), errors, and the names of replaced files. Control characters in file names are escaped
here for all commands (`earatlas.errors.sanitize`).
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult
from rich.markup import escape
from rich.segment import Segment

from earatlas.errors import EaratlasWarning, InputError, abbreviate, sanitize

if TYPE_CHECKING:
    from earatlas.geometry.alternatives import Alternative
    from earatlas.geometry.lateral_angle import LateralAngle
    from earatlas.geometry.spaces import Space

__all__ = [
    "FailureTally",
    "FileWarnings",
    "err",
    "format_degrees",
    "out",
    "print_alternatives",
    "print_doubts",
    "print_json",
    "print_line",
    "print_note",
    "print_warning",
    "progress",
    "show_warnings_once",
]

# Python parameters whose command-line options have other names; messages use the options.
_OPTIONS = {
    "n_sources": "--sources",
    "max_sources": "--sources",
    "delay_seconds": "--delay",
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
_NAME = re.compile(r"(?<!\w)'.*?'(?!\w)")  # a file name in a warning
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]\d+)?")
_VARYING = "…"  # replaces a number that differs between files
_WHITESPACE = "\n\t"  # control characters that results may contain


class _Sanitized:
    """A table or other renderable whose text is sanitized."""

    def __init__(self, renderable: ConsoleRenderable) -> None:
        self.renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for text, style, control in console.render(self.renderable, options):
            yield Segment(text if control else sanitize(text, keep=_WHITESPACE), style, control)


class _SanitizingConsole(Console):
    """A console that sends no control sequences to the terminal except its own colours."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as `rich.console.Console.print` does, with sanitized text."""
        super().print(*map(_sanitize_object, objects), **options)


def _sanitize_object(thing: Any) -> Any:
    """Return a printable object with sanitized text."""
    if isinstance(thing, str):
        return sanitize(thing, keep=_WHITESPACE)
    return _Sanitized(thing) if isinstance(thing, ConsoleRenderable) else thing


# No emoji: parts of a path such as a:b:c could be replaced by pictures.
out = _SanitizingConsole(emoji=False)
err = _SanitizingConsole(stderr=True, emoji=False)

_shown_warnings: set[str] = set()  # warnings that this command has printed
_Kind = tuple[str, ...]  # text of a warning between its numbers, without file names


def print_line(text: str) -> None:
    """Print one line of the result without colours; a terminal gets it wrapped between words."""
    line = sanitize(text)
    if out.is_terminal:
        line = _wrapped(line, out.width)
    out.print(line, markup=False, highlight=False, soft_wrap=True)


def _wrapped(line: str, width: int) -> str:
    """Break a line between words, where a terminal would break it within them."""
    if len(line) <= width:
        return line
    hanging = " " * (len(line) - len(line.lstrip()) + 4)
    together = line.replace(" %", "\0%")  # a number and its unit
    rows = textwrap.wrap(
        together, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(rows).replace("\0", " ")


def print_doubts(doubts: Sequence[str], label: str = "doubtful") -> None:
    """Print the caveats of a result, one per line."""
    for doubt in doubts:
        print_line(f"  {label}: {doubt}")


def print_alternatives(
    space: Space,
    alternatives: Sequence[Alternative],
    radius: float,
    lateral_angle: LateralAngle | None = None,
    label: str = "",
) -> None:
    """Print what `format_alternatives` says about a direction of a 90 % credible radius, if any."""
    from earatlas.wording import format_alternatives  # imports NumPy, which --help does not need

    text = format_alternatives(space, alternatives, radius, lateral_angle)
    if text is not None:
        print_line(f"  {label}{text}")


def format_degrees(angle: float) -> str:
    """Format an angle in degrees with one decimal, and never -0.0."""
    from earatlas.wording import format_one_decimal  # imports NumPy, which --help does not need

    return f"{format_one_decimal(angle)}°"


def print_note(label: str, text: str) -> None:
    """Print a line on standard error; only the label may contain markup.

    Python parameter names in the text are replaced by the names of the options. On a terminal,
    the line is wrapped at words.
    """
    message = _ARGUMENTS.sub(lambda match: _OPTIONS[match.group()], sanitize(text))
    err.print(f"{label} {escape(message)}", highlight=False, soft_wrap=not err.is_terminal)


def print_warning(text: str) -> None:
    """Print a warning on standard error; the same one only once per command."""
    if text not in _shown_warnings:
        _shown_warnings.add(text)
        print_note("[yellow]warning:[/]", text)


class FileWarnings:
    """Warnings of a sequence of files, where each kind of warning is printed once, with a count.

    Warnings are of the same kind if they differ only in names and numbers, so ten thousand clipped
    recordings give two lines. If there is only one file, its name is not added.
    """

    def __init__(self, total: int, file_kind: str = "recordings") -> None:
        self.total, self.file_kind = total, file_kind
        self._count: Counter[_Kind] = Counter()  # number of files
        self._numbers: dict[_Kind, list[str]] = {}  # between the parts of the text

    def add(self, file: object, texts: Iterable[str]) -> None:
        """Print the warnings of a file that are of a new kind, and count all."""
        kinds: set[_Kind] = set()
        for text in dict.fromkeys(texts):
            plain = _NAME.sub("", text.replace(f"'{file}'", "")).strip()
            kind, numbers = tuple(_NUMBER.split(plain)), _NUMBER.findall(plain)
            previous = self._numbers.get(kind, numbers)
            both = zip(previous, numbers, strict=True)
            self._numbers[kind] = [a if a == b else _VARYING for a, b in both]
            if kind not in self._count:
                named = self.total == 1 or str(file) in text
                print_warning(text if named else f"{file}: {text}")
            kinds.add(kind)
        self._count.update(kinds)

    @contextmanager
    def catching(self, file: object) -> Iterator[None]:
        """Collect the warnings within the block as those of a file; print them at once if alone."""
        if self.total == 1:
            yield
            return
        with warnings.catch_warnings(record=True) as caught:
            try:
                yield
            finally:
                collected = (w for w in caught if issubclass(w.category, EaratlasWarning))
                self.add(file, [str(warning.message) for warning in collected])

    def close(self) -> None:
        """Print how many more files had each warning."""
        for kind, numbers in self._numbers.items():
            if self._count[kind] > 1:
                text = "".join(chain(*zip(kind, [*numbers, ""], strict=True)))
                more = f"{self._count[kind] - 1} more {self.file_kind}"
                print_warning(f"the same for {more}: {abbreviate(text, 120)}")


def show_warnings_once() -> None:
    """Print each warning of this package once, as one line, and none of other packages.

    Otherwise a recording that is read twice, for its result and for its track, would warn twice.
    """
    _shown_warnings.clear()
    warnings.showwarning = _show_warning
    warnings.simplefilter("always", EaratlasWarning)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Replacement for `warnings.showwarning`."""
    if issubclass(category, EaratlasWarning):
        print_warning(str(message))


def print_json(answer: dict[str, Any], file: TextIO | None = None) -> None:
    """Print a result as one line of JSON, to standard output by default."""
    stream = file or sys.stdout
    stream.write(json.dumps(answer) + "\n")
    stream.flush()


@contextmanager
def progress(label: str, *, logged: bool = False) -> Iterator[Callable[[float, float], None]]:
    """Show a temporary progress bar on standard error; yields `update(done, total)`.

    There is no bar if standard error is not a terminal. In that case `logged` prints a line at the
    start and one at the end.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    quiet = not err.is_terminal  # no bars in log files
    start = time.monotonic()
    if quiet and logged:
        print_note("[cyan]started:[/]", f"{label}.")
    with Progress(*columns, console=err, transient=True, disable=quiet) as bar:
        task = bar.add_task(escape(sanitize(label)), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
    if quiet and logged:
        print_note("[cyan]done:[/]", f"{label}, in {time.monotonic() - start:.1f} s.")


class FailureTally:
    """Counts failures in a sequence of files, so that one bad file does not stop the others.

    If there is only one file, its failure is an `InputError`. Otherwise each failure is printed as
    one line, and the exit code is 1 at the end.
    """

    def __init__(self, total: int, *, as_json: bool, file_kind: str = "recordings") -> None:
        self.total, self.as_json, self.file_kind = total, as_json, file_kind
        self.failed = 0

    def fail(self, file: object, problem: str) -> None:
        """Print that a file failed, and count it."""
        if str(file) not in problem:
            problem = f"{file}: {problem}"
        if self.as_json:
            print_json({"file": str(file), "error": problem})
        if self.total == 1:
            raise InputError(problem)
        self.failed += 1
        print_note("[bold red]error:[/]", problem)

    def close(self) -> None:
        """If files failed, print how many and exit with code 1."""
        if self.failed:
            import typer

            print_note(
                "[bold red]error:[/]", f"{self.failed} of {self.total} {self.file_kind} failed."
            )
            raise typer.Exit(1)
