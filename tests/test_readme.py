"""README and docs are true: Python runs, commands are accepted, figures are measured ones."""

import argparse
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
    """A file from the root of the repository."""
    return str(path.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of a page in these languages."""
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
                "If this is right: python docs/outputs.py"
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
    """Each script, in an empty folder: it says something, and leaves nothing behind."""
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_readme_shows_what_comes_out(tmp_path: Path) -> None:
    """The pages with Python are those that we think: none is lost by a change of its fences."""
    shown = {name(page) for page in PAGES if blocks(page, "python")}
    assert {"README.md", "docs/index.md", "docs/guide/python.md", "docs/guide/head.md"} <= shown
    assert sum(len(blocks(page, "python")) for page in PAGES) >= 15


# --- commands ---------------------------------------------------------------------------------


def commands(page: Path) -> list[list[str]]:
    """Every call of earatlas in the fenced blocks and the code spans of a page, as arguments."""
    shell = "".join(blocks(page, "shell", "")).replace("\\\n", " ")
    return [words for line in shell.splitlines() if (words := arguments(line))] + [
        words for words in spans(page) if not is_mere_name(words)
    ]


def spans(page: Path) -> list[list[str]]:
    """Every call of earatlas in the code spans of a page, as arguments."""
    found = re.findall(r"(?<!`)`(earatlas [^`]+)`(?!`)", page.read_text())
    return [words for span in found if (words := arguments(span))]


def names(page: Path) -> list[list[str]]:
    """Commands that a page speaks of in a code span, alone or with an option and no argument."""
    return [words for words in spans(page) if is_mere_name(words)]


def is_mere_name(call: list[str]) -> bool:
    """Whether a call has nothing but a command and options: who speaks so wants no answer."""
    return call[0][0] != "-" and all(word.startswith("--") for word in call[1:])


def arguments(line: str) -> list[str]:
    """What follows `earatlas` in a line of a shell, or of an overview.

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
    """The command line, which reads its arguments and then does nothing."""
    monkeypatch.setattr(TyperCommand, "invoke", lambda *_: None)
    return run


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name)
def test_commands_are_accepted(accepted: Run, page: Path) -> None:
    """Names, options and the kinds of their values are those that the command line has."""
    for words in commands(page):
        result = accepted(*words)
        assert result.returncode == 0, f"earatlas {shlex.join(words)}: {result.stderr}"


@pytest.mark.parametrize("page", [page for page in PAGES if names(page)], ids=name)
def test_names_of_commands_exist(run: Run, page: Path) -> None:
    """A command that is spoken of has a help, in which its options are."""
    for command, *options in names(page):
        shown = run(command, "--help", env={"COLUMNS": "200"})
        assert shown.returncode == 0, command
        for option in options:
            assert re.search(rf"{option}\b", shown.stdout), f"{command} {option}"


def test_a_wrong_command_is_not_accepted(accepted: Run) -> None:
    """Or else the test above would say nothing; and it has found what there is to find."""
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
    """What `--help` shows at the end of every command can be copied."""
    for command in sorted({words[0] for words in commands(ROOT / "README.md")} - {"--help"}):
        shown = accepted(command, "--help", env={"COLUMNS": "1000"}).stdout
        examples = re.findall(r"earatlas [^;\n]+", shown.partition("Example")[2])
        assert examples, command
        for example in examples:
            result = accepted(*arguments(example.rstrip(" .")))
            assert result.returncode == 0, f"{example}: {result.stderr}"


def test_make_targets_and_extras_exist() -> None:
    """`make X` is a target, `.[X]` an extra, and every script of ours that is named is there."""
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
    """The arguments of a benchmark were read without complaint."""


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
    """The tables of a page, each a list of its lines."""
    return [t.splitlines() for t in re.findall(r"(?:^\|.*\|\n)+", page.read_text(), re.M)]


def test_figures_of_the_readme_are_the_measured_ones() -> None:
    """A table with figures has the rows of one table of docs/figures, under the same header."""
    measured = [table for page in FIGURES for table in tables(page)]
    checked = 0
    for table in tables(ROOT / "README.md"):
        if not re.search(r"\d\.\d", "".join(table)):
            continue  # a table of words
        same = [m for m in measured if m[0] == table[0]]
        assert any(set(table) <= set(m) for m in same), f"not in docs/figures: {table[0]}"
        checked += len(table) - 2
    assert checked >= 4


def test_every_table_of_figures_has_its_command() -> None:
    """Above the first table of each section of docs/figures stands the command that measures it."""
    text = "\n".join(page.read_text() for page in FIGURES)
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        before, table, _ = section.partition("\n|")
        if table:
            assert re.search(r"`python (benchmarks/\w+\.py|tests/fuzz)", before), (
                section.splitlines()[0]
            )
