"""Files are written completely or not at all, alone and together."""

import errno
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from earatlas.errors import EaratlasWarning, InputError
from earatlas.files import (
    _write_manifest,
    atomic_write,
    atomic_write_all,
    check_writable,
    exclusive_folder,
    output_folder,
)


def test_file_is_replaced_when_complete(tmp_path: Path) -> None:
    """The old file remains until the new one is complete; then the scratch folder is removed."""
    path = tmp_path / "x.txt"
    path.write_text("old")
    with atomic_write(path) as scratch:
        assert scratch.name == path.name
        scratch.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_error_keeps_the_old_file(tmp_path: Path) -> None:
    """The old file survives any exception during writing."""
    path = tmp_path / "x.txt"
    path.write_text("old")

    def write_half() -> None:
        with atomic_write(path) as scratch:
            scratch.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_file_permissions(tmp_path: Path) -> None:
    """The permissions follow the umask, which is not changed."""
    before = os.umask(0o027)
    try:
        with atomic_write(tmp_path / "x") as scratch:
            scratch.write_text("")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640


def test_unwritable_paths_are_refused(tmp_path: Path) -> None:
    """A folder, a missing folder, and a file as a folder are refused."""
    (tmp_path / "file").write_text("")
    check_writable(tmp_path / "new.txt")
    for bad in (tmp_path, tmp_path / "no" / "x", tmp_path / "file" / "x"):
        with pytest.raises(InputError, match="output must be a file in a folder that exists"):
            check_writable(bad)
    with (
        pytest.raises(InputError, match="report must be a file that can be written"),
        atomic_write(tmp_path / "no" / "x", "report"),
    ):
        pytest.fail("the folder does not exist")


def test_files_are_replaced_together(tmp_path: Path) -> None:
    """New files replace those of the same names and those in `replacing`; others stay."""
    for name in ("a", "b", "mine"):
        (tmp_path / name).write_text("old")
    with atomic_write_all(tmp_path, replacing=["b", "absent"]) as new:
        (new / "a").write_text("new")
        (new / "c").write_text("new")
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {"a": "new", "c": "new", "mine": "old"}


def test_writers_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two writers that finish at the same time, one replaces all files of the other."""
    replace, both = Path.replace, threading.Barrier(2)
    # Without turns, the second writer would move all files between "b" and "c" of the first.
    pauses_seconds = {("one", "c"): 0.1, ("two", "a"): 0.04}

    def replace_slowly(path: Path, target: Path) -> Path:
        time.sleep(pauses_seconds.get((path.read_text(), path.name), 0.0))
        return replace(path, target)

    def write(text: str) -> None:
        with atomic_write_all(tmp_path) as new:
            for name in "abcd":
                (new / name).write_text(text)
            both.wait(60)

    monkeypatch.setattr(Path, "replace", replace_slowly)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, ("one", "two")))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c", "d"]
    assert len({path.read_text() for path in tmp_path.iterdir()}) == 1


def test_failed_replacement_is_undone(tmp_path: Path) -> None:
    """If one file cannot be moved, all others are moved back."""
    (tmp_path / "a").write_text("old")
    (tmp_path / "b").mkdir()

    def write() -> None:
        with atomic_write_all(tmp_path) as new:
            (new / "a").write_text("new")
            (new / "b").write_text("new")

    with pytest.raises(OSError, match="b"):
        write()
    assert (tmp_path / "a").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_files_are_flushed_before_they_are_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut after the rename must not leave an empty file."""
    calls: list[str] = []

    def record(owner: object, name: str) -> None:
        original = getattr(owner, name)

        def recorded(*arguments: Any) -> Any:
            calls.append(name)
            return original(*arguments)

        monkeypatch.setattr(owner, name, recorded)

    record(os, "fsync")
    record(Path, "replace")
    with atomic_write(tmp_path / "x") as scratch:
        scratch.write_text("new")
    assert calls == ["fsync", "replace", "fsync"]
    calls.clear()
    with atomic_write_all(tmp_path) as folder:
        for name in "ab":
            (folder / name).write_text("new")
    manifest = ["fsync", "replace", "fsync"]  # of the draft, and of its new name
    assert calls == ["fsync", "fsync", *manifest, "replace", "replace", "fsync"]


_WRITER = """
import sys, time
from pathlib import Path
from typing import Any
from earatlas.files import atomic_write_all, atomic_write
folder = Path(sys.argv[1])
with atomic_write(folder / "x") as alone, atomic_write_all(folder) as several:
    alone.write_text("half")
    (several / "y").write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


def test_scratch_folders_of_killed_writers_are_removed(tmp_path: Path) -> None:
    """Those of a living writer stay; the next writer removes those of killed ones."""
    (tmp_path / "x").write_text("old")
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        with atomic_write(tmp_path / "z") as scratch:
            scratch.write_text("")
        assert len(list(tmp_path.glob(".earatlas-*"))) == 2
        writer.kill()
    assert len(list(tmp_path.glob(".earatlas-*"))) == 2
    check_writable(tmp_path / "z")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "z"]
    assert (tmp_path / "x").read_text() == "old"


def _leave_scratch(folder: Path, *, complete: bool) -> Path:
    """Create the scratch folder of a writer that was killed after it had moved a, but not b."""
    scratch = folder / ".earatlas-dead"
    for name in ("new", "old"):
        (scratch / name).mkdir(parents=True)
    (scratch / "in-use").touch()
    for name in "ab":
        (folder / name).write_text("old")
        (scratch / "new" / name).write_text("new")
    manifest = _write_manifest(folder, scratch, "ab")
    for name in "ab":
        (folder / name).replace(scratch / "old" / name)
    (scratch / "new" / "a").replace(folder / "a")
    if not complete:
        manifest.replace(scratch / "undo")
    return scratch


@pytest.mark.parametrize(("complete", "found"), [(True, "new"), (False, "old")])
def test_killed_replacement_is_finished_or_undone(
    tmp_path: Path, complete: bool, found: str
) -> None:
    """The next writer finishes the moves if `complete` exists, and undoes them after `undo`."""
    _leave_scratch(tmp_path, complete=complete)
    check_writable(tmp_path / "other")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"a": found, "b": found}


def test_files_of_a_killed_writer_do_not_replace_newer_ones(tmp_path: Path) -> None:
    """The files of a writer that is killed while another one writes are moved first."""
    with atomic_write_all(tmp_path) as new:
        (new / "b").write_text("newer")
        _leave_scratch(tmp_path, complete=True)
    check_writable(tmp_path / "other")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"a": "new", "b": "newer"}


def test_untrusted_scratch_folders_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders of other users, links, and new folders without a lock are not touched."""
    _leave_scratch(tmp_path, complete=True)
    (tmp_path / ".earatlas-link").symlink_to(tmp_path / ".earatlas-dead")
    (tmp_path / ".earatlas-new").mkdir()
    everything = sorted(tmp_path.rglob("*"))
    with monkeypatch.context() as context:
        context.setattr(os, "getuid", lambda: 12345678)
        check_writable(tmp_path / "other")
    assert sorted(tmp_path.rglob("*")) == everything
    os.utime(tmp_path / ".earatlas-new", (0, 0))
    check_writable(tmp_path / "other")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".earatlas-link", "a", "b"]


def _link_as_new(folder: Path, scratch: Path) -> None:
    """Let `new` be a link to a folder of the user."""
    (folder / "home").mkdir()
    (folder / "home" / "diary.txt").write_text("mine")
    shutil.rmtree(scratch / "new")
    (scratch / "new").symlink_to(folder / "home")


def _file_in(kind: str) -> Callable[[Path, Path], None]:
    """Return a function that plants another thesis in `new` or `old`, without a manifest."""

    def plant(folder: Path, scratch: Path) -> None:
        (scratch / kind / "thesis.txt").write_text("planted")
        if kind == "new":
            (scratch / "complete").touch()

    return plant


def _copied_manifest(folder: Path, scratch: Path) -> None:
    """Plant a thesis as an unpacked archive would: with a manifest, but with other inodes."""
    (scratch / "new" / "thesis.txt").write_text("planted")
    _write_manifest(folder, scratch, ["thesis.txt"])
    copy = scratch.with_name("copy")
    shutil.copytree(scratch, copy)
    shutil.rmtree(scratch)
    copy.rename(scratch)


def _newer_file(folder: Path, scratch: Path) -> None:
    """Let the user write the thesis after the writer was killed."""
    (scratch / "new" / "thesis.txt").write_text("older")
    _write_manifest(folder, scratch, ["thesis.txt"])
    (folder / "thesis.txt").write_text("written since")


def _pipe_as_lock(folder: Path, scratch: Path) -> None:
    """Let the lock be a pipe, which would block whoever opens it."""
    (scratch / "in-use").unlink()
    os.mkfifo(scratch / "in-use")


@pytest.mark.parametrize(
    "plant",
    [
        _link_as_new,
        _file_in("new"),
        _file_in("old"),
        _copied_manifest,
        _newer_file,
        _pipe_as_lock,
    ],
)
def test_planted_scratch_folders_move_nothing(
    tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    """A scratch folder that no writer of this place has left changes no file."""
    scratch = tmp_path / ".earatlas-dead"
    for name in ("new", "old"):
        (scratch / name).mkdir(parents=True)
    (scratch / "in-use").touch()
    (tmp_path / "thesis.txt").write_text("mine")
    plant(tmp_path, scratch)

    def files() -> dict[Path, str]:
        return {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}

    before = files()
    with pytest.warns(EaratlasWarning, match=r"Nothing was moved\. (Delete it|The )"):
        check_writable(tmp_path / "other")
    assert files() == before
    shutil.rmtree(scratch)
    check_writable(tmp_path / "other")


def test_refusal_says_where_the_previous_results_are(tmp_path: Path) -> None:
    """After a power cut without a manifest, the scratch folder has the only copy of them."""
    scratch = _leave_scratch(tmp_path, complete=True)
    (scratch / "complete").write_text("")
    with pytest.warns(EaratlasWarning, match="Nothing was moved") as caught:
        check_writable(tmp_path / "other")
    (text,) = [str(one.message) for one in caught]
    assert f"previous results may be in '{scratch / 'old'}'" in text
    assert f"new results may be in '{scratch / 'new'}'" in text
    assert "Delete it" not in text
    assert (scratch / "old" / "b").read_text() == "old"


def test_messages_name_the_file_that_was_asked_for(tmp_path: Path) -> None:
    """A file that cannot be written in a scratch folder is named by its destination."""
    (tmp_path / "new").mkdir()
    with (
        pytest.raises(InputError, match=f"got '{tmp_path}/new/x' "),
        atomic_write_all(tmp_path / "new") as new,
        atomic_write(new / "x"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_folders_that_only_have_the_name_are_kept(tmp_path: Path) -> None:
    """An old folder of the user with the prefix of scratch folders is not removed."""
    notes = tmp_path / ".earatlas-notes"
    notes.mkdir()
    (notes / "notes.txt").write_text("mine")
    os.utime(notes, (0, 0))
    check_writable(tmp_path / "other")
    assert (notes / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("failing", ["in-use", "b"])
def test_no_folder_is_left_without_free_inodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """A scratch folder without a lock, and the parent of a missing folder, are removed."""

    def fail(original: Any) -> Any:
        def call(path: Path, *arguments: Any, **options: Any) -> Any:
            if path.name == failing:
                raise OSError(errno.ENOSPC, "No space left on device")
            return original(path, *arguments, **options)

        return call

    monkeypatch.setattr(Path, "open", fail(Path.open))
    monkeypatch.setattr(Path, "mkdir", fail(Path.mkdir))
    with (
        pytest.raises((InputError, OSError), match="No space left"),
        output_folder(tmp_path / "a" / "b"),
        atomic_write(tmp_path / "a" / "b" / "x"),
    ):
        pytest.fail("nothing can be created")
    assert not list(tmp_path.iterdir())


def test_pipes_and_devices_are_refused(tmp_path: Path) -> None:
    """Pipes, and devices such as /dev/null, are not replaced by a file."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(InputError, match="got the pipe or device"):
            check_writable(path)


def test_an_exclusive_folder_has_one_user(tmp_path: Path) -> None:
    """A second user is refused while the first one lives; nothing is left behind."""
    with exclusive_folder(tmp_path, "studio"):
        with (
            pytest.raises(InputError, match="must not be used by another studio"),
            exclusive_folder(tmp_path, "studio"),
        ):
            pass
        assert list(tmp_path.iterdir())  # the refused user did not remove the lock of the first
    assert list(tmp_path.iterdir()) == []
    with exclusive_folder(tmp_path, "studio"):
        pass


def test_the_lock_of_a_folder_changes_no_file(tmp_path: Path) -> None:
    """A link with the name of the lock is refused and creates nothing; a pipe does not block."""
    (tmp_path / "thesis.txt").write_text("text")
    lock = tmp_path / ".studio-in-use"
    for target in ("thesis.txt", "gone.txt"):
        lock.symlink_to(tmp_path / target)
        with pytest.raises(InputError, match="writable"), exclusive_folder(tmp_path, "studio"):
            pass
        lock.unlink()
    assert (tmp_path / "thesis.txt").read_text() == "text"
    assert not (tmp_path / "gone.txt").exists()
    os.mkfifo(lock)
    with exclusive_folder(tmp_path, "studio"):
        pass
    lock.mkdir()
    with (
        pytest.raises(InputError, match="folder must be writable"),
        exclusive_folder(tmp_path, "studio"),
    ):
        pass
