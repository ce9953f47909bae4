"""What a SOFA file (AES69) says: directions as the listener hears them, and responses.

In: a file of a convention that holds impulse responses of two ears (HRIR, BRIR). Out: `SofaData`,
with Data.Delay put in. Files in the wild break the standard in harmless ways (latin-1 text, old
versions, missing attributes): what fails verification is read all the same, with a word about it,
as long as the numbers can be used. The numbers come from the netCDF file itself; sofar, which fills
in defaults and drops axes of size 1, only verifies.

A file may lie about what it holds: nothing is read before its size is known and allowed. And it may
crash the library that reads it: `earatlas.hrtf.sofa` reads in a process of its own.

    M, R, N, E    measurements, receivers (ears), samples, emitters, as in the standard
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from earatlas.errors import InputError, brief
from earatlas.geometry.angles import to_directions, to_vectors
from earatlas.types import Array

if TYPE_CHECKING:
    import netCDF4

__all__ = ["SofaData", "read_sofa_file"]

_CONVENTIONS = (
    "SimpleFreeFieldHRIR",
    "FreeFieldHRIR",
    "GeneralFIR",
    "GeneralFIR-E",
    "GeneralFIRE",
    "SingleRoomDRIR",
    "SingleRoomSRIR",
    "SingleRoomMIMOSRIR",
    "MultiSpeakerBRIR",
)
_UNWRITTEN = 1e30  # netCDF fills what was never written with 1e37; no sample is that large
_RATES = 1000.0, 1e6  # Hz: below there are no cues; nobody measures above
_REASONS = {-51: "it is no netCDF file", -101: "it is cut short, or broken inside"}  # of netCDF-C
_LONGEST_TEXT = 10_000  # letters of an attribute: some hold a whole licence
# A number takes 8 bytes in memory. Compressed files of measured heads hold 1.6 (KU100), 2.2 (CIPIC)
# and, of 16-bit samples, 5.4 (KEMAR) times their length; of what is never written, anything.
_BYTES_A_BYTE, _SMALL_BYTES = 8, 32 << 20


@dataclass(frozen=True, eq=False, slots=True)
class SofaData:
    """What a file says: each direction with its two responses, and words about itself."""

    directions: Array  # (N, 2) degrees
    responses: Array  # (N, 2, taps)
    rate: float  # Hz
    about: dict[str, str]  # global attributes
    fault: str = ""  # what is wrong by the standard, in a few words


def read_sofa_file(path: Path) -> SofaData:
    """Read a file in this process; an InputError says why it cannot be used."""
    import netCDF4  # slow to import, and only SOFA files need it

    try:
        with _plain_name(path) as name, netCDF4.Dataset(name) as file:
            data = _SofaFile(path, file).read()
    except InputError:
        raise
    except MemoryError:
        raise InputError(_too_large(path)) from None
    except Exception as error:  # of many kinds, as are the ways in which a file can be broken
        raise InputError(
            f"head must be a SOFA (netCDF-4) file, got '{path}', which cannot be read "
            f"({_reason(error)}). Check that it is complete."
        ) from error
    return replace(data, fault="; ".join(filter(None, (data.fault, _fault(path)))))


@contextmanager
def _plain_name(path: Path) -> Iterator[str]:
    """A name of the file that netCDF takes: where it is no UTF-8, the number of the open file."""
    name = os.path.abspath(path)
    if _is_utf8(name):
        yield name
        return
    with path.open("rb") as file:
        yield f"/dev/fd/{file.fileno()}"


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _too_large(path: Path) -> str:
    return (
        f"head must hold the numbers that it tells of, got '{path}' of {path.stat().st_size} bytes "
        "that asks for much more memory than that. Export it again."
    )


class _SofaFile:
    """An open file, and how to get from its variables to directions and responses."""

    def __init__(self, path: Path, file: netCDF4.Dataset) -> None:
        self.path, self.file = path, file
        self.foreign: set[str] = set()  # attributes whose text is no UTF-8

    def read(self) -> SofaData:
        self._check_size(sum(self._bytes(name) for name in self.file.variables))
        self._check_contents()
        rate = self._rate()
        h = self._responses()  # (M, E, 2, taps)
        vectors = self._source_vectors(h.shape[0], h.shape[1])  # (M, E, 3)
        delays = self._delays(h.shape[:-1], rate)
        self._check_size(delays.size * (h.shape[-1] + int(np.ptp(delays))) * 8)
        h = _delayed(h, delays)
        data = SofaData(
            directions=to_directions(vectors.reshape(-1, 3)),
            responses=h.reshape(-1, 2, h.shape[-1]),
            rate=rate,
            about={name: self._text(self.file, name) for name in self.file.ncattrs()},
        )
        self._check_numbers(data)
        if self.foreign:
            names = brief(", ".join(sorted(self.foreign)), 100)
            data = replace(data, fault=f"text that is not UTF-8, read as latin-1: {names}")
        return data

    def _text(self, owner: Any, name: str) -> str:
        """An attribute of the file or of a variable, in readable letters; empty if missing."""
        if name not in owner.ncattrs():
            return ""
        value = str(owner.getncattr(name))
        if "\ufffd" in value:  # it is not UTF-8; nearly all such text is latin-1
            value = str(owner.getncattr(name, encoding="latin-1"))
            self.foreign.add(name)
        return value[:_LONGEST_TEXT].strip(" \t\r\n\0")

    def _numbers(self, name: str) -> Array:
        """A variable as it stands in the file, NaN where nothing was written."""
        kind = self.file[name].dtype  # text is `str`, other types are no numpy ones
        if not isinstance(kind, np.dtype) or kind.kind not in "fiu":
            raise InputError(
                f"head must have numbers in {name}, got {brief(str(kind), 40)} in '{self.path}'. "
                "Export it again."
            )
        values = self.file[name][:]
        return np.where(np.ma.getmaskarray(values), np.nan, np.ma.getdata(values))

    def _bytes(self, name: str) -> int:
        """What a variable takes in memory, by its shape alone."""
        return 8 * math.prod(int(n) for n in self.file[name].shape)

    def _check_size(self, size: int) -> None:
        """Refuse what a file of this length does not hold, before memory is asked for."""
        if size > _BYTES_A_BYTE * self.path.stat().st_size + _SMALL_BYTES:
            raise InputError(_too_large(self.path))

    def _check_contents(self) -> None:
        convention = self._text(self.file, "SOFAConventions")
        if convention.lower() not in map(str.lower, _CONVENTIONS):
            raise InputError(
                f"head must be a SOFA file of impulse responses ({', '.join(_CONVENTIONS[:3])}, "
                f"room sets, …), got convention '{convention or 'none'}' in '{self.path}'. "
                "Convert it to SimpleFreeFieldHRIR."
            )
        for name in ("Data.IR", "Data.SamplingRate", "SourcePosition"):
            if name not in self.file.variables:
                raise InputError(
                    f"head must hold Data.IR, Data.SamplingRate and SourcePosition, got no {name} "
                    f"in '{self.path}'. The file is incomplete: fetch it again."
                )
            if 0 in self.file[name].shape:
                raise InputError(
                    f"head must have at least one direction, got an empty {name} in "
                    f"'{self.path}'. Export the file again."
                )

    def _rate(self) -> float:
        rates = np.unique(self._numbers("Data.SamplingRate"))
        if len(rates) != 1 or not (np.isfinite(rates[0]) and rates[0] > 0):
            raise InputError(
                f"head must have one positive sampling rate, got {brief(str(rates.tolist()), 60)} "
                f"Hz in '{self.path}'. Repair Data.SamplingRate."
            )
        if not _RATES[0] <= rates[0] <= _RATES[1]:
            raise InputError(
                f"head must have a sampling rate from {_RATES[0]:g} Hz to 1 MHz, got {rates[0]:g} "
                f"Hz in '{self.path}'. Repair Data.SamplingRate."
            )
        return float(rates[0])

    def _responses(self) -> Array:
        """Responses (M, E, 2, taps) as they stand in the file."""
        h = self._numbers("Data.IR")
        if h.ndim not in (3, 4) or h.shape[1] != 2:
            receivers = h.shape[1] if h.ndim > 1 else 0
            raise InputError(
                f"head must have two receivers (ears), got {receivers} in '{self.path}'. "
                "One ear carries no interaural cues: choose a binaural set."
            )
        h[np.abs(h) > _UNWRITTEN] = np.nan
        if h.ndim == 3:
            return h[:, None]
        if self._text(self.file, "DataType").upper() == "FIRE":
            return np.moveaxis(h, 2, 1)  # M R E N, the older order
        return np.moveaxis(h, 3, 1)  # M R N E

    def _delays(self, shape: tuple[int, ...], rate: float) -> Array:
        """Data.Delay in samples, of the shape (M, E, 2)."""
        if "Data.Delay" not in self.file.variables:
            return np.zeros(shape)
        delay = self._numbers("Data.Delay")
        if not (np.abs(delay) <= rate).all():
            worst = delay.flat[np.argmax(~(np.abs(delay) <= rate))]
            raise InputError(
                f"head must have every Data.Delay within 1 s, got {worst:g} samples at {rate:g} Hz "
                f"in '{self.path}'. Repair Data.Delay."
            )
        # M R E or M R in the file.
        aligned = np.moveaxis(delay, 2, 1) if delay.ndim == 3 else delay[..., None, :]
        try:
            return np.broadcast_to(aligned, shape)
        except ValueError:
            raise InputError(
                f"head must have one Data.Delay a response or an ear, got the shape {delay.shape} "
                f"in '{self.path}'. The file is inconsistent: export it again."
            ) from None

    def _source_vectors(self, measurements: int, emitters: int) -> Array:
        """Vectors (M, E, 3) from the listener to each emitter: x ahead, y left, z up."""
        with_emitters = self.file["Data.IR"].ndim == 4
        at = {
            "SourcePosition": self._positions("SourcePosition", far_away=not with_emitters),
            "ListenerPosition": self._positions("ListenerPosition"),
            "ListenerView": self._positions("ListenerView", default=(1.0, 0.0, 0.0)),
            # The standard gives ListenerUp no Type of its own.
            "ListenerUp": self._positions("ListenerUp", "ListenerView", default=(0.0, 0.0, 1.0)),
        }
        for name, rows in at.items():
            if len(rows) not in (1, measurements):
                raise InputError(
                    f"head must have one {name} a response, got {len(rows)} for {measurements} "
                    f"responses in '{self.path}'. The file is inconsistent: export it again."
                )
        source, listener, view, up = at.values()
        offsets = np.broadcast_to(source - listener, (measurements, 3))[:, None]
        if with_emitters:
            places = self._positions("EmitterPosition")
            if len(places) != emitters:
                raise InputError(
                    f"head must have one EmitterPosition an emitter, got {len(places)} for "
                    f"{emitters} emitters in '{self.path}'. The file is inconsistent: export it "
                    "again."
                )
            offsets = offsets + places
        nowhere = np.flatnonzero(~offsets.any(axis=2))
        if len(nowhere):
            raise InputError(
                f"head must have its sources away from the listener, got {len(nowhere)} at its "
                f"very place (first: number {nowhere[0]}) in '{self.path}'. Repair SourcePosition."
            )
        frames = np.broadcast_to(self._frames(view, up), (measurements, 3, 3))
        vectors: Array = np.einsum("mij,mej->mei", frames, offsets)
        return vectors

    def _frames(self, view: Array, up: Array) -> Array:
        """The listener's axes (1 or M, 3, 3): rows ahead, left, up."""
        left = np.cross(up, view)
        # The sine of the angle between them, times both lengths; NaN is no better than 0.
        lengths = np.linalg.norm(view, axis=1) * np.linalg.norm(up, axis=1)
        if not (np.linalg.norm(left, axis=1) > 1e-6 * lengths).all():
            raise InputError(
                f"head must have a ListenerView that is not along ListenerUp, and neither zero, "
                f"got {view[0].tolist()} and {up[0].tolist()} in '{self.path}'. Repair "
                "ListenerView."
            )
        left = left / np.linalg.norm(left, axis=1, keepdims=True)
        ahead = view / np.linalg.norm(view, axis=1, keepdims=True)
        ahead = np.broadcast_to(ahead, left.shape)
        return np.stack([ahead, left, np.cross(ahead, left)], axis=1)

    def _positions(
        self,
        name: str,
        described_by: str | None = None,
        *,
        default: tuple[float, float, float] = (0.0, 0.0, 0.0),
        far_away: bool = False,
    ) -> Array:
        """Cartesian rows (·, 3) of a SOFA position; `described_by` has its Type and Units.

        `far_away`: a distance of 0, or none, stands for any distance, as it does in some files.
        """
        if name not in self.file.variables:
            return np.array([default])
        rows = self._still(name)
        kind, units = self._type_and_units(described_by or name)
        if kind == "cartesian":
            return rows
        angles = np.degrees(rows[:, :2]) if units.startswith("rad") else rows[:, :2]
        distance = rows[:, 2:]
        if far_away:
            distance = np.where(distance > 0, distance, 1.0)
        return to_vectors(angles) * distance

    def _still(self, name: str) -> Array:
        """Rows (·, 3) of a position as they stand in the file: it may not move."""
        rows = self._numbers(name)
        if rows.ndim not in (2, 3) or rows.shape[1] != 3:
            raise InputError(
                f"head must have a {name} of three columns, got the shape {rows.shape} in "
                f"'{self.path}'. Add the missing column (distance in metres)."
            )
        if rows.ndim == 2:
            return rows
        if np.ptp(rows, axis=2).any():
            raise InputError(
                f"head must have {name} that does not move, got {rows.shape[2]} positions each "
                f"in '{self.path}'. Split the file by measurement."
            )
        return rows[:, :, 0]

    def _type_and_units(self, name: str) -> tuple[str, str]:
        """In lower case; where a listener or emitter says nothing, cartesian is meant."""
        kind = units = ""
        if name in self.file.variables:
            kind = self._text(self.file[name], "Type").lower()
            units = self._text(self.file[name], "Units").lower()
        if not kind and name != "SourcePosition":  # conventions differ in the default of this one
            kind = "cartesian"
        if kind not in ("cartesian", "spherical"):
            remedy = "Convert the set to directions" if "harmonics" in kind else "Repair its Type"
            raise InputError(
                f"head must have {name} of Type cartesian or spherical, got '{kind or 'none'}' in "
                f"'{self.path}'. {remedy}."
            )
        return kind, units

    def _check_numbers(self, data: SofaData) -> None:
        for name, rows in (("directions", data.directions), ("responses", data.responses)):
            bad = np.flatnonzero(~np.isfinite(rows.reshape(len(rows), -1)).all(axis=1))
            if len(bad):
                raise InputError(
                    f"head must have finite {name}, got NaN, infinity or nothing written in "
                    f"{len(bad)} of {len(rows)} (first: number {bad[0]}) in '{self.path}'. "
                    "Remove those measurements from the file."
                )


def _delayed(h: Array, delay_samples: Array) -> Array:
    """Responses (..., taps') with each one's delay applied, less the smallest delay of all.

    A delay common to all responses changes no cue. Fractions of a sample are exact up to the
    response's own bandwidth: the shift is done on its spectrum.
    """
    import scipy.fft

    shift = delay_samples - delay_samples.min()
    longest = float(shift.max())
    if longest == 0:
        return h
    margin = 0 if np.array_equal(shift, np.round(shift)) else 32  # room for the sinc's tails
    taps = h.shape[-1] + int(np.ceil(longest)) + 2 * margin
    size = scipy.fft.next_fast_len(taps, real=True)
    angles = -2 * np.pi * np.arange(size // 2 + 1) / size
    shifted = np.empty((*h.shape[:-1], taps))
    for m, response in enumerate(h):  # one measurement at a time: spectra take twice the room
        turn = np.exp(1j * angles * (shift[m] + margin)[..., None])
        shifted[m] = scipy.fft.irfft(scipy.fft.rfft(response, size) * turn, size)[..., :taps]
    return shifted


def _fault(path: Path) -> str:
    """What is wrong with the file by the standard, in a few words, or nothing."""
    import sofar

    # sofar looks for that ending alone, so HEAD.SOFA is not verified, and for names in UTF-8.
    if path.suffix != ".sofa" or not _is_utf8(str(path)):
        return ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sofar's own, about old versions
        try:
            sofa = sofar.read_sofa(str(path), verify=False, verbose=False)
            sofa.verify(mode="read")
        except Exception as error:  # of many kinds, as are the faults
            listed = [line[2:] for line in str(error).splitlines() if line.startswith("- ")]
            return listed[0][:160] if listed else _first_line(error)
    return ""


def _reason(error: Exception) -> str:
    """Why a file cannot be opened, in words: numbers of netCDF and the name again help nobody."""
    if isinstance(error, OSError) and error.strerror:
        return _REASONS.get(error.errno or 0, error.strerror.removeprefix("NetCDF: "))
    return _first_line(error)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:160].rstrip(". ")
