"""Truncated, damaged, concatenated and unsupported sound files are refused before decoding."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

import earatlas as ea
from earatlas.features import decoder
from earatlas.features.audio_files import audio_seconds, read_all_channels
from earatlas.features.containers import Container, check_container

# Name: format, subtype and byte order of libsndfile.
KINDS = {
    "wav": ("WAV", "PCM_16", "FILE"),
    "rifx": ("WAV", "PCM_16", "BIG"),
    "wavex": ("WAVEX", "FLOAT", "FILE"),
    "rf64": ("RF64", "FLOAT", "FILE"),
    "w64": ("W64", "PCM_24", "FILE"),
    "aiff": ("AIFF", "PCM_16", "FILE"),
    "aifc": ("AIFF", "FLOAT", "FILE"),
    "au": ("AU", "PCM_16", "FILE"),
    "dns": ("AU", "PCM_16", "LITTLE"),
    "caf": ("CAF", "PCM_16", "FILE"),
    "alac": ("CAF", "ALAC_16", "FILE"),
    "flac": ("FLAC", "PCM_16", "FILE"),
    "ogg": ("OGG", "VORBIS", "FILE"),
    "opus": ("OGG", "OPUS", "FILE"),
    "mp3": ("MP3", "MPEG_LAYER_III", "FILE"),
}
CHUNKED = ("wav", "rifx", "wavex", "rf64", "w64", "aiff", "aifc", "au", "dns", "caf")


def sound(folder: Path, kind: str, *, seconds: float = 0.5, rate: int = 16000) -> bytes:
    """Return a sound file with two channels of noise."""
    samples = np.random.default_rng(5).uniform(-0.4, 0.4, size=(int(seconds * rate), 2))
    file_format, subtype, order = KINDS[kind]
    soundfile.write(folder / "made", samples, rate, subtype, order, file_format)
    return (folder / "made").read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_complete_files_are_read(tmp_path: Path, kind: str) -> None:
    """All supported formats are recognized by their contents, whatever their name."""
    path = tmp_path / "sound.wav"
    path.write_bytes(sound(tmp_path, kind))
    assert KINDS[kind][0] in check_container(path).value
    assert read_all_channels(path).seconds == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kept", [0.99, 0.6])
def test_truncated_files_are_refused(tmp_path: Path, kind: str, kept: float) -> None:
    """A file without its end is not taken for a shorter recording."""
    path, whole = tmp_path / "sound", sound(tmp_path, kind)
    path.write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(ea.InputError, match="complete"):
        read_all_channels(path)


@pytest.mark.parametrize("kind", CHUNKED)
def test_headers_without_samples_are_refused(tmp_path: Path, kind: str) -> None:
    """A file that ends within its header is not taken for an empty recording."""
    path, whole = tmp_path / "sound", sound(tmp_path, kind)
    name = {"aiff": b"SSND", "aifc": b"SSND"}.get(kind, b"data")
    path.write_bytes(whole[: whole.find(name)] if name in whole else whole[:20])
    with pytest.raises(ea.InputError, match=r"cannot be read|its end is missing"):
        read_all_channels(path)


@pytest.mark.parametrize("kind", CHUNKED)
@pytest.mark.parametrize("length", [b"\0\0\0\0", b"\xff\xff\xff\xff"])
def test_files_without_a_known_length_are_accepted(
    tmp_path: Path, kind: str, length: bytes
) -> None:
    """Programs that write to a pipe leave 0 or the largest number; that is not a missing end."""
    path, whole = tmp_path / "sound", bytearray(sound(tmp_path, kind))
    if kind in ("au", "dns"):
        at, width = 8, 4
    else:
        at, width = whole.find(b"SSND" if kind.startswith("aif") else b"data") + 4, 4
        at, width = (at + 12, 8) if kind == "w64" else (at, 8 if kind == "caf" else 4)
    if kind == "rf64":
        at, width = whole.find(b"ds64") + 16, 8
    whole[at : at + width] = length * (width // 4)
    path.write_bytes(whole)
    assert isinstance(check_container(path), Container)


@pytest.mark.parametrize(
    ("kind", "name", "offset", "length"),
    [
        ("wav", b"data", 4, (3 << 30).to_bytes(4, "little")),
        ("rifx", b"data", 4, (3 << 30).to_bytes(4, "big")),
        ("rf64", b"ds64", 16, (5 << 30).to_bytes(8, "little")),
        ("w64", b"data", 16, (5 << 30).to_bytes(8, "little")),
    ],
)
def test_truncated_large_files_are_refused(
    tmp_path: Path, kind: str, name: bytes, offset: int, length: bytes
) -> None:
    """Lengths of several gigabytes are not taken for those that pipes leave."""
    path, whole = tmp_path / "sound", bytearray(sound(tmp_path, kind))
    at = whole.find(name) + offset
    whole[at : at + len(length)] = length
    path.write_bytes(whole)
    with pytest.raises(ea.InputError, match="its end is missing"):
        check_container(path)


@pytest.mark.parametrize("kind", KINDS)
def test_several_recordings_in_one_file_are_refused(tmp_path: Path, kind: str) -> None:
    """Only the first would be read; the message says so, and the parts are read."""
    path, whole = tmp_path / "sound", sound(tmp_path, kind)
    path.write_bytes(whole + whole)
    with pytest.raises(ea.InputError, match=r"contains several, one after the other.*Split it"):
        audio_seconds(path)
    path.write_bytes((whole + whole)[len(whole) :])
    assert audio_seconds(path) == pytest.approx(0.5, abs=0.1)


def _id3(size: int) -> bytes:
    return b"ID3\x03\0\0" + bytes([0, 0, size >> 7, size & 127]) + bytes(size)


def test_tags_of_mp3_files(tmp_path: Path) -> None:
    """Tags before and after the frames are accepted; a tag between two recordings is not."""
    path, whole = tmp_path / "sound.mp3", sound(tmp_path, "mp3")
    tag = b"TAG".ljust(128, b" ")
    path.write_bytes(_id3(300) + whole + tag)
    assert read_all_channels(path).seconds == pytest.approx(0.5, abs=0.1)
    for between in (_id3(20), tag, tag + _id3(20)):
        path.write_bytes(whole + between + whole)
        with pytest.raises(ea.InputError, match="contains several"):
            read_all_channels(path)


def test_mp3_streams_of_different_rates(tmp_path: Path) -> None:
    """A stream without information frames is recognized by its other rate."""
    first, second = (sound(tmp_path, "mp3", rate=rate) for rate in (16000, 24000))
    path = tmp_path / "sound.mp3"
    path.write_bytes(first + second.replace(b"Xing", b"\0\0\0\0").replace(b"Info", b"\0\0\0\0"))
    with pytest.raises(ea.InputError, match="contains several"):
        read_all_channels(path)


def test_damaged_mp3_files(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Bytes that are not frames are refused, and the decoder prints nothing about damage."""
    whole = sound(tmp_path, "mp3")
    path = tmp_path / "sound.mp3"
    middle = whole.find(whole[:2], len(whole) // 2)
    path.write_bytes(whole[:middle] + bytes(100) + whole[middle:])
    with pytest.raises(ea.InputError, match="a part of it is damaged"):
        read_all_channels(path)
    random = np.random.default_rng(7)
    for _ in range(10):
        damaged = bytearray(whole)
        for at in random.integers(600, len(whole), size=20):
            damaged[at] = int(random.integers(256))
        path.write_bytes(damaged)
        try:
            read_all_channels(path)
        except ea.InputError:
            continue
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ea.InputError, match="not complete"):
        read_all_channels(path)
    assert capfd.readouterr().err == ""


def test_damaged_alac_files(tmp_path: Path) -> None:
    """Damaged lengths of packets are refused, and the decoder prints nothing on standard output."""
    damaged = bytearray(sound(tmp_path, "alac", seconds=2.0))
    table = damaged.find(b"pakt") + 12  # its contents: a header of 24 bytes, then lengths
    end = table + int.from_bytes(damaged[table - 8 : table], "big")
    damaged[table + 26 : end] = b"\xff" * (end - table - 26)
    path = tmp_path / "sound.caf"
    path.write_bytes(damaged)
    with pytest.raises(ea.InputError, match="it is damaged at its beginning"):
        read_all_channels(path)
    # The C library writes its buffer when a process ends.
    command = f"import earatlas as ea; ea.read_audio({str(path)!r})"
    result = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=False
    )
    assert "it is damaged at its beginning" in result.stderr
    assert result.stdout == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this process decodes without forks")
def test_printing_decoders_do_not_affect_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MP3 files are decoded by another process, also several at once, without redirection here."""
    paths = [tmp_path / f"{n}.mp3" for n in range(3)]
    for n, path in enumerate(paths):
        path.write_bytes(sound(tmp_path, "mp3", seconds=0.5 + n))
    readers = [ea.read_blocks(path, block_seconds=0.1, warn=False) for path in paths]
    with monkeypatch.context() as patched:
        patched.setattr(os, "dup2", lambda *_: pytest.fail("an output was redirected"))
        first = [next(reader).seconds for reader in readers]
        rest = [sum(block.seconds for block in reader) for reader in readers]
    totals = [one + others for one, others in zip(first, rest, strict=True)]
    assert totals == pytest.approx([0.5, 1.5, 2.5], abs=0.1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this process decodes without forks")
def test_the_decoding_process_crashes(tmp_path: Path) -> None:
    """A crash of a decoder is an error about the file, and the next file is read."""
    path = tmp_path / "sound.mp3"
    path.write_bytes(sound(tmp_path, "mp3", seconds=2.0))
    blocks = ea.read_blocks(path, block_seconds=0.1, warn=False)
    next(blocks)
    process = decoder.SERVER.process
    assert process is not None
    os.killpg(process.pid, signal.SIGKILL)  # the process and the fork that reads the file
    with pytest.raises(ea.InputError, match=r"not complete.*crashes the decoder"):
        list(blocks)
    assert read_all_channels(path).seconds == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize("file_format", ["IRCAM", "VOC", "PAF", "SVX", "NIST", "MAT5", "HTK"])
def test_other_formats_are_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_format: str
) -> None:
    """Formats that nobody records in are refused before libsndfile opens them."""
    samples = np.random.default_rng(0).uniform(-0.5, 0.5, size=(900, 1))
    soundfile.write(tmp_path / "x.wav", samples, 16000, "PCM_16", format=file_format)
    plain = (tmp_path / "x.wav").read_bytes()

    def fail(*_: object) -> None:
        pytest.fail("the file was opened by libsndfile")

    monkeypatch.setattr("earatlas.features.sound_file.open_decoder", fail)
    for content in (plain, _id3(30) + plain):
        (tmp_path / "x.wav").write_bytes(content)
        with pytest.raises(ea.InputError, match="not those of a supported format"):
            read_all_channels(tmp_path / "x.wav")


def test_enormous_lengths(tmp_path: Path) -> None:
    """Lengths beyond the positions of files are refused or ignored, without an error of Python."""
    whole = bytearray(sound(tmp_path, "w64"))
    at = whole.find(b"fmt ") + 16
    whole[at : at + 8] = b"\xff" * 8
    (tmp_path / "x.w64").write_bytes(whole)
    with pytest.raises(ea.InputError):
        read_all_channels(tmp_path / "x.w64")
