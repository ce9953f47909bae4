"""Files appear whole or not at all, alone and together."""

import os
import stat
from pathlib import Path

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
