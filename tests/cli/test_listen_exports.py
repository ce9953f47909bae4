"""Receivers of `listen --separate`: files that must not be replaced, and failures to open."""

import os
from pathlib import Path

import pytest

from earatlas.cli.listen_exports import ListenExports, parse_udp_address
from earatlas.errors import InputError
from earatlas.interchange.rttm import RttmSink


def test_two_outputs_in_one_file_are_refused(tmp_path: Path) -> None:
    """Whether the file exists or not, and however it is named."""
    (tmp_path / "folder").mkdir()
    same = tmp_path / "folder" / ".." / "x.txt"
    for _ in range(2):
        with pytest.raises(InputError, match="rttm and dcase must be two files"):
            ListenExports(tmp_path / "x.txt", same, force=True).check()
        (tmp_path / "x.txt").touch()
    ListenExports(tmp_path / "x.txt", tmp_path / "y.txt").check()


@pytest.mark.parametrize("option", ["rttm", "dcase"])
def test_files_that_are_read_are_not_replaced(option: str, tmp_path: Path) -> None:
    """Neither the recording nor a link to it is an output, even with --force."""
    recording = tmp_path / "party.wav"
    recording.write_bytes(b"sound")
    os.link(recording, tmp_path / "link")
    for path in (recording, tmp_path / "link"):
        exports = ListenExports(**{option: path}, force=True)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="must not be a file that this command reads"):
            exports.check(None, recording)
        exports.check(None, tmp_path / "other.wav")


def test_opened_receivers_are_closed_if_another_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of the second file closes the first one."""
    closed: list[RttmSink] = []
    close = RttmSink.close

    def record(sink: RttmSink) -> None:
        closed.append(sink)
        close(sink)

    monkeypatch.setattr(RttmSink, "close", record)
    with pytest.raises(InputError, match="must be a file that can be written"):
        ListenExports(tmp_path / "x.rttm", tmp_path / "no" / "x.csv").open()
    assert len(closed) == 1


def test_invalid_address_replaces_no_file(tmp_path: Path) -> None:
    """Files are opened after the connections."""
    pytest.importorskip("pythonosc", reason="needs the extra earatlas[osc]")
    path = tmp_path / "x.rttm"
    path.write_text("earlier")
    for address in ("a..b:9000", "host:x"):
        with pytest.raises(InputError, match="osc must be HOST:PORT"):
            ListenExports(path, osc=address, force=True).open()
    assert path.read_text() == "earlier"


@pytest.mark.parametrize("port", ["", "x", "-1", "65536", "\N{SUPERSCRIPT TWO}", "9" * 5000])
def test_invalid_ports_are_refused(port: str) -> None:
    """Numbers that are no ports give one sentence."""
    with pytest.raises(InputError, match="osc must be HOST:PORT or PORT"):
        parse_udp_address(f"host:{port}", "osc")
    assert parse_udp_address("9000", "osc") == ("127.0.0.1", 9000)
