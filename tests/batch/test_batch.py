"""Batches: what is to be done, what is done, and what came of it; with work that takes no time."""

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
from earatlas.batch.batch import SUMMARY, Batch, Hands, planned, run, to_replace
from earatlas.batch.eta import Pace
from earatlas.batch.file_arguments import RECORDINGS, check_stems, listed, once
from earatlas.batch.job import Outcome, Work
from earatlas.batch.recordings import Localizing
from earatlas.batch.sidecar import Recipe, read_sidecar, sidecar_path
from earatlas.threads import side_by_side, together
from earatlas.types import Progress


@dataclass(frozen=True)
class Copying(Work):
    """Copies a file, as often as it is told; what it cannot do is in the file's name."""

    times: int = 1
    weights: tuple[float, ...] = ()

    command: ClassVar[str] = "copy"

    def answer(self, file: Path, tell: Progress | None) -> dict[str, Any]:
        """Where the copy is."""
        if tell is not None:
            tell(1, 4)
        if "slow" in file.name:
            time.sleep(0.6)
        if "bad" in file.name:
            raise ea.InputError(f"file must be good, got '{file}'. Choose another.")
        if "bug" in file.name:
            raise KeyError("no such thing")
        if "full" in file.name:
            raise OSError(errno.ENOSPC, "no space")
        if "crash" in file.name:
            os.kill(os.getpid(), signal.SIGKILL)
        if "odd" in file.name:
            warnings.warn("this is odd", ea.EaratlasWarning, stacklevel=1)
            warnings.warn("not for users", UserWarning, stacklevel=1)
        copy = self.folder / f"{file.stem}.copy"
        copy.write_bytes(self.times * file.read_bytes())
        return {"file": str(file), "copy": str(copy)}

    def outputs(self, answer: dict[str, Any]) -> list[Path]:
        """The copy."""
        return [Path(answer["copy"])]

    def may_write(self, file: Path) -> list[Path]:
        """The copy."""
        return [self.folder / f"{file.stem}.copy"]


@dataclass(frozen=True)
class Counting(Copying):
    """Counts the threads that its work is done on."""

    def answer(self, file: Path, tell: Progress | None) -> dict[str, Any]:
        """How many there were."""

        def own(n: int) -> int:
            time.sleep(0.02)
            return threading.get_ident()

        many = set(side_by_side(own, range(8)))
        first, second = together(threading.get_ident, threading.get_ident)
        return {**super().answer(file, tell), "threads": len(many | {first, second})}


@dataclass(frozen=True)
class Spacious(Copying):
    """The same, somewhere."""

    space: ea.Space = field(default_factory=ea.Sphere)


def files_in(folder: Path, *names: str) -> tuple[Path, ...]:
    """Files with their names in them."""
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text(name)
    return tuple(folder / name for name in names)


def outcomes(
    work: Work, files: tuple[Path, ...], *, resume: bool = True, jobs: int = 1
) -> dict[str, Outcome]:
    """What becomes of each file, by its stem."""
    work.folder.mkdir(exist_ok=True)
    ran = run(planned(work, files, resume=resume), Hands(jobs), lambda number, share: None)
    return {outcome.file.stem: outcome for outcome in ran}


@pytest.fixture
def work(tmp_path: Path) -> Copying:
    """Copies into a folder of its own."""
    return Copying(tmp_path / "out", 2, (0.5, 1.0))


def test_processes_that_share_the_cores_have_a_thread_each(tmp_path: Path) -> None:
    """One process alone has several, of several each has one."""
    work = Counting(tmp_path / "out")
    files = files_in(tmp_path, "a", "b")
    for jobs, most in ((2, 1), (1, 9)):
        found = [
            outcome.answer for outcome in outcomes(work, files, jobs=jobs, resume=False).values()
        ]
        counts = [answer["threads"] for answer in found if answer is not None]
        assert len(counts) == 2
        assert min(counts) >= min(most, 2)
        assert max(counts) <= most


# --- what is meant ----------------------------------------------------------------------------


def test_folders_patterns_and_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stands for its files, by name; what is there is taken as it is."""
    files_in(tmp_path / "day", "b.WAV", "a.flac", "notes.txt")
    files_in(tmp_path / "day" / "late", "c.wav")
    (tmp_path / "day" / "folder.wav").mkdir()
    files_in(tmp_path / "day", "._a.wav", ".b.wav")
    odd = files_in(tmp_path, "take[1].wav", "@one.wav", "list.txt")
    (tmp_path / "list.txt").write_bytes(b"\xef\xbb\xbfday/a.flac\r\n\n gone.wav \n/abs/\xff.wav\n")
    monkeypatch.chdir(tmp_path)

    def names(*given: str) -> list[str]:
        return [str(file) for file in once(listed(given, RECORDINGS, "recordings").files)]

    assert names("day") == ["day/a.flac", "day/b.WAV"]
    assert names("day/**/*.wav", "gone.wav") == ["day/late/c.wav", "gone.wav"]
    assert names("take[1].wav", "@one.wav") == [file.name for file in odd[:2]]
    assert names("@list.txt") == ["day/a.flac", "gone.wav", os.fsdecode(b"/abs/\xff.wav")]
    assert names("day/b.WAV", "day", "day/*.*A*", str(tmp_path / "day" / "a.flac")) == [
        "day/b.WAV", "day/a.flac",
    ]  # fmt: skip
    files_in(tmp_path, "#2.wav")
    (tmp_path / "list.txt").write_text("# of monday\n#1.wav\n#2.wav\nday/a.flac\n")
    assert names("@list.txt") == ["#2.wav", "day/a.flac"]
    files_in(tmp_path / "#day", "1.wav")
    (tmp_path / "list.txt").write_text("# of 2024/05/01\n #day/1.wav\n#day/2.wav\nday/#3.wav\n")
    assert names("@list.txt") == ["#day/1.wav", "day/#3.wav"]
    assert not listed(["gone.wav"], RECORDINGS, "recordings").several
    for several in (["day/late"], ["*/*/c.wav"], ["gone.wav", "a.wav"]):
        assert listed(several, RECORDINGS, "recordings").several


@pytest.mark.parametrize(
    ("name", "words"),
    [("empty", "folder 'empty'"), ("*.wav", "pattern"), ("@gone", "existing file"),
     ("@none", "has none"), ("@bytes", "no text"), ("@empty", "must be a file")],
)  # fmt: skip
def test_nothing_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    """What stands for no file is refused at once."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "none").write_text(" \n\n")
    (tmp_path / "bytes").write_bytes(b"RIFF\0\0")
    with pytest.raises(ea.InputError, match=words):
        listed([name], RECORDINGS, "recordings")


def test_a_file_is_meant_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also under another spelling, where the system knows no capitals; the first is kept."""
    files = [Path("day/a.wav"), Path("day/../day/a.wav"), Path("Day/A.wav"), Path("day/b.wav")]
    assert once(files) == (files[0], files[2], files[3])
    with monkeypatch.context() as windows:
        windows.setattr(os.path, "normcase", str.lower)
        found = once(files)
    assert found == (files[0], files[3])


def test_names_that_would_meet() -> None:
    """Also on disks that do not know capitals."""
    check_stems([Path("a/x.wav"), Path("a/y.wav")])
    with pytest.raises(ea.InputError, match="differ in their names"):
        check_stems([Path("a/x.wav"), Path("b/X.flac")])


# --- what is done already ---------------------------------------------------------------------


def test_what_is_done_is_skipped(work: Copying, tmp_path: Path) -> None:
    """With the same answer, and untouched; what is new is done."""
    files = files_in(tmp_path / "in", "a.wav", "b.wav")
    first = outcomes(work, files[:1])
    assert first["a"].status == "done"
    before = (work.folder / "a.copy").stat().st_mtime_ns
    again = outcomes(work, files)
    assert {stem: outcome.status for stem, outcome in again.items()} == {
        "a": "skipped",
        "b": "done",
    }
    assert again["a"].answer == first["a"].answer
    assert (work.folder / "a.copy").stat().st_mtime_ns == before
    assert outcomes(work, files, resume=False)["a"].status == "done"
    assert outcomes(work, files, resume=False)["a"].replaced == (str(work.folder / "a.copy"),)


def test_what_was_moved_has_its_new_names(work: Copying, tmp_path: Path) -> None:
    """A recording and results in other folders: what is skipped tells of these."""
    (file,) = files_in(tmp_path / "in", "a.wav")
    outcomes(work, (file,))
    there, moved = tmp_path / "there", replace(work, folder=tmp_path / "moved")
    (tmp_path / "in").rename(there)
    work.folder.rename(moved.folder)
    (outcome,) = outcomes(moved, (there / "a.wav",)).values()
    assert outcome.status == "skipped"
    assert outcome.answer == {
        "file": str(there / "a.wav"),
        "copy": str(moved.folder / "a.copy"),
    }


def test_answers_of_another_file_are_told_to_be_replaced(work: Copying, tmp_path: Path) -> None:
    """Two recordings of one name, one after the other into one folder."""
    (first,) = files_in(tmp_path / "day1", "a.wav")
    (second,) = files_in(tmp_path / "day2", "a.wav")
    assert outcomes(work, (first,))["a"].replaced == ()
    told = outcomes(work, (second,), resume=False)["a"].replaced
    assert told == (str(work.folder / "a.copy"), str(work.folder / "a.json"))


def test_settings_without_fields_differ_by_their_kind(tmp_path: Path) -> None:
    """A circle is no sphere, though neither has anything to set."""
    spaces = (ea.Sphere(), ea.Circle(), ea.Plane(), ea.Cylinder())
    recipes = [Spacious(tmp_path, space=space).recipe() for space in spaces]
    for i, one in enumerate(recipes):
        for j, other in enumerate(recipes):
            assert (one.changed(other) is None) == (i == j)


def test_what_a_batch_would_replace(work: Copying, tmp_path: Path) -> None:
    """Its own sidecars and summary, and what only has their names."""
    files = files_in(tmp_path / "in", "a.wav", "b.wav")
    outcomes(work, files)
    (work.folder / "b.json").write_text('{"speaker": "Ada"}')
    assert dict(to_replace(work, files)) == {
        work.folder / "a.json": True,
        work.folder / "b.json": False,
        work.folder / "batch.jsonl": True,
    }
    (work.folder / "batch.jsonl").write_text("my notes")
    assert (work.folder / "batch.jsonl", False) in list(to_replace(work, files))


def test_a_sidecar_tells_all(work: Copying, tmp_path: Path) -> None:
    """Answer, settings, versions, files with their hashes, and seconds."""
    (file,) = files_in(tmp_path / "in", "odd.wav")
    outcomes(work, (file,))
    told = json.loads((work.folder / "odd.json").read_text())
    assert told["earatlas"] == ea.__version__
    assert told["command"] == "copy"
    assert told["settings"] == {"times": 2, "weights": [0.5, 1.0]}
    assert told["versions"]["numpy"] == np.__version__
    assert told["answer"] == {"file": str(file), "copy": str(work.folder / "odd.copy")}
    assert told["warnings"] == ["this is odd"]
    (read,), (written,) = told["inputs"], told["outputs"]
    assert (read["file"], read["size"]) == (str(file), 7)
    assert (written["file"], written["size"]) == ("odd.copy", 14)
    assert len(read["sha256"]) == 64
    assert told["seconds"] >= 0


def test_settings_within_settings_are_named() -> None:
    """The very ones that differ, also of what only one of the two has."""
    one = Recipe("separate", {"how": {"dry": False, "rate": 1, "n": 2}, "channels": [0, 1]}, "x")
    other = replace(one, settings={"how": {"dry": True, "rate": 1}, "channels": [0, 1]})
    assert one.changed(other) == "other settings: dry, n"
    assert one.changed(replace(one, settings={"channels": [0, 1]})) == "other settings: how"


def test_why_it_is_done_again(
    work: Copying, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other settings, contents, results or versions; a copy with a new date is none of these."""
    (file,) = files_in(tmp_path / "in", "a.wav")
    outcomes(work, (file,))

    def why(work: Work) -> str | None:
        return planned(work, (file,), resume=True).again.get(file)

    assert why(work) is None
    assert why(replace(work, times=3, weights=())) == "other settings: times, weights"
    os.utime(file, (1, 1))
    assert why(work) is None
    file.write_text("b.wav")
    assert why(work) == "other contents of the file"
    file.write_text("a.wav")
    copy = work.folder / "a.copy"
    copy.write_text("a.wavb.wav")  # as long as it was
    assert why(work) == "results that are gone or changed"
    copy.unlink()
    assert why(work) == "results that are gone or changed"
    assert outcomes(work, (file,))["a"].again == "results that are gone or changed"
    file.unlink()
    assert why(work) == "other contents of the file"
    monkeypatch.setattr(Copying, "command", "duplicate")
    assert why(work) == "it was made by copy"
    told = json.loads((work.folder / "a.json").read_text())
    told["earatlas"] = "0.0.1"
    (work.folder / "a.json").write_text(json.dumps(told))
    monkeypatch.setattr(Copying, "command", "copy")
    assert why(work) == "it was made by version 0.0.1 of earatlas"


def test_new_results_beside_an_old_sidecar(work: Copying, tmp_path: Path) -> None:
    """As a kill between the two leaves them: those of other settings are not taken for its own."""
    (file,) = files_in(tmp_path / "in", "a.wav")
    outcomes(work, (file,))
    old = (work.folder / "a.json").read_bytes()
    reverse = files_in(tmp_path / "in", "b.wav")[0]
    reverse.replace(file)
    outcomes(work, (file,))
    (work.folder / "a.json").write_bytes(old)
    file.write_text("a.wav")
    assert planned(work, (file,), resume=True).again == {file: "results that are gone or changed"}


def test_a_damaged_sidecar_is_ours(work: Copying, tmp_path: Path) -> None:
    """One that breaks off, was edited or lost to a disk is done again, and stops no batch.

    A disk that lost power leaves a file of zeros, or of no bytes; an editor other ends of lines.
    """
    files = files_in(tmp_path / "in", "a.wav", "b.wav")
    outcomes(work, files)
    path = work.folder / "a.json"
    whole = path.read_bytes()
    lines = whole.replace(b"\n", b"\r\n")
    edited = whole.replace(b'"inputs"', b'"input"')
    zeros = bytes(len(whole))
    for spoilt in (whole[:100], whole[:-20], edited, lines[:100], zeros, b""):
        path.write_bytes(spoilt)
        assert dict(to_replace(work, files))[path]
        batch = planned(work, files, resume=True)
        assert batch.again == {files[0]: "a damaged sidecar"}
        assert list(batch.kept) == [files[1]]
    assert outcomes(work, files)["a"].again == "a damaged sidecar"
    assert json.loads(path.read_text())["answer"] == json.loads(whole)["answer"]


def test_files_are_the_same_on_every_system(
    work: Copying, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines end as they do here also where a system has ends of its own."""
    write = Path.write_text

    def foreign(path: Path, data: str, encoding: str = "ascii", newline: str = "\r\n") -> int:
        return write(path, data, encoding, newline=newline)

    files = files_in(tmp_path / "in", "a.wav", "b.wav")
    monkeypatch.setattr(Path, "write_text", foreign)
    outcomes(work, files)
    for name in ("a.json", "b.json", SUMMARY):
        assert (work.folder / name).read_bytes().count(b"\r") == 0, name


@pytest.mark.parametrize(
    "text", ["\0" * 99 + "{}", "{}", "[]", "no JSON", '{"command": 1}', "[" * 100_000]
)
def test_what_is_no_sidecar(tmp_path: Path, text: str) -> None:
    """It says nothing, and breaks nothing."""
    (tmp_path / "a.json").write_text(text)
    assert read_sidecar(tmp_path / "a.json") is None
    assert read_sidecar(tmp_path) is None
    work = Copying(tmp_path)
    assert planned(work, (Path("a.wav"),), resume=True) == Batch(work, (Path("a.wav"),), {}, {})


def test_an_atlas_is_known_by_what_was_learned(atlas: ea.Atlas, tmp_path: Path) -> None:
    """The same in memory and from a file; another one is another."""
    digest = atlas.digest
    assert ea.Atlas.load(atlas.save(tmp_path / "x.atlas")).digest == digest
    assert replace(atlas, accuracy=None).digest != digest
    recipe = Localizing(tmp_path, atlas).recipe()
    assert recipe.atlas == digest
    assert recipe.changed(replace(recipe, atlas="other")) == "another atlas"


# --- what came of it --------------------------------------------------------------------------


@dataclass(frozen=True)
class Several(Copying):
    """As many copies as it is told."""

    def answer(self, file: Path, tell: Progress | None) -> dict[str, Any]:
        """Where they are."""
        for path in self.may_write(file)[: self.times]:
            path.write_bytes(file.read_bytes())
        return {"copies": [str(path) for path in self.may_write(file)[: self.times]]}

    def outputs(self, answer: dict[str, Any]) -> list[Path]:
        """The copies."""
        return [Path(copy) for copy in answer["copies"]]

    def may_write(self, file: Path) -> list[Path]:
        """Four of them."""
        return [self.folder / f"{file.stem}.copy{n}" for n in range(4)]


def test_results_that_a_new_run_has_none_for(tmp_path: Path) -> None:
    """Those that the sidecar tells of are removed; what was changed since, or is another's, stays.

    A sidecar that was made by hand removes nothing but results.
    """
    (file,) = files_in(tmp_path / "in", "a.wav")
    work = Several(tmp_path / "out", 3)
    outcomes(work, (file,))
    (work.folder / "a.copy1").write_text("mine")
    (work.folder / "a.copy3").write_text("whose?")
    sidecar = work.folder / "a.json"
    told = json.loads(sidecar.read_text())
    told["outputs"].append({**told["inputs"][0], "file": "../in/a.wav"})
    sidecar.write_text(json.dumps(told, indent=1))
    found = outcomes(replace(work, times=1), (file,))["a"]
    assert found.removed == (str(work.folder / "a.copy2"),)
    assert not (work.folder / "a.copy2").exists()
    assert [text.split("'")[1][-7:] for text in found.warnings] == ["a.copy1", "a.copy3"]
    assert (work.folder / "a.copy1").read_text() == "mine"
    assert file.exists()
    assert found.status == "done"
    assert len(json.loads(sidecar.read_text())["outputs"]) == 1


def test_results_that_cannot_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done is done: a warning tells of each, and the others are removed."""
    (file,) = files_in(tmp_path / "in", "a.wav")
    work = Several(tmp_path / "out", 4)
    outcomes(work, (file,))
    unlink = Path.unlink

    def held(path: Path, missing_ok: bool = False) -> None:
        if path.name == "a.copy2":
            raise PermissionError(errno.EACCES, "in use")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", held)
    found = outcomes(replace(work, times=1), (file,))["a"]
    assert (found.status, found.error) == ("done", None)
    assert found.removed == tuple(str(work.folder / f"a.copy{n}") for n in (1, 3))
    left = work.folder / "a.copy2"
    assert found.warnings == (
        f"'{left}' is left from an earlier run and not of this one. Delete it.",
    )
    assert left.exists()


def test_results_of_a_run_that_fails_stay(tmp_path: Path) -> None:
    """They are all that there is."""
    (file,) = files_in(tmp_path / "in", "a.wav")
    work = Several(tmp_path / "out", 3)
    outcomes(work, (file,))
    file.unlink()
    assert outcomes(replace(work, times=1), (file,))["a"].status == "failed"
    assert (work.folder / "a.copy2").exists()


@pytest.mark.parametrize("jobs", [1, 2])
def test_one_bad_file_stops_no_other(work: Copying, tmp_path: Path, jobs: int) -> None:
    """Bad input is a sentence, a bug has a traceback, a full disk is told; the rest is done."""
    files = files_in(tmp_path / "in", "bad.wav", "a.wav", "bug.wav", "odd.wav", "full.wav", "b.wav")
    found = outcomes(work, files, jobs=jobs)
    assert [stem for stem, o in sorted(found.items()) if o.status == "done"] == ["a", "b", "odd"]
    assert str(found["bad"].error).startswith("file must be good")
    assert found["bad"].bug is None
    assert found["bug"].error == "KeyError: 'no such thing'"
    assert "Traceback" in str(found["bug"].bug)
    assert "full disk" in str(found["full"].error)
    assert found["odd"].warnings == ("this is odd",)
    lines = [json.loads(line) for line in (work.folder / "batch.jsonl").read_text().splitlines()]
    assert [line["file"] for line in lines] == list(map(str, files))
    assert [line["status"] for line in lines] == [
        "failed", "done", "failed", "done", "failed", "done",
    ]  # fmt: skip
    assert lines[1]["answer"]["copy"] == str(work.folder / "a.copy")
    assert lines[1]["sidecar"] == "a.json"
    assert "Traceback" in lines[2]["traceback"]
    assert not (work.folder / "bad.json").exists()
    assert list(work.folder.glob(".earatlas-*")) == []


@pytest.mark.skipif(os.name != "posix", reason="kills itself by a signal of POSIX")
def test_a_crash_fails_alone(work: Copying, tmp_path: Path) -> None:
    """A file that ends its process is found out; what was begun beside it is done again."""
    names = ["a.wav", "crash.wav", *(f"{n}.wav" for n in range(6))]
    found = outcomes(work, files_in(tmp_path / "in", *names), jobs=2)
    assert len(found) == 8
    assert [stem for stem, outcome in found.items() if outcome.status == "failed"] == ["crash"]
    assert "ended by the system" in str(found["crash"].error)


def test_who_stops_asking_stops_the_work(work: Copying, tmp_path: Path) -> None:
    """What is open is written down, and is done the next time."""
    files = files_in(tmp_path / "in", "a.wav", "b.wav", "c.wav")
    work.folder.mkdir()
    batch = run(planned(work, files, resume=True), Hands(), lambda number, share: None)
    assert next(batch).file == files[0]
    batch.close()
    lines = [json.loads(line) for line in (work.folder / "batch.jsonl").read_text().splitlines()]
    assert [line["status"] for line in lines] == ["done", "open", "open"]
    assert not (work.folder / "b.json").exists()
    statuses = {stem: outcome.status for stem, outcome in outcomes(work, files).items()}
    assert statuses == {"a": "skipped", "b": "done", "c": "done"}


def test_progress_comes_from_other_processes(work: Copying, tmp_path: Path) -> None:
    """The share of a file, by its number among those that are to be done."""
    files = files_in(tmp_path / "in", "a.wav", "b.wav", "slow.wav")
    outcomes(work, files[:1])
    told: set[tuple[int, float]] = set()
    list(run(planned(work, files, resume=True), Hands(2), lambda *share: told.add(share)))
    assert (1, 0.25) in told
    assert told <= {(0, 0.25), (1, 0.25)}


def test_an_old_sidecar_outlives_a_failure(work: Copying, tmp_path: Path) -> None:
    """It still tells of the results that are there."""
    (file,) = files_in(tmp_path / "in", "a.wav")
    outcomes(work, (file,))
    before = sidecar_path(work.folder, file).read_bytes()
    failing = replace(work, times="many")  # type: ignore[arg-type]
    assert outcomes(failing, (file,))["a"].status == "failed"
    assert sidecar_path(work.folder, file).read_bytes() == before


def test_jobs_are_a_number() -> None:
    """At least one."""
    with pytest.raises(ea.InputError, match="jobs must be at least 1, got 0"):
        Hands(0)


# --- how fast it goes -------------------------------------------------------------------------


def test_the_time_left_is_without_the_start_of_processes() -> None:
    """Six seconds in which nothing can be told are none of work; the rate of the whole has them."""
    now = 0.0
    pace = Pace([60.0, 60.0], clock=lambda: now)
    now = 6.0
    pace.share(0, 0.0)
    assert pace.seconds_left is None
    now = 6.5
    pace.share(1, 0.1)
    assert pace.seconds_left is None, "too soon"
    now = 10.0
    pace.share(0, 0.2)
    pace.share(1, 0.2)
    assert pace.rate == 2.4
    assert pace.seconds_left == pytest.approx(16.0)


def test_a_pace_goes_by_sound() -> None:
    """A long file is not done with a short one, and half of it is half of it."""
    now = 100.0
    pace = Pace([10.0, 600.0, 0.0], clock=lambda: now)
    assert (pace.rate, pace.seconds_left, pace.done) == (0.0, None, 0.0)
    now = 105.0
    pace.finish(0)
    assert (pace.files, pace.rate, pace.seconds_left) == (1, 2.0, 300.0)
    pace.share(1, 0.25)
    assert pace.done == 160.0
    assert pace.rate == 32.0
    assert pace.seconds_left == pytest.approx(450 / 32)
    pace.finish(1)
    pace.finish(1)
    pace.share(1, 0.5)  # told late
    assert (pace.files, pace.done, pace.seconds_left) == (2, 610.0, 0.0)
