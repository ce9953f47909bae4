"""Hash of the code of a measurement: what changes it, and what does not."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from earatlas import code_hash as module
from earatlas.code_hash import code_hash, package_hash, reached_units
from earatlas.experiments import figure2, table1, table3

FILES = {
    "__init__.py": "",
    "kernels.py": """
        # A comment.
        FLOOR = 1.0

        def used(x: float) -> float:
            \"\"\"Docstring.\"\"\"
            if x < -9:
                raise ValueError("too low")
            return max(x, FLOOR)  # a reason

        def unused(x):
            return x
        """,
    "model.py": """
        from earatlas import kernels
        from earatlas.kernels import used as renamed

        class Base:
            def shared(self):
                return kernels.unused(1)

        class Model(Base):
            size = 3

            def __init__(self):
                self.value = renamed(2)

            def run(self):
                return self.value

            def draw(self):
                return 5

            def __repr__(self):
                return "Model"
        """,
    "experiment.py": """
        class Bench:
            names = 4

        def measure(bench: "Bench", settings):
            from earatlas.model import Model
            return Model().run()

        def section(rows):
            return "text"
        """,
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Write a package, with a text replaced, and return the hash of its `measure`."""
    monkeypatch.setattr(module, "_ROOT", tmp_path)
    caches = (module._parse, module._reach, module._code_hash)

    def hash_with(file: str = "model.py", old: str = "", new: str = "") -> str:
        for name, text in FILES.items():
            lines = [line[8:] for line in text.splitlines()]
            content = "\n".join(lines) + "\n"
            assert name != file or old in content
            (tmp_path / name).write_text(content.replace(old, new) if name == file else content)
        for cache in caches:
            cache.cache_clear()
        return code_hash(
            SimpleNamespace(  # type: ignore[arg-type]
                __module__="earatlas.experiment",
                __qualname__="measure",
                __annotations__={"bench": "Bench"},
            )
        )

    yield hash_with
    for cache in caches:
        cache.cache_clear()


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("kernels.py", "FLOOR = 1.0", "FLOOR = 2.0"),
        ("kernels.py", "max(x, FLOOR)", "min(x, FLOOR)"),
        ("model.py", "renamed(2)", "renamed(3)"),
        ("model.py", "size = 3", "size = 4"),
        ("model.py", "return self.value", "return -self.value"),
        ("model.py", "class Model(Base)", "class Model"),
        ("experiment.py", "Model().run()", "Model().run() + 1"),
        ("experiment.py", "names = 4", "names = 5"),
        ("kernels.py", "x < -9", "x < -8"),
        ("kernels.py", "ValueError", "TypeError"),
    ],
)
def test_code_that_is_reached_changes_the_hash(
    package: Callable[..., str], file: str, old: str, new: str
) -> None:
    """Constants, functions, methods and base classes count, through imports of any form."""
    assert package(file, old, new) != package()


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("kernels.py", "A comment", "Another comment"),
        ("kernels.py", "Docstring", "Other words"),
        ("kernels.py", "  # a reason", ""),
        ("kernels.py", "def unused(x):\n    return x", "def unused(x):\n    return -x"),
        ("model.py", "return 5", "return 6"),
        ("model.py", "kernels.unused(1)", "kernels.unused(2)"),
        ("experiment.py", '"text"', '"other"'),
        ("kernels.py", "too low", "too small"),
        ("kernels.py", "x: float) -> float", "x: int) -> int"),
        ("kernels.py", "max(x, FLOOR)", "max(\n        x,\n        FLOOR,\n    )"),
        ("model.py", 'return "Model"', 'return "M"'),
    ],
)
def test_other_code_does_not_change_the_hash(
    package: Callable[..., str], file: str, old: str, new: str
) -> None:
    """Texts, types, formatting and definitions that nothing mentions do not count."""
    assert package(file, old, new) == package()


def test_a_method_counts_as_soon_as_its_name_is_mentioned(package: Callable[..., str]) -> None:
    """A call of `draw` anywhere in the reached code makes the method count."""
    calls_it = ("experiment.py", "Model().run()", "Model().draw()")
    package(*calls_it)
    reached = module._reach("earatlas.experiment", "measure")
    assert "earatlas.model.Model.draw" in reached
    assert "earatlas.model.Model.run" not in reached


def test_measurements_reach_their_models_but_not_the_texts() -> None:
    """Table 1 depends on PPAM and on the features, but not on its own section or on VESSL."""
    units = reached_units(table1.measure)
    for name in ("ppam.em.EM.m_step", "features.stft.stft", "baselines.sir.SIR.fit",
                 "experiments.bench.Bench.train_test_split"):  # fmt: skip
        assert f"earatlas.{name}" in units
    assert not [name for name in units if name.startswith("earatlas.separation")]
    assert "earatlas.experiments.table1.section" not in units
    assert "earatlas.hrtf.sofa_file._SofaFile._source_vectors" in units  # it turns axes
    for name in ("features.containers", "features.decoder", "csv_tables", "fork_server"):
        assert not [unit for unit in units if unit.startswith(f"earatlas.{name}.")]
    assert len(code_hash(table1.measure)) == 12
    assert code_hash(table1.measure) != code_hash(figure2.measure)


def test_answers_depend_on_the_samples_but_not_on_checks_of_the_input() -> None:
    """What replaces samples or removes an offset counts; checks that only raise errors do not."""
    units = {name.removeprefix("earatlas.features.") for name in reached_units(table3.measure)}
    assert units >= {
        "input_samples.DCOffsetFilter._subtract_offset", "input_samples.DCOffsetSettings",
        "input_samples.SampleChecker.usable", "input_samples.SampleCheckSettings",
        "input_samples.count_clipped", "input_samples.estimate_dc_offset",
    }  # fmt: skip
    assert not [name for name in units if name.startswith("audio_checks.")]


def test_package_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash of the package depends on the name and the contents of every module."""

    def hash_of(files: dict[str, str]) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        monkeypatch.setattr(module, "_ROOT", folder)
        return package_hash.__wrapped__()

    files = {"a.py": "x = 1", "b/c.py": "y = 2"}
    variants = [{**files, "b/c.py": "y = 3"}, {"a.py": "x = 1", "b/d.py": "y = 2"}, {"a.py": "x"}]
    assert hash_of(files) == hash_of({**files, "notes.txt": "no code"})
    assert len({hash_of(files), *map(hash_of, variants)}) == 4


@pytest.mark.parametrize(("name", "same"), [("save", True), ("load", True), ("keep", False)])
def test_methods_for_files_do_not_count(package: Callable[..., str], name: str, same: bool) -> None:
    """A method that saves or loads a value may change although it is mentioned."""
    old = "return self.value\n\n    def draw(self):\n        return 5"
    first, second = (
        package("model.py", old, f"return self.{name}\n\n    def {name}(self):\n        return {n}")
        for n in (5, 6)
    )
    assert (first == second) is same
