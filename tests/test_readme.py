"""README and docs are correct: Python runs, commands are accepted, figures are measured."""

import argparse
import importlib
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.core import TyperCommand

Run = Callable[..., subprocess.CompletedProcess[str]]
ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("docs/guide/*.md")),
]
FIGURES = sorted(ROOT.glob("docs/figures/*.md"))
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
OUTPUTS = runpy.run_path(str(ROOT / "docs" / "outputs.py"))


def name(path: Path) -> str:
    """Return the path of a file relative to the root of the repository."""
    return str(path.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    """Return the fenced blocks of a page in these languages."""
    fences = re.findall(r"^```([^\n]*)\n(.*?)^```$", page.read_text(), re.S | re.M)
    return [text for language, text in fences if language in languages]


# --- Python -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("cached_learning")
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=name)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of a page run in order, as printed, and print the output that the page shows."""
    monkeypatch.chdir(tmp_path)
    for example in OUTPUTS["run"](page):
        if example.expected is not None:
            assert OUTPUTS["agrees"](example.printed, example.expected), (
                f"{example.code}\nprinted:\n{example.printed}\n"
                "To accept the printed output: python docs/outputs.py"
            )


def test_output_is_compared() -> None:
    """Numbers have a tolerance; other text, and the number of values, must be the same."""
    agrees = OUTPUTS["agrees"]
    assert agrees("[ 40. -0.]\n", "[40.  0.]\n")
    assert agrees("3.02 dB", "3.00 dB")
    for printed in ("[40. 2.]", "[40.]", "[40. x]"):
        assert not agrees(printed, "[40. 0.]"), printed


@pytest.mark.usefixtures("cached_learning")
@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_examples_run(
    example: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each script runs in an empty folder, prints something, and leaves no files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example)])  # not the arguments of pytest
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_pages_with_python_are_found(tmp_path: Path) -> None:
    """Known pages have Python blocks, so that a changed fence does not disable their tests."""
    shown = {name(page) for page in PAGES if blocks(page, "python")}
    assert {"README.md", "docs/index.md", "docs/guide/python.md", "docs/guide/head.md"} <= shown
    assert sum(len(blocks(page, "python")) for page in PAGES) >= 15


# --- commands ---------------------------------------------------------------------------------


def commands(page: Path) -> list[list[str]]:
    """Return the calls of earatlas in the fenced blocks and code spans of a page, as arguments."""
    shell = "".join(blocks(page, "shell", "")).replace("\\\n", " ")
    return [words for line in shell.splitlines() if (words := arguments(line))] + [
        words for words in spans(page) if not is_mention(words)
    ]


def spans(page: Path) -> list[list[str]]:
    """Return the calls of earatlas in the code spans of a page, as arguments."""
    found = re.findall(r"(?<!`)`(earatlas [^`]+)`(?!`)", page.read_text())
    return [words for span in found if (words := arguments(span))]


def mentions(page: Path) -> list[list[str]]:
    """Return the commands that a page only mentions: in a code span, without arguments."""
    return [words for words in spans(page) if is_mention(words)]


def is_mention(call: list[str]) -> bool:
    """Return whether a call consists of a command and options, and is not meant to be run."""
    return call[0][0] != "-" and all(word.startswith("--") for word in call[1:])


def arguments(line: str) -> list[str]:
    """Return the words after `earatlas` in a line of a shell or of an overview.

    >>> arguments("arecord -c 2 | earatlas listen ku100.atlas --stdin > x.jsonl  # live")
    ['listen', 'ku100.atlas', '--stdin']
    >>> arguments("earatlas localize X.atlas RECORDING … [--plot x.png]    where a sound is")
    ['localize', 'X.atlas', 'RECORDING', '--plot', 'x.png']
    """
    called = re.search(r"(?:^|\| )\s*earatlas ([-a-z].*)", line)
    if not called:
        return []
    call = re.split(r"\s{2,}|[>|]", called[1])[0]
    return shlex.split(re.sub(r"[][…]", " ", call), comments=True)


@pytest.fixture
def accepted(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return the command line that parses its arguments and then does nothing."""
    monkeypatch.setattr(TyperCommand, "invoke", lambda *_: None)
    return run


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name)
def test_commands_are_accepted(accepted: Run, page: Path) -> None:
    """The command line accepts the names, the options and the types of their values."""
    for words in commands(page):
        result = accepted(*words)
        assert result.returncode == 0, f"earatlas {shlex.join(words)}: {result.stderr}"


@pytest.mark.parametrize("page", [page for page in PAGES if mentions(page)], ids=name)
def test_mentioned_commands_exist(run: Run, page: Path) -> None:
    """Every mentioned command has a help text, which contains the mentioned options."""
    for command, *options in mentions(page):
        shown = run(command, "--help", env={"COLUMNS": "200"})
        assert shown.returncode == 0, command
        for option in options:
            assert re.search(rf"{option}\b", shown.stdout), f"{command} {option}"


def test_wrong_commands_are_rejected(accepted: Run) -> None:
    """Wrong commands and options give exit code 2; the pages contain all main commands."""
    assert accepted("learn", "x.sofa", "-o", "x.atlas").returncode == 0
    for wrong in (
        "learn x.sofa -o x.atlas --scales 3",
        "lern x.sofa",
        "learn",
        "cues x --seed 1",
    ):
        assert accepted(*wrong.split()).returncode == 2, wrong
    found = {words[0] for page in PAGES for words in commands(page)}
    assert found >= {
        *("info", "cues", "learn", "localize", "listen", "separate", "simulate", "manifold"),
        *("reproduce", "demo"),
    }


def test_examples_in_the_help_are_accepted(accepted: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples at the end of every `--help` can be copied."""
    for command in sorted({words[0] for words in commands(ROOT / "README.md")} - {"--help"}):
        shown = accepted(command, "--help", env={"COLUMNS": "1000"}).stdout
        examples = re.findall(r"earatlas [^;\n]+", shown.partition("Example")[2])
        assert examples, command
        for example in examples:
            result = accepted(*arguments(example.rstrip(" .")))
            assert result.returncode == 0, f"{example}: {result.stderr}"


def test_make_targets_and_extras_exist() -> None:
    """Every `make X` is a target, every `.[X]` an extra, and every named script exists."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M))
    for page in PAGES:
        text = page.read_text()
        code = "\n".join(blocks(page, "shell", "") + re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text))
        assert set(re.findall(r"^make (\w+)", code, re.M)) <= targets, page
        extras = re.findall(r"\.\[(\w+)\]", code)
        assert set(extras) <= project["optional-dependencies"].keys(), page
        for script in re.findall(r"python ((?:examples|benchmarks|docs)/\S+\.py)", code):
            assert (ROOT / script).is_file(), f"{name(page)}: {script}"


# --- figures ----------------------------------------------------------------------------------


class Accepted(Exception):  # noqa: N818
    """The arguments of a benchmark were parsed without an error."""


def figure_commands() -> list[str]:
    """Return every benchmark command of the pages in docs/figures."""
    text = "\n".join(page.read_text() for page in FIGURES)
    return sorted(set(re.findall(r"`python (benchmarks/[^`]+)`", text)))


@pytest.mark.parametrize("command", figure_commands())
def test_commands_of_the_figures_are_accepted(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The benchmark has the parts and options that docs/figures names; nothing is measured."""
    pytest.importorskip("sklearn", reason="scikit-learn is an extra")
    script, *words = shlex.split(command)
    if "parse_args" not in (ROOT / script).read_text():
        assert words == []
        return
    read = argparse.ArgumentParser.parse_args

    def parse(parser: argparse.ArgumentParser) -> None:
        read(parser)
        raise Accepted

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse)
    monkeypatch.setattr(sys, "argv", [script, *words])
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    with pytest.raises(Accepted):
        runpy.run_path(str(ROOT / script), run_name="__main__")


def tables(page: Path) -> list[list[str]]:
    """Return the tables of a page, each as a list of its lines."""
    return [t.splitlines() for t in re.findall(r"(?:^\|.*\|\n)+", page.read_text(), re.M)]


def test_figures_of_the_readme_are_the_measured_ones() -> None:
    """A table with figures has rows of a table of docs/figures with the same header."""
    measured = [table for page in FIGURES for table in tables(page)]
    checked = 0
    for table in tables(ROOT / "README.md"):
        if not re.search(r"\d\.\d", "".join(table)):
            continue  # a table without figures
        same = [m for m in measured if m[0] == table[0]]
        assert any(set(table) <= set(m) for m in same), f"not in docs/figures: {table[0]}"
        checked += len(table) - 2
    assert checked >= 4


def test_every_table_of_figures_has_its_command() -> None:
    """The command that measures a table is above the first table of each section."""
    text = "\n".join(page.read_text() for page in FIGURES)
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        before, table, _ = section.partition("\n|")
        if table:
            assert re.search(r"`python (benchmarks/\w+\.py|tests/fuzz)", before), (
                section.splitlines()[0]
            )


def test_speed_page_has_a_place_for_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of benchmarks/speed.py has its own section, which holds its table or nothing."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    speed = importlib.import_module("speed")
    page = speed.PAGE.read_text()
    rows = [speed.Row("`task`", 3.0, "1 ms", "2°"), speed.Row("other", 0.5)]
    table = speed.format_rows("title", rows, 2.0)
    assert "| `task` | 3.00 | 1.50 | 1 ms | 2° |\n| other | 0.50 | 0.25 |  |  |" in table
    for part in speed.PARTS:
        begin, end = f"<!-- speed.py {part} -->", f"<!-- end of {part} -->"
        section = page.partition(begin)[2].partition(end)[0].strip()
        assert not section or section.startswith(f"### {part}\n\nCalibration loop: ")
        changed = speed.replace_section(page, part, table)
        assert changed.replace(f"{begin}\n\n{table}\n\n{end}", "") == page.replace(
            page[page.index(begin) : page.index(end) + len(end)], ""
        )
    with pytest.raises(SystemExit, match="must contain"):
        speed.replace_section(page, "gone", table)
