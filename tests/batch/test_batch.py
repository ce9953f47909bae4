"""Batches with jobs that take no time: planning, resuming, outcomes and time estimates."""

import errno
import json
import os
import signal
import threading
import time
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import earatlas as ea
from earatlas.batch.batch import (
    SUMMARY_FILE,
    Batch,
    Executor,
    execute_batch,
    existing_outputs,
    plan_batch,
)
from earatlas.batch.eta import TimeEstimate
from earatlas.batch.file_arguments import check_unique_stems, expand_file_arguments, unique_files
from earatlas.batch.job import BatchJob, Outcome
from earatlas.batch.localization_job import LocalizationJob
from earatlas.batch.sidecar import (
    Recipe,
    Sidecar,
    fingerprints_of,
    read_sidecar,
    sidecar_path,
    write_sidecar,
)
from earatlas.code_hash import package_hash
from earatlas.features.sound_file import RECORDING_SUFFIXES
from earatlas.files import atomic_write_all, record_moves
from earatlas.threads import parallel_map, run_both
from earatlas.types import Progress


@dataclass(frozen=True)
class CopyJob(BatchJob):
    """Copy a file a number of times; the name of the file selects its failure."""

    times: int = 1
    weights: tuple[float, ...] = ()

    command: ClassVar[str] = "copy"

    def answer(self, file: Path, progress: Progress | None) -> dict[str, Any]:
        """Return the path of the copy."""
        if progress is not None:
            progress(1, 4)
        if "slow" in file.name:
            time.sleep(0.6)
        if "bad" in file.name:
            raise ea.InputError(f"file must be good, got '{file}'. Choose another.")
        if "bug" in file.name:
            raise KeyError("no such thing")
        if "full" in file.name:
            raise OSError(errno.ENOSPC, "no space")
        if "large" in file.name:
            raise MemoryError
        if "crash" in file.name:
            os.kill(os.getpid(), signal.SIGKILL)
        if "odd" in file.name:
            warnings.warn("this is odd", ea.EaratlasWarning, stacklevel=1)
            warnings.warn("not for users", UserWarning, stacklevel=1)
        copy = self.folder / f"{file.stem}.copy"
        copy.write_bytes(self.times * file.read_bytes())
        return {"file": str(file), "copy": str(copy)}

    def outputs(self, answer: dict[str, Any]) -> list[Path]:
        """Return the copy."""
        return [Path(answer["copy"])]

    def possible_outputs(self, file: Path) -> list[Path]:
        """Return the copy."""
        return [self.folder / f"{file.stem}.copy"]


@dataclass(frozen=True)
class ThreadCountJob(CopyJob):
    """Count the threads that process a file."""

    def answer(self, file: Path, progress: Progress | None) -> dict[str, Any]:
        """Return the number of threads."""

        def thread_of(n: int) -> int:
            time.sleep(0.02)
            return threading.get_ident()

        threads = set(parallel_map(thread_of, range(8)))
        first, second = run_both(threading.get_ident, threading.get_ident)
        return {**super().answer(file, progress), "threads": len(threads | {first, second})}


@dataclass(frozen=True)
class SpaceJob(CopyJob):
    """A copy job with a space as setting."""

    space: ea.Space = field(default_factory=ea.Sphere)


def create_files(folder: Path, *names: str) -> tuple[Path, ...]:
    """Create files that contain their names."""
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text(name)
    return tuple(folder / name for name in names)


def outcomes(
    job: BatchJob, files: tuple[Path, ...], *, resume: bool = True, jobs: int = 1
) -> dict[str, Outcome]:
    """Run a batch and return the outcomes by file stem."""
    job.folder.mkdir(exist_ok=True)
    ran = execute_batch(
        plan_batch(job, files, resume=resume), Executor(jobs), lambda number, share: None
    )
    return {outcome.file.stem: outcome for outcome in ran}


@pytest.fixture
def job(tmp_path: Path) -> CopyJob:
    """A copy job with its own output folder."""
    return CopyJob(tmp_path / "out", 2, (0.5, 1.0))


def test_worker_processes_use_one_thread_each(tmp_path: Path) -> None:
    """A single process uses several threads; each of several processes uses one."""
    job = ThreadCountJob(tmp_path / "out")
    files = create_files(tmp_path, "a", "b")
    for jobs, max_threads in ((2, 1), (1, 9)):
        found = [
            outcome.answer for outcome in outcomes(job, files, jobs=jobs, resume=False).values()
        ]
        counts = [answer["threads"] for answer in found if answer is not None]
        assert len(counts) == 2
        assert min(counts) >= min(max_threads, 2)
        assert max(counts) <= max_threads


# --- file arguments ---------------------------------------------------------------------------


def test_folders_patterns_and_lists_are_expanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each argument is replaced by its files, sorted by name; existing names are used literally."""
    create_files(tmp_path / "day", "b.WAV", "a.flac", "notes.txt")
    create_files(tmp_path / "day" / "late", "c.wav")
    (tmp_path / "day" / "folder.wav").mkdir()
    create_files(tmp_path / "day", "._a.wav", ".b.wav")
    odd = create_files(tmp_path, "take[1].wav", "@one.wav", "list.txt")
    (tmp_path / "list.txt").write_bytes(b"\xef\xbb\xbfday/a.flac\r\n\n gone.wav \n/abs/\xff.wav\n")
    monkeypatch.chdir(tmp_path)

    def names(*arguments: str) -> list[str]:
        return [
            str(file)
            for file in unique_files(
                expand_file_arguments(arguments, RECORDING_SUFFIXES, "recordings").files
            )
        ]

    assert names("day") == ["day/a.flac", "day/b.WAV"]
    assert names("day/**/*.wav", "gone.wav") == ["day/late/c.wav", "gone.wav"]
    assert names("take[1].wav", "@one.wav") == [file.name for file in odd[:2]]
    assert names("@list.txt") == ["day/a.flac", "gone.wav", os.fsdecode(b"/abs/\xff.wav")]
    assert names("day/b.WAV", "day", "day/*.*A*", str(tmp_path / "day" / "a.flac")) == [
        "day/b.WAV", "day/a.flac",
    ]  # fmt: skip
    create_files(tmp_path, "#2.wav")
    (tmp_path / "list.txt").write_text("# of monday\n#1.wav\n#2.wav\nday/a.flac\n")
    assert names("@list.txt") == ["#2.wav", "day/a.flac"]
    create_files(tmp_path / "#day", "1.wav")
    (tmp_path / "list.txt").write_text("# of 2024/05/01\n #day/1.wav\n#day/2.wav\nday/#3.wav\n")
    assert names("@list.txt") == ["#day/1.wav", "day/#3.wav"]
    assert not expand_file_arguments(["gone.wav"], RECORDING_SUFFIXES, "recordings").is_batch
    for arguments in (["day/late"], ["*/*/c.wav"], ["gone.wav", "a.wav"]):
        assert expand_file_arguments(arguments, RECORDING_SUFFIXES, "recordings").is_batch


@pytest.mark.parametrize(
    ("name", "words"),
    [("empty", "folder 'empty'"), ("*.wav", "pattern"), ("@gone", "existing file"),
     ("@none", "names none"), ("@bytes", "not a text"), ("@empty", "must be a file")],
)  # fmt: skip
def test_arguments_without_files_raise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    """Arguments that match no file raise an InputError at once."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "none").write_text(" \n\n")
    (tmp_path / "bytes").write_bytes(b"RIFF\0\0")
    with pytest.raises(ea.InputError, match=words):
        expand_file_arguments([name], RECORDING_SUFFIXES, "recordings")


def test_duplicate_files_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Different spellings count as one file, also without case sensitivity; the first is kept."""
    files = [Path("day/a.wav"), Path("day/../day/a.wav"), Path("Day/A.wav"), Path("day/b.wav")]
    assert unique_files(files) == (files[0], files[2], files[3])
    with monkeypatch.context() as windows:
        windows.setattr(os.path, "normcase", str.lower)
        found = unique_files(files)
    assert found == (files[0], files[3])


def test_equal_stems_raise() -> None:
    """Names that differ only in folder, suffix or case raise an InputError."""
    check_unique_stems([Path("a/x.wav"), Path("a/y.wav")])
    with pytest.raises(ea.InputError, match="differ in their names"):
        check_unique_stems([Path("a/x.wav"), Path("b/X.flac")])


# --- resuming and sidecars --------------------------------------------------------------------


def test_finished_files_are_skipped(job: CopyJob, tmp_path: Path) -> None:
    """Finished files keep their answers and are not touched; new files are processed."""
    files = create_files(tmp_path / "in", "a.wav", "b.wav")
    first = outcomes(job, files[:1])
    assert first["a"].status == "done"
    before = (job.folder / "a.copy").stat().st_mtime_ns
    rerun = outcomes(job, files)
    assert {stem: outcome.status for stem, outcome in rerun.items()} == {
        "a": "skipped",
        "b": "done",
    }
    assert rerun["a"].answer == first["a"].answer
    assert (job.folder / "a.copy").stat().st_mtime_ns == before
    assert outcomes(job, files, resume=False)["a"].status == "done"
    assert outcomes(job, files, resume=False)["a"].replaced == (str(job.folder / "a.copy"),)


def test_moved_files_have_their_current_paths(job: CopyJob, tmp_path: Path) -> None:
    """If recording and results were moved, the skipped outcome has their current paths."""
    (file,) = create_files(tmp_path / "in", "a.wav")
    outcomes(job, (file,))
    there, moved = tmp_path / "there", replace(job, folder=tmp_path / "moved")
    (tmp_path / "in").rename(there)
    job.folder.rename(moved.folder)
    (outcome,) = outcomes(moved, (there / "a.wav",)).values()
    assert outcome.status == "skipped"
    assert outcome.answer == {
        "file": str(there / "a.wav"),
        "copy": str(moved.folder / "a.copy"),
    }


def test_replaced_results_of_another_file_are_reported(job: CopyJob, tmp_path: Path) -> None:
    """Two recordings of the same name are processed into one folder, one after the other."""
    (first,) = create_files(tmp_path / "day1", "a.wav")
    (second,) = create_files(tmp_path / "day2", "a.wav")
    assert outcomes(job, (first,))["a"].replaced == ()
    content = outcomes(job, (second,), resume=False)["a"].replaced
    assert content == (str(job.folder / "a.copy"), str(job.folder / "a.json"))


def test_a_failure_replaces_no_sidecar(job: CopyJob, tmp_path: Path) -> None:
    """A file that fails is not said to have replaced the sidecar of a file of the same name."""
    (first,) = create_files(tmp_path / "day1", "bad.wav")
    job.folder.mkdir()
    sidecar = job.folder / "bad.json"
    other = tmp_path / "day2" / "bad.wav"
    write_sidecar(sidecar, Sidecar(job.recipe(), fingerprints_of([first]), (), {}, (), 0.0))
    before = sidecar.read_bytes()
    other.parent.mkdir()
    other.write_text("bad")
    outcome = outcomes(job, (other,), resume=False)["bad"]
    assert (outcome.status, outcome.replaced) == ("failed", ())
    assert sidecar.read_bytes() == before


def test_settings_without_fields_differ_by_class_name(tmp_path: Path) -> None:
    """A circle differs from a sphere, although neither has fields."""
    spaces = (ea.Sphere(), ea.Circle(), ea.Plane(), ea.Cylinder())
    recipes = [SpaceJob(tmp_path, space=space).recipe() for space in spaces]
    for i, one in enumerate(recipes):
        for j, other in enumerate(recipes):
            assert (one.difference_from(other) is None) == (i == j)


def test_results_are_recognized_while_another_batch_replaces_them(
    job: CopyJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sidecar that is missing at the first read, and back at the next, is that of a batch."""
    files = create_files(tmp_path / "in", "a.wav")
    outcomes(job, files)
    missing = iter([True])

    def read_while_replaced(path: Path) -> Sidecar | None:
        return None if next(missing, False) else read_sidecar(path)

    monkeypatch.setattr("earatlas.batch.batch.read_sidecar", read_while_replaced)
    assert dict(existing_outputs(job, files)) == {
        job.folder / "a.json": True,
        job.folder / "a.copy": True,
    }


def test_existing_outputs_of_a_batch(job: CopyJob, tmp_path: Path) -> None:
    """Sidecars, results and summary are recognized; other files of the same name are not."""
    files = create_files(tmp_path / "in", "a.wav", "b.wav")
    outcomes(job, files)
    (job.folder / "b.json").write_text('{"speaker": "Ada"}')
    assert dict(existing_outputs(job, files)) == {
        job.folder / "a.json": True,
        job.folder / "a.copy": True,
        job.folder / "b.json": False,
        job.folder / "b.copy": False,  # nothing says that a batch wrote it
        job.folder / "batch.jsonl": True,
    }
    (job.folder / "batch.jsonl").write_text("my notes")
    assert (job.folder / "batch.jsonl", False) in list(existing_outputs(job, files))


def test_sidecar_contents(job: CopyJob, tmp_path: Path) -> None:
    """A sidecar has answer, settings, versions, files with hashes, and seconds."""
    (file,) = create_files(tmp_path / "in", "odd.wav")
    outcomes(job, (file,))
    content = json.loads((job.folder / "odd.json").read_text())
    assert content["earatlas"] == ea.__version__
    assert content["code"] == package_hash()
    assert content["command"] == "copy"
    assert content["settings"] == {"times": 2, "weights": [0.5, 1.0]}
    assert content["versions"]["numpy"] == np.__version__
    assert content["answer"] == {"file": str(file), "copy": str(job.folder / "odd.copy")}
    assert content["warnings"] == ["this is odd"]
    (read,), (written,) = content["inputs"], content["outputs"]
    assert (read["file"], read["size"]) == (str(file), 7)
    assert (written["file"], written["size"]) == ("odd.copy", 14)
    assert len(read["sha256"]) == 64
    assert content["seconds"] >= 0


def test_differing_nested_settings_are_named() -> None:
    """Exactly the differing settings are named, also if only one side has them."""
    one = Recipe("separate", {"how": {"dry": False, "rate": 1, "n": 2}, "channels": [0, 1]}, "x")
    other = replace(one, settings={"how": {"dry": True, "rate": 1}, "channels": [0, 1]})
    assert one.difference_from(other) == "other settings: dry, n"
    assert one.difference_from(replace(one, settings={"channels": [0, 1]})) == "other settings: how"


def test_reasons_to_process_a_file_again(
    job: CopyJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changed settings, contents, results or versions are reasons; a new date alone is not."""
    (file,) = create_files(tmp_path / "in", "a.wav")
    outcomes(job, (file,))

    def why(job: BatchJob) -> str | None:
        return plan_batch(job, (file,), resume=True).rerun.get(file)

    assert why(job) is None
    assert why(replace(job, times=3, weights=())) == "other settings: times, weights"
    os.utime(file, (1, 1))
    assert why(job) is None
    file.write_text("b.wav")
    assert why(job) == "the contents of the file changed"
    file.write_text("a.wav")
    copy = job.folder / "a.copy"
    copy.write_text("a.wavb.wav")  # same length as before
    assert why(job) == "results are missing or changed"
    copy.unlink()
    assert why(job) == "results are missing or changed"
    assert outcomes(job, (file,))["a"].rerun == "results are missing or changed"
    file.unlink()
    assert why(job) == "the contents of the file changed"
    monkeypatch.setattr(CopyJob, "command", "duplicate")
    assert why(job) == "it was made by copy"
    content = json.loads((job.folder / "a.json").read_text())
    content["earatlas"] = "0.0.1"
    (job.folder / "a.json").write_text(json.dumps(content))
    monkeypatch.setattr(CopyJob, "command", "copy")
    assert why(job) == "it was made by version 0.0.1 of earatlas"
    content["earatlas"], content["code"] = ea.__version__, "0" * 12
    (job.folder / "a.json").write_text(json.dumps(content))
    assert why(job) == "the code of earatlas changed"
    del content["code"]
    (job.folder / "a.json").write_text(json.dumps(content))
    assert why(job) == "the code of earatlas changed"


def test_results_of_other_settings_beside_an_old_sidecar(job: CopyJob, tmp_path: Path) -> None:
    """A kill between writing results and sidecar must not attribute the results to it."""
    (file,) = create_files(tmp_path / "in", "a.wav")
    outcomes(job, (file,))
    old = (job.folder / "a.json").read_bytes()
    reverse = create_files(tmp_path / "in", "b.wav")[0]
    reverse.replace(file)
    outcomes(job, (file,))
    (job.folder / "a.json").write_bytes(old)
    file.write_text("a.wav")
    assert plan_batch(job, (file,), resume=True).rerun == {file: "results are missing or changed"}


def test_damaged_sidecars_are_replaced(job: CopyJob, tmp_path: Path) -> None:
    """A truncated, edited or lost sidecar is processed again and does not stop the batch.

    A power failure leaves a file of zeros or an empty file; an editor may change the line endings.
    """
    files = create_files(tmp_path / "in", "a.wav", "b.wav")
    outcomes(job, files)
    path = job.folder / "a.json"
    original = path.read_bytes()
    lines = original.replace(b"\n", b"\r\n")
    edited = original.replace(b'"inputs"', b'"input"')
    zeros = bytes(len(original))
    for damaged in (original[:100], original[:-20], edited, lines[:100], zeros, b""):
        path.write_bytes(damaged)
        assert dict(existing_outputs(job, files))[path]
        batch = plan_batch(job, files, resume=True)
        assert batch.rerun == {files[0]: "the sidecar is damaged"}
        assert list(batch.skipped) == [files[1]]
    assert outcomes(job, files)["a"].rerun == "the sidecar is damaged"
    assert json.loads(path.read_text())["answer"] == json.loads(original)["answer"]


def test_line_endings_do_not_depend_on_the_system(
    job: CopyJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files have the same line endings on systems with other conventions."""
    write = Path.write_text

    def foreign(path: Path, data: str, encoding: str = "ascii", newline: str = "\r\n") -> int:
        return write(path, data, encoding, newline=newline)

    files = create_files(tmp_path / "in", "a.wav", "b.wav")
    monkeypatch.setattr(Path, "write_text", foreign)
    outcomes(job, files)
    for name in ("a.json", "b.json", SUMMARY_FILE):
        assert (job.folder / name).read_bytes().count(b"\r") == 0, name


@pytest.mark.parametrize(
    "text", ["\0" * 99 + "{}", "{}", "[]", "no JSON", '{"command": 1}', "[" * 100_000]
)
def test_other_files_are_not_sidecars(tmp_path: Path, text: str) -> None:
    """Any other file is read as None without an error."""
    (tmp_path / "a.json").write_text(text)
    assert read_sidecar(tmp_path / "a.json") is None
    assert read_sidecar(tmp_path) is None
    job = CopyJob(tmp_path)
    assert plan_batch(job, (Path("a.wav"),), resume=True) == Batch(job, (Path("a.wav"),), {}, {})


def test_atlas_is_identified_by_its_parameters(atlas: ea.Atlas, tmp_path: Path) -> None:
    """The hash is the same in memory and from a file, and differs between atlases."""
    digest = atlas.digest
    assert ea.Atlas.load(atlas.save(tmp_path / "x.atlas")).digest == digest
    assert replace(atlas, accuracy=None).digest != digest
    recipe = LocalizationJob(tmp_path, atlas).recipe()
    assert recipe.atlas == digest
    assert recipe.difference_from(replace(recipe, atlas="other")) == "another atlas"


# --- outcomes ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class MultiCopyJob(CopyJob):
    """Write several copies."""

    def answer(self, file: Path, progress: Progress | None) -> dict[str, Any]:
        """Return the paths of the copies."""
        for path in self.possible_outputs(file)[: self.times]:
            path.write_bytes(file.read_bytes())
        return {"copies": [str(path) for path in self.possible_outputs(file)[: self.times]]}

    def outputs(self, answer: dict[str, Any]) -> list[Path]:
        """Return the copies."""
        return [Path(copy) for copy in answer["copies"]]

    def possible_outputs(self, file: Path) -> list[Path]:
        """Return four possible copies."""
        return [self.folder / f"{file.stem}.copy{n}" for n in range(4)]


def test_stale_results_are_removed(tmp_path: Path) -> None:
    """Unchanged results in the sidecar are removed; changed or unknown files are kept.

    A manipulated sidecar cannot remove anything but results.
    """
    (file,) = create_files(tmp_path / "in", "a.wav")
    job = MultiCopyJob(tmp_path / "out", 3)
    outcomes(job, (file,))
    (job.folder / "a.copy1").write_text("mine")
    (job.folder / "a.copy3").write_text("unknown")
    sidecar = job.folder / "a.json"
    content = json.loads(sidecar.read_text())
    content["outputs"].append({**content["inputs"][0], "file": "../in/a.wav"})
    sidecar.write_text(json.dumps(content, indent=1))
    found = outcomes(replace(job, times=1), (file,))["a"]
    assert found.removed == (str(job.folder / "a.copy2"),)
    assert not (job.folder / "a.copy2").exists()
    assert [text.split("'")[1][-7:] for text in found.warnings] == ["a.copy1", "a.copy3"]
    assert (job.folder / "a.copy1").read_text() == "mine"
    assert file.exists()
    assert found.status == "done"
    assert len(json.loads(sidecar.read_text())["outputs"]) == 1


def test_stale_results_that_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome is done, with a warning for each file that could not be removed."""
    (file,) = create_files(tmp_path / "in", "a.wav")
    job = MultiCopyJob(tmp_path / "out", 4)
    outcomes(job, (file,))
    unlink = Path.unlink

    def held(path: Path, missing_ok: bool = False) -> None:
        if path.name == "a.copy2":
            raise PermissionError(errno.EACCES, "in use")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", held)
    found = outcomes(replace(job, times=1), (file,))["a"]
    assert (found.status, found.error) == ("done", None)
    assert found.removed == tuple(str(job.folder / f"a.copy{n}") for n in (1, 3))
    left = job.folder / "a.copy2"
    assert found.warnings == (
        f"'{left}' is left from an earlier run and does not belong to this one. Delete it.",
    )
    assert left.exists()


def test_results_are_kept_if_a_new_run_fails(tmp_path: Path) -> None:
    """Results of an earlier run are kept if a new run fails."""
    (file,) = create_files(tmp_path / "in", "a.wav")
    job = MultiCopyJob(tmp_path / "out", 3)
    outcomes(job, (file,))
    file.unlink()
    assert outcomes(replace(job, times=1), (file,))["a"].status == "failed"
    assert (job.folder / "a.copy2").exists()


@pytest.mark.parametrize("jobs", [1, 2])
def test_failed_files_do_not_stop_the_batch(job: CopyJob, tmp_path: Path, jobs: int) -> None:
    """Bad input, bugs with traceback and limits are reported; other files are processed."""
    names = ("bad", "a", "bug", "odd", "full", "b", "large")
    files = create_files(tmp_path / "in", *(f"{name}.wav" for name in names))
    found = outcomes(job, files, jobs=jobs)
    assert [stem for stem, o in sorted(found.items()) if o.status == "done"] == ["a", "b", "odd"]
    assert str(found["bad"].error).startswith("file must be good")
    assert found["bad"].traceback_text is None
    assert found["bug"].error == "KeyError: 'no such thing'"
    assert "Traceback" in str(found["bug"].traceback_text)
    assert "full disk" in str(found["full"].error)
    assert str(found["large"].error).startswith("memory must suffice for the input")
    assert found["large"].traceback_text is None
    assert found["odd"].warnings == ("this is odd",)
    lines = [json.loads(line) for line in (job.folder / "batch.jsonl").read_text().splitlines()]
    assert [line["file"] for line in lines] == list(map(str, files))
    assert [line["status"] for line in lines] == [
        "failed", "done", "failed", "done", "failed", "done", "failed",
    ]  # fmt: skip
    assert lines[1]["answer"]["copy"] == str(job.folder / "a.copy")
    assert lines[1]["sidecar"] == "a.json"
    assert "Traceback" in lines[2]["traceback"]
    assert not (job.folder / "bad.json").exists()
    assert list(job.folder.glob(".earatlas-*")) == []


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_crashing_file_fails_alone(job: CopyJob, tmp_path: Path) -> None:
    """A file that kills its process is identified, and files beside it are processed again."""
    names = ["a.wav", "crash.wav", *(f"{n}.wav" for n in range(6))]
    found = outcomes(job, create_files(tmp_path / "in", *names), jobs=2)
    assert len(found) == 8
    assert [stem for stem, outcome in found.items() if outcome.status == "failed"] == ["crash"]
    assert "ended by the system" in str(found["crash"].error)


def test_batch_stops_with_its_iterator(job: CopyJob, tmp_path: Path) -> None:
    """Unprocessed files are listed as open in the summary, and processed the next time."""
    files = create_files(tmp_path / "in", "a.wav", "b.wav", "c.wav")
    job.folder.mkdir()
    batch = execute_batch(
        plan_batch(job, files, resume=True), Executor(), lambda number, share: None
    )
    assert next(batch).file == files[0]
    batch.close()
    lines = [json.loads(line) for line in (job.folder / "batch.jsonl").read_text().splitlines()]
    assert [line["status"] for line in lines] == ["done", "open", "open"]
    assert not (job.folder / "b.json").exists()
    statuses = {stem: outcome.status for stem, outcome in outcomes(job, files).items()}
    assert statuses == {"a": "skipped", "b": "done", "c": "done"}


def test_progress_of_worker_processes(job: CopyJob, tmp_path: Path) -> None:
    """The completed share of a file is reported with its index among the pending files."""
    files = create_files(tmp_path / "in", "a.wav", "b.wav", "slow.wav")
    outcomes(job, files[:1])
    content: set[tuple[int, float]] = set()
    list(
        execute_batch(
            plan_batch(job, files, resume=True), Executor(2), lambda *share: content.add(share)
        )
    )
    assert (1, 0.25) in content
    assert content <= {(0, 0.25), (1, 0.25)}


def test_sidecar_is_kept_after_a_failure(job: CopyJob, tmp_path: Path) -> None:
    """The sidecar still describes the existing results."""
    (file,) = create_files(tmp_path / "in", "a.wav")
    outcomes(job, (file,))
    before = sidecar_path(job.folder, file).read_bytes()
    failing = replace(job, times="many")  # type: ignore[arg-type]
    assert outcomes(failing, (file,))["a"].status == "failed"
    assert sidecar_path(job.folder, file).read_bytes() == before


def test_jobs_must_be_positive() -> None:
    """Less than one job raises an InputError."""
    with pytest.raises(ea.InputError, match="jobs must be at least 1, got 0"):
        Executor(0)


# --- time estimate ----------------------------------------------------------------------------


def test_remaining_time_excludes_process_startup() -> None:
    """The six seconds before the first report count for the rate, not for the remaining time."""
    now = 0.0
    estimate = TimeEstimate([60.0, 60.0], clock=lambda: now)
    now = 6.0
    estimate.share(0, 0.0)
    assert estimate.remaining_seconds is None
    now = 6.5
    estimate.share(1, 0.1)
    assert estimate.remaining_seconds is None, "too soon"
    now = 10.0
    estimate.share(0, 0.2)
    estimate.share(1, 0.2)
    assert estimate.rate == 2.4
    assert estimate.remaining_seconds == pytest.approx(16.0)


def test_estimate_is_weighted_by_workload() -> None:
    """Files count by their duration, and partial progress counts by its share."""
    now = 100.0
    estimate = TimeEstimate([10.0, 600.0, 0.0], clock=lambda: now)
    assert (estimate.rate, estimate.remaining_seconds, estimate.done) == (0.0, None, 0.0)
    now = 105.0
    estimate.finish(0)
    assert (estimate.files, estimate.rate, estimate.remaining_seconds) == (1, 2.0, 300.0)
    estimate.share(1, 0.25)
    assert estimate.done == 160.0
    assert estimate.rate == 32.0
    assert estimate.remaining_seconds == pytest.approx(450 / 32)
    estimate.finish(1)
    estimate.finish(1)
    estimate.share(1, 0.5)  # late report
    assert (estimate.files, estimate.done, estimate.remaining_seconds) == (2, 610.0, 0.0)


def test_results_of_another_writer_are_not_claimed(tmp_path: Path) -> None:
    """A result that another writer has replaced has a fingerprint that does not match it."""
    (tmp_path / "own").mkdir()
    with record_moves() as written:
        for folder, text in ((tmp_path, "mine"), (tmp_path / "own", "mine")):
            with atomic_write_all(folder) as new:
                (new / "x").write_text(text)
    with atomic_write_all(tmp_path) as new:
        (new / "x").write_text("else")
    files = [tmp_path / "x", tmp_path / "own" / "x"]
    replaced, own = fingerprints_of(files, tmp_path, written=written)
    assert not replaced.matches(tmp_path / "x")
    assert own.matches(tmp_path / "own" / "x")
    (tmp_path / "x").write_text("mine")
    assert not replaced.matches(tmp_path / "x")
