"""Channels of the ears in live input: devices, standard input and files."""

import io
import itertools
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import earatlas as ea
from earatlas.cli.audio_input import AudioInput, PcmFormat
from earatlas.errors import InputError

SAMPLES = np.arange(4)[:, None] / 8 + np.linspace(0.0, 0.1, 800)  # (4, n), a level per channel


def make_input(**options: Any) -> AudioInput:
    """Return an input with raw samples of four channels at 8 kHz."""
    defaults: dict[str, Any] = {
        "file": None, "stdin": False, "device": None, "rate": 8000, "form": PcmFormat.f32,
        "channels": 4, "fast": False,
    }  # fmt: skip
    return AudioInput(**{**defaults, **options})


def test_ears_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device is opened with as many channels as needed, by number or by name."""
    opened: list[dict[str, Any]] = []

    class InputStream:
        def __init__(self, **settings: Any) -> None:
            opened.append(settings)

        def __enter__(self) -> "InputStream":
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def read(self, size: int) -> tuple[np.ndarray, bool]:
            return SAMPLES[: opened[-1]["channels"], :size].T, False

    fake = SimpleNamespace(InputStream=InputStream, PortAudioError=RuntimeError)
    monkeypatch.setitem(sys.modules, "sounddevice", fake)
    for device, number in (("JACK", "JACK"), ("3", 3)):
        blocks = make_input(device=device, ears=(3, 1)).blocks(0.05)
        (block,) = itertools.islice(blocks, 1)
        np.testing.assert_allclose(block, SAMPLES[[3, 1], :400])
        assert opened[-1]["channels"] == 4
        assert opened[-1]["device"] == number
    (block,) = itertools.islice(make_input().blocks(0.05), 1)
    np.testing.assert_allclose(block, SAMPLES[:2, :400])
    assert opened[-1]["channels"] == 2


def test_ears_of_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interleaved samples of all channels are read, and two of them are used."""
    raw = io.BytesIO(SAMPLES.T.astype("<f4").tobytes())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=raw))
    found = np.concatenate(list(make_input(stdin=True, ears=(2, 0)).blocks(0.03)), axis=1)
    np.testing.assert_allclose(found, SAMPLES[[2, 0]], atol=1e-6)


def test_ears_of_a_file(tmp_path: Path) -> None:
    """A file with more channels plays those of the ears."""
    file = ea.Audio(SAMPLES, 8000).write(tmp_path / "four.wav")
    found = np.concatenate(list(make_input(file=file, fast=True, ears=(3, 2)).blocks(0.03)), axis=1)
    np.testing.assert_allclose(found, SAMPLES[[3, 2]], atol=1e-6)


@pytest.mark.parametrize(
    ("ears", "message"),
    [((1, 1), "two different"), ((0, 64), "from 0 to 63"), ((0, 5), "--channels 6")],
)
def test_invalid_ears(ears: tuple[int, int], message: str) -> None:
    """Equal channels, and channels that the input does not have, are refused."""
    with pytest.raises(InputError, match=message):
        make_input(stdin=True, ears=ears)
