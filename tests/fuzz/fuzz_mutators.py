"""Seeded mutations of files: bytes, text and JSON, truncated and concatenated files.

A mutator takes the bytes of a valid file and a random generator, and returns the mutated bytes.
"""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "Format",
    "Mutator",
    "concatenated",
    "mixed",
    "mutated_bytes",
    "mutated_json",
    "mutated_text",
    "mutated_value",
    "truncated",
]

Random = np.random.Generator
Mutator = Callable[[bytes, Random], bytes]


@dataclass(frozen=True)
class Format:
    """A format: valid files, a mutator, and a function that uses a file."""

    name: str
    file: str  # name of a mutant
    make: Callable[[Path], list[bytes]]  # creates valid files, and others that they need
    mutate: Mutator
    use: Callable[[Path], object]  # as a command would


_WHOLE = (0, 1, 2, 7, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1)
_REAL = (0.0, -0.0, 1e-300, 1e300, -1e300, 1e12, float("nan"), float("inf"), -float("inf"))
_WORDS = ("", "x" * 300, "\x1b[2J", "../../x", "/dev/zero", "NaN", "1e999", "1,5", "\u202e", "\0")


def _choice(random: Random, options: Any) -> Any:
    return options[int(random.integers(len(options)))]


def _flip(blob: bytearray, random: Random) -> None:
    blob[int(random.integers(len(blob)))] ^= 1 << int(random.integers(8))


def _set(blob: bytearray, random: Random) -> None:
    blob[int(random.integers(len(blob)))] = _choice(random, (0, 1, 127, 128, 255))


def _number(blob: bytearray, random: Random) -> None:
    """Write an integer or a float of any width and byte order, as in headers."""
    if random.integers(3):
        size, order = _choice(random, (1, 2, 3, 4, 8)), _choice(random, ("little", "big"))
        raw = (_choice(random, _WHOLE) & (256**size - 1)).to_bytes(size, order)
    else:
        raw = struct.pack(
            _choice(random, ("<f", ">f", "<d", ">d"))[0] + "d", _choice(random, _REAL)
        )
    at = int(random.integers(len(blob)))
    blob[at : at + len(raw)] = raw[: len(blob) - at]


def _cut(blob: bytearray, random: Random) -> None:
    del blob[int(random.integers(len(blob))) :]


def _drop(blob: bytearray, random: Random) -> None:
    at = int(random.integers(len(blob)))
    del blob[at : at + int(random.integers(1, 65))]


def _repeat(blob: bytearray, random: Random) -> None:
    at = int(random.integers(len(blob)))
    blob[at:at] = blob[at : at + int(random.integers(1, 65))] * int(random.integers(1, 5))


def _insert(blob: bytearray, random: Random) -> None:
    at = int(random.integers(len(blob)))
    blob[at:at] = random.bytes(int(random.integers(1, 17)))


def _swap(blob: bytearray, random: Random) -> None:
    size = int(random.integers(1, 33))
    a, b = sorted(int(random.integers(len(blob))) for _ in range(2))
    if a + size <= b and b + size <= len(blob):
        blob[a : a + size], blob[b : b + size] = blob[b : b + size], blob[a : a + size]


_EDITS = (_flip, _flip, _flip, _set, _set, _number, _number, _number, _cut, _drop, _repeat, _insert,
          _swap)  # fmt: skip


def mutated_bytes(blob: bytes, random: Random) -> bytes:
    """Apply one to eight edits, half of them in the first 256 bytes (the header)."""
    new = bytearray(blob)
    for _ in range(int(random.integers(1, 9))):
        edit = _choice(random, _EDITS)
        if random.integers(2):
            head = new[:256]
            if head:
                edit(head, random)
                new[:256] = head
        elif new:
            edit(new, random)
    return bytes(new)


def mutated_text(blob: bytes, random: Random) -> bytes:
    """Change cells, separators and lines of a table."""
    lines = blob.decode().split("\n")
    for _ in range(int(random.integers(1, 4))):
        at = int(random.integers(len(lines)))
        cells = lines[at].split(",")
        match int(random.integers(5)):
            case 0:
                value = _choice(random, (*_WORDS, *map(str, _REAL), *map(str, _WHOLE)))
                cells[int(random.integers(len(cells)))] = value
            case 1:
                cells.append(_choice(random, _WORDS))
            case 2:
                cells.pop()
            case 3:
                cells = _choice(random, (";", "\t", ",,", '"', " , ")).join(cells).split(",")
            case 4:
                lines.insert(at, lines[at])
        lines[at] = ",".join(cells)
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def mutated_value(value: Any, random: Random) -> Any:
    """Replace, remove or nest one value of a JSON document."""
    if isinstance(value, dict) and value and random.integers(8):
        key = _choice(random, sorted(value))
        if not random.integers(6):
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: mutated_value(value[key], random)}
    if isinstance(value, list) and value and random.integers(6):
        at = int(random.integers(len(value)))
        return [*value[:at], mutated_value(value[at], random), *value[at + 1 :]]
    deep: Any = []
    for _ in range(50):
        deep = [deep]
    other: tuple[Any, ...] = (None, True, [], {}, [value], [value] * 40, deep, 10**30, -1, 0.5)
    if isinstance(value, int | float) and not isinstance(value, bool) and random.integers(2):
        return value * _choice(random, (-1, 2, 0.5, 1000, 1e-9))
    return _choice(random, (*_WORDS, *_REAL, *_WHOLE, *other))


def mutated_json(blob: bytes, random: Random) -> bytes:
    """Change one to three values of a JSON file; sometimes add very long numbers or nesting."""
    value = json.loads(blob)
    for _ in range(int(random.integers(1, 4))):
        value = mutated_value(value, random)
    text = json.dumps(value)
    if not random.integers(10):
        digits = _choice(random, ("9" * 400, "9" * 5000, "[" * 5000, "1e400", "-"))
        text = text.replace(_choice(random, "0123456789[]"), digits, 1)
    return text.encode()


def truncated(blob: bytes, random: Random) -> bytes:
    """Remove the end of a file, half of the times only a few bytes."""
    count = int(random.integers(1, 65)) if random.integers(2) else int(random.integers(len(blob)))
    return blob[: max(len(blob) - count, 0)]


def concatenated(blob: bytes, random: Random) -> bytes:
    """Append the file to itself, sometimes with tags between, or after other bytes."""
    tag = b"ID3\x03\0\0\0\0\0\x14" + bytes(20)
    between: bytes = _choice(
        random, (b"", b"", tag, b"TAG".ljust(128), bytes(int(random.integers(9))))
    )
    before: bytes = _choice(random, (b"", b"", b"", tag))
    return before + between.join([blob] * int(random.integers(2, 4)))


def mixed(*mutators: Mutator) -> Mutator:
    """Return a mutator that applies one of several, chosen at random."""
    return lambda blob, random: _choice(random, mutators)(blob, random)
