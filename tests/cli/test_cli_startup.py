"""Start-up of the command line: lazy imports, public names, and early interruptions."""

import ast
import gc
import importlib
import inspect
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from typer.main import get_command

import earatlas as ea
from earatlas.cli import paused_garbage_collection
from earatlas.cli.app import COMMANDS

# Each of these takes longer to import than the start of the interpreter.
HEAVY = ("numpy", "scipy", "matplotlib", "netCDF4", "sofar", "soundfile", "sklearn", "joblib",
         "pyroomacoustics", "safetensors", "pydantic", "rich.progress")  # fmt: skip
RECORDING = Path(ea.__file__).with_name("data") / "recording.flac"


def imported(code: str) -> set[str]:
    """Return the modules that a new interpreter has imported after running this code."""
    hook = "import atexit, sys\natexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
    result = subprocess.run([sys.executable, "-c", hook + code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return set(result.stderr.split())


@pytest.mark.parametrize(
    "code",
    [
        "import earatlas",
        "import earatlas.cli",
        "import sys; sys.argv[1:] = ['--help']; import earatlas.cli; earatlas.cli.main()",
        "import sys; sys.argv[1:] = ['--version']; import earatlas.cli; earatlas.cli.main()",
    ],
)
def test_nothing_heavy_is_imported(code: str) -> None:
    """The package, --help and --version import no heavy package and no command."""
    modules = imported(code)
    assert not modules & set(HEAVY)
    assert not [m for m in modules if m.startswith("earatlas.") and m.split(".")[-1] in COMMANDS]
    assert "earatlas" in modules


@pytest.mark.parametrize(
    "code",
    [
        "import earatlas as ea, earatlas.cli.info, earatlas.cli.separate; "
        "ea.example_atlas().separate(ea.example_recording())",
        f"import sys; sys.argv[1:] = ['localize', 'people', {str(RECORDING)!r}]; "
        "import earatlas.cli; earatlas.cli.main()",
    ],
)
def test_commands_import_only_what_they_need(code: str) -> None:
    """Localizing or separating a short file imports no part of SciPy, which is slow to import.

    Neither is imported what only other commands need. `numpy.f2py` and `numpy.testing` are slow to
    import, and SciPy imports them; `numpy.ma` is imported by `numpy.unique`, `quantile` and
    `median` when they are called.
    """
    modules = imported(code)
    assert "numpy" in modules
    needed = {"numpy", "soundfile", "safetensors"}
    slow = {"asyncio", "email", "fast_bss_eval", "multiprocessing", "numpy.f2py", "numpy.testing",
            "unittest"}  # fmt: skip
    if "localize" in code:
        slow |= {"numpy.ma", "numpy.polynomial"}
    assert not sorted(modules & (set(HEAVY) - needed | slow))
    others = {"experiments", "studio", "streaming.stream", "training.learn_head", "plotting"}
    if "localize" in code:
        others |= {"separation", "tracking", "batch.worker_pool", "simulation", "training",
                   "ppam.em", "population.adaptation", "population.learning"}  # fmt: skip
    assert not sorted(modules & {f"earatlas.{other}" for other in others})


def test_paused_garbage_collection() -> None:
    """Imports are not interrupted by garbage collections, which happen again afterwards."""
    assert gc.isenabled()
    with paused_garbage_collection():
        with suppress(ImportError), paused_garbage_collection():
            raise ImportError
        assert not gc.isenabled()
    assert gc.isenabled()


def test_public_names() -> None:
    """Names are available as attributes, in their module, in dir(), and for type checkers."""
    tree = ast.parse(Path(inspect.getfile(ea)).read_text())
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: node.module
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(seen) == sorted(ea.__all__)
    for name, module in seen.items():
        assert module is not None
        assert getattr(ea, name) is getattr(importlib.import_module(module), name)
    assert set(ea.__all__) <= set(dir(ea))
    with pytest.raises(AttributeError, match="'earatlas' has no attribute 'gone'"):
        _ = ea.gone  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", COMMANDS)
def test_menu_and_command_have_the_same_summary(name: str) -> None:
    """The list of commands and the help of a command start with the same sentence."""
    command = get_command(importlib.import_module(f"earatlas.cli.{name}").app)
    assert command.help is not None
    assert command.help.split("\n\n")[0] == COMMANDS[name]


@pytest.mark.parametrize("module", ["typer", "earatlas.cli.app", "earatlas.errors"])
def test_interruption_during_start_up(module: str) -> None:
    """Ctrl-C during any import gives exit code 130 and no traceback."""
    code = f"""
import sys
class Impatient:
    def find_spec(self, name, *_):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Impatient())
from earatlas.cli import main
main()
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")
