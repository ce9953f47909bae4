"""Files appear whole or not at all, alone and together."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from earatlas.errors import InputError
from earatlas.files import check_writable, written_together, written_whole


def test_a_file_is_replaced_when_it_is_complete(tmp_path: Path) -> None:
    """Until then the old one is there, and afterwards nothing is left of the scratch folder."""
    path = tmp_path / "x.txt"
    path.write_text("old")
    with written_whole(path) as scratch:
        assert scratch.name == path.name
        scratch.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    """Whatever went wrong while it was written."""
    path = tmp_path / "x.txt"
    path.write_text("old")

    def write_half() -> None:
        with written_whole(path) as scratch:
            scratch.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_has_the_rights_of_any_other(tmp_path: Path) -> None:
    """Those that the umask leaves, and the umask itself is never touched."""
    before = os.umask(0o027)
    try:
        with written_whole(tmp_path / "x") as scratch:
            scratch.write_text("")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640


def test_what_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    """A folder, a folder that is missing, and a name that is no folder."""
    (tmp_path / "file").write_text("")
    check_writable(tmp_path / "new.txt")
    for bad in (tmp_path, tmp_path / "no" / "x", tmp_path / "file" / "x"):
        with pytest.raises(InputError, match="output must be a file in a folder that exists"):
            check_writable(bad)
    with (
        pytest.raises(InputError, match="report must be a file that can be written"),
        written_whole(tmp_path / "no" / "x", "report"),
    ):
        pytest.fail("there is no such folder")


def test_files_come_together(tmp_path: Path) -> None:
    """New ones replace those of their names and those they are to replace; others stay."""
    for name in ("a", "b", "mine"):
        (tmp_path / name).write_text("old")
    with written_together(tmp_path, instead_of=["b", "absent"]) as new:
        (new / "a").write_text("new")
        (new / "c").write_text("new")
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {"a": "new", "c": "new", "mine": "old"}


def test_files_come_together_or_not_at_all(tmp_path: Path) -> None:
    """One that cannot take its place takes all the others back."""
    (tmp_path / "a").write_text("old")
    (tmp_path / "b").mkdir()

    def write() -> None:
        with written_together(tmp_path) as new:
            (new / "a").write_text("new")
            (new / "b").write_text("new")

    with pytest.raises(OSError, match="b"):
        write()
    assert (tmp_path / "a").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_what_is_complete_is_on_the_disk_before_it_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut after the rename must not leave an empty file in the place of the old one."""
    done: list[str] = []

    def tell(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def told(*arguments: Any) -> Any:
            done.append(name)
            return real(*arguments)

        monkeypatch.setattr(owner, name, told)

    tell(os, "fsync")
    tell(Path, "replace")
    with written_whole(tmp_path / "x") as scratch:
        scratch.write_text("new")
    assert done == ["fsync", "replace", "fsync"]
    done.clear()
    with written_together(tmp_path) as folder:
        for name in "ab":
            (folder / name).write_text("new")
    assert done == ["fsync", "fsync", "replace", "replace", "fsync"]


_WRITER = """
import sys, time
from pathlib import Path
from typing import Any
from earatlas.files import written_together, written_whole
folder = Path(sys.argv[1])
with written_whole(folder / "x") as alone, written_together(folder) as several:
    alone.write_text("half")
    (several / "y").write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


def test_scratch_folders_of_the_dead_are_removed(tmp_path: Path) -> None:
    """Those of a writer that lives stay; after kill -9 the next writer removes them."""
    (tmp_path / "x").write_text("old")
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        with written_whole(tmp_path / "z") as scratch:
            scratch.write_text("")
        assert len(list(tmp_path.glob(".earatlas-*"))) == 2
        writer.kill()
    assert len(list(tmp_path.glob(".earatlas-*"))) == 2
    check_writable(tmp_path / "z")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "z"]
    assert (tmp_path / "x").read_text() == "old"


def _left(folder: Path, *, complete: bool) -> None:
    """What a writer leaves that was killed while it moved files: a and b were old, a is moved."""
    scratch = folder / ".earatlas-dead"
    for name in ("new", "old"):
        (scratch / name).mkdir(parents=True)
    (scratch / "in-use").touch()
    (scratch / "old" / "a").write_text("old")
    (scratch / "old" / "b").write_text("old")
    (scratch / "new" / "b").write_text("new")
    (folder / "a").write_text("new")
    if complete:
        (scratch / "complete").touch()


@pytest.mark.parametrize(("complete", "found"), [(True, "new"), (False, "old")])
def test_files_come_together_even_if_their_writer_is_killed(
    tmp_path: Path, complete: bool, found: str
) -> None:
    """The next writer ends what was begun: forward once all was complete, or else back."""
    _left(tmp_path, complete=complete)
    check_writable(tmp_path / "other")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"a": found, "b": found}


def test_scratch_folders_that_may_be_a_trap_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another user, a link, and one that is just being made: its lock is not there yet."""
    _left(tmp_path, complete=True)
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


def test_pipes_and_devices_are_no_output(tmp_path: Path) -> None:
    """The file would take the place of the pipe; nobody means that, and /dev/null would be gone."""
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(InputError, match="got the pipe or device"):
            check_writable(place)
