"""Contents of a SOFA file (AES69): directions relative to the listener, and impulse responses.

The input is a file of a convention with impulse responses of two or more ears (HRIR, BRIR) or with
transfer functions (HRTF). The output is `SofaData`, with Data.Delay applied. Many files violate the
standard in harmless ways (latin-1 text, old versions, missing attributes); they are read with a
note as long as their numbers can be used. The numbers come from the netCDF file itself. sofar,
which fills in defaults and drops axes of size 1, only verifies the file.

A malicious file may announce more data than it contains, so nothing is read before its size has
been checked. It may also refer to other files (`earatlas.hrtf.hdf5_links`). Files that crash the
library are handled by `earatlas.hrtf.sofa_subprocess`.

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

from earatlas.errors import InputError, abbreviate
from earatlas.features.sound_file import SUPPORTED_RATES_HZ
from earatlas.geometry.angles import to_directions, to_vectors
from earatlas.hrtf.hdf5_links import find_foreign_object
from earatlas.hrtf.sofa_transfer_functions import responses_from_transfer_functions
from earatlas.numerics import fast_fft_length
from earatlas.types import Array

if TYPE_CHECKING:
    import netCDF4

__all__ = ["SofaData", "SofaLimits", "read_sofa_file"]

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
    "SimpleFreeFieldHRTF",
    "FreeFieldHRTF",
    "GeneralTF",
    "GeneralTF-E",
)

# Reasons for the error codes of netCDF-C.
_ERROR_REASONS = {-51: "it is not a netCDF file", -101: "it is truncated or damaged"}


# Evidence: docs/figures/settings/hrtf.md, "sofa_file".
@dataclass(frozen=True, slots=True)
class SofaLimits:
    """Limits for the contents of a SOFA file, and for the process that reads it."""

    max_text_length: int = 10_000  # characters of an attribute; some contain a whole licence
    max_delay_seconds: float = 1.0  # largest accepted Data.Delay
    data_per_byte: int = 8  # memory of the data per byte of the file
    data_bytes: int = 32 << 20  # memory that the data may take in addition
    memory_per_byte: int = 24  # memory of the process per byte: the data exist three times
    memory_bytes: int = 200 << 20  # memory that the process may take in addition
    bytes_per_second: float = 10e6  # bytes of the file per second of processor time
    seconds: int = 10  # processor time that the process may take in addition
    wall_factor: int = 6  # wall-clock time over processor time, at most


LIMITS = SofaLimits()


@dataclass(frozen=True, eq=False, slots=True)
class SofaData:
    """Contents of a SOFA file: directions, impulse responses and global attributes."""

    directions: Array  # (N, 2), degrees
    responses: Array  # (N, R, taps), of all receivers
    rate: float  # Hz
    attributes: dict[str, str]  # global attributes
    violation: str = ""  # how the file violates the standard, in a few words


def read_sofa_file(path: Path) -> SofaData:
    """Read a file in this process; raise InputError if it cannot be used."""
    import netCDF4  # imported here because it is slow

    foreign = find_foreign_object(path)
    if foreign is not None:
        raise InputError(
            f"A SOFA file must contain its own data and nothing else, got {foreign.value} in "
            f"'{path}'. Export it again, as one file."
        )
    try:
        with _netcdf_name(path) as name, netCDF4.Dataset(name) as file:
            data = _SofaFile(path, file).read()
    except InputError:
        raise
    except MemoryError:
        raise _too_large_error(path) from None
    except Exception as error:  # netCDF4 raises errors of many types
        raise InputError(
            f"The file '{path}' cannot be read as a SOFA (netCDF-4) file ({_reason(error)}). "
            "Check that it is complete."
        ) from error
    return replace(data, violation="; ".join(filter(None, (data.violation, _verify(path)))))


@contextmanager
def _netcdf_name(path: Path) -> Iterator[str]:
    """Yield a name that netCDF accepts; names that are not UTF-8 become that of an open file."""
    name = os.path.abspath(path)
    if _is_utf8(name):
        yield name
        return
    with path.open("rb") as file:
        yield f"/dev/fd/{file.fileno()}"


def _is_utf8(name: str) -> bool:
    """Return whether a file name can be encoded as UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _too_large_error(path: Path) -> InputError:
    return InputError(
        f"The file '{path}' has {path.stat().st_size} bytes but announces data that need much more "
        "memory than that. Export it again."
    )


class _SofaFile:
    """An open file, whose variables are converted to directions and responses."""

    def __init__(self, path: Path, file: netCDF4.Dataset) -> None:
        self.path, self.file = path, file
        self.latin1: set[str] = set()  # attributes whose text is not UTF-8
        # Transfer functions instead of impulse responses: data types TF and TF-E.
        self.is_spectral = "Data.Real" in file.variables and "Data.IR" not in file.variables
        self.data = "Data.Real" if self.is_spectral else "Data.IR"

    def read(self) -> SofaData:
        self._check_size(sum(self._bytes(name) for name in self.file.variables))
        self._check_contents()
        if self.is_spectral:
            h, rate = self._responses_of_spectra()
        else:
            h, rate = self._axes_in_order(self._numbers("Data.IR")), self._rate()
        # h is (M, E, R, taps)
        vectors = self._source_vectors(h.shape[0], h.shape[1])  # (M, E, 3)
        delays = self._delays(h.shape[:-1], rate)
        self._check_size(delays.size * (h.shape[-1] + int(np.ptp(delays))) * 8)
        h = _apply_delays(h, delays)
        data = SofaData(
            directions=to_directions(vectors.reshape(-1, 3)),
            responses=h.reshape(-1, *h.shape[2:]),
            rate=rate,
            attributes={name: self._text(self.file, name) for name in self.file.ncattrs()},
        )
        self._check_numbers(data)
        if self.latin1:
            names = abbreviate(", ".join(sorted(self.latin1)), 100)
            data = replace(data, violation=f"text that is not UTF-8, read as latin-1: {names}")
        return data

    def _text(self, owner: Any, name: str) -> str:
        """Return an attribute of the file or of a variable as text; empty if missing."""
        if name not in owner.ncattrs():
            return ""
        value = str(owner.getncattr(name))
        if "\ufffd" in value:  # not UTF-8; nearly all such text is latin-1
            value = str(owner.getncattr(name, encoding="latin-1"))
            self.latin1.add(name)
        return value[: LIMITS.max_text_length].strip(" \t\r\n\0")

    def _numbers(self, name: str) -> Array:
        """Return a numeric variable, with NaN where nothing was written."""
        dtype = self.file[name].dtype  # `str` for text; other types are not numpy types
        if not isinstance(dtype, np.dtype) or dtype.kind not in "fiu":
            raise InputError(
                f"{name} must contain numbers, got {abbreviate(str(dtype), 40)} in '{self.path}'. "
                "Export the file again."
            )
        values = self.file[name][:]
        return np.where(np.ma.getmaskarray(values), np.nan, np.ma.getdata(values))

    def _bytes(self, name: str) -> int:
        """Return the memory that a variable takes as float64, by its shape alone."""
        return 8 * math.prod(int(n) for n in self.file[name].shape)

    def _check_size(self, size: int) -> None:
        """Raise InputError before more memory is allocated than the file can contain."""
        if size > LIMITS.data_per_byte * self.path.stat().st_size + LIMITS.data_bytes:
            raise _too_large_error(self.path)

    def _check_contents(self) -> None:
        """Check the convention and the presence of the necessary variables."""
        convention = self._text(self.file, "SOFAConventions")
        if convention.lower() not in map(str.lower, _CONVENTIONS):
            raise InputError(
                f"The file '{self.path}' has the SOFA convention '{convention or 'none'}', but one "
                f"with impulse responses is needed ({', '.join(_CONVENTIONS[:3])}, room sets, …). "
                "Convert it to SimpleFreeFieldHRIR."
            )
        data = (
            ("Data.Real", "Data.Imag", "N")
            if self.is_spectral
            else ("Data.IR", "Data.SamplingRate")
        )
        for name in (*data, "SourcePosition"):
            if name not in self.file.variables:
                raise InputError(
                    f"The file '{self.path}' is incomplete: it has no {name}. Download or export "
                    "it again."
                )
            if 0 in self.file[name].shape:
                raise InputError(
                    f"The file '{self.path}' has no directions: {name} is empty. Export it again."
                )

    def _rate(self) -> float:
        """Return the sampling rate in Hz."""
        return self._check_rate(np.unique(self._numbers("Data.SamplingRate")))

    def _check_rate(self, rates: Array) -> float:
        """Return the only sampling rate in Hz."""
        if len(rates) != 1 or not (np.isfinite(rates[0]) and rates[0] > 0):
            raise InputError(
                f"The head must have one positive sampling rate, got "
                f"{abbreviate(str(rates.tolist()), 60)} Hz in '{self.path}'. Repair "
                "Data.SamplingRate."
            )
        lowest, highest = SUPPORTED_RATES_HZ
        if not lowest <= rates[0] <= highest:
            raise InputError(
                f"The head must have a sampling rate from {lowest} Hz to 1 MHz, got "
                f"{rates[0]:g} Hz in '{self.path}'. Repair Data.SamplingRate."
            )
        return float(rates[0])

    def _responses_of_spectra(self) -> tuple[Array, float]:
        """Return the responses (M, E, R, taps) of transfer functions, and their sampling rate."""
        real, imaginary = self._numbers("Data.Real"), self._numbers("Data.Imag")
        frequencies = self._numbers("N").ravel()
        expected = real.shape[2] if real.ndim > 2 else 0
        if real.shape != imaginary.shape or len(frequencies) != expected:
            raise InputError(
                f"Data.Real and Data.Imag must have one value per frequency, got the shapes "
                f"{real.shape} and {imaginary.shape} for {len(frequencies)} frequencies in "
                f"'{self.path}'. The file is inconsistent: export it again."
            )
        spectra = self._axes_in_order(real) + 1j * self._axes_in_order(imaginary)
        try:
            h, rate = responses_from_transfer_functions(frequencies, spectra)
        except InputError as error:
            raise InputError(f"The file '{self.path}' cannot be used: {error}") from error
        return h, self._check_rate(np.array([rate]))

    def _axes_in_order(self, h: Array) -> Array:
        """Return responses or spectra with the axes (M, E, R, N)."""
        if h.ndim not in (3, 4) or h.shape[1] < 2:
            receivers = h.shape[1] if h.ndim > 1 else 0
            raise InputError(
                f"The head must have two receivers (ears), got {receivers} in '{self.path}'. "
                "Choose a binaural set, because one ear carries no interaural cues."
            )
        h[np.abs(h) > 1e30] = np.nan  # netCDF fills what was never written with 1e37
        if h.ndim == 3:
            return h[:, None]
        if self._text(self.file, "DataType").upper() == "FIRE":
            return np.moveaxis(h, 2, 1)  # M R E N, the older order of axes
        return np.moveaxis(h, 3, 1)  # M R N E

    def _delays(self, shape: tuple[int, ...], rate: float) -> Array:
        """Return Data.Delay in samples, broadcast to `shape` (M, E, R)."""
        if "Data.Delay" not in self.file.variables:
            return np.zeros(shape)
        delay = self._numbers("Data.Delay")
        valid = np.abs(delay) <= LIMITS.max_delay_seconds * rate  # false for NaN
        if not valid.all():
            first = delay.flat[np.argmax(~valid)]
            raise InputError(
                f"Every Data.Delay must be within {LIMITS.max_delay_seconds:g} s, got {first:g} "
                f"samples at {rate:g} Hz in '{self.path}'. Repair Data.Delay."
            )
        # The file has the axes M R E or M R.
        aligned = np.moveaxis(delay, 2, 1) if delay.ndim == 3 else delay[..., None, :]
        try:
            return np.broadcast_to(aligned, shape)
        except ValueError:
            raise InputError(
                f"There must be one Data.Delay per response or per ear, got the shape "
                f"{delay.shape} in '{self.path}'. The file is inconsistent: export it again."
            ) from None

    def _source_vectors(self, measurements: int, emitters: int) -> Array:
        """Return vectors (M, E, 3) from the listener to each emitter: x front, y left, z up."""
        with_emitters = self.file[self.data].ndim == 4
        positions = {
            "SourcePosition": self._positions("SourcePosition", any_distance=not with_emitters),
            "ListenerPosition": self._positions("ListenerPosition"),
            "ListenerView": self._positions("ListenerView", default=(1.0, 0.0, 0.0)),
            # In the standard, ListenerUp has no Type of its own.
            "ListenerUp": self._positions("ListenerUp", "ListenerView", default=(0.0, 0.0, 1.0)),
        }
        for name, rows in positions.items():
            if len(rows) not in (1, measurements):
                raise InputError(
                    f"There must be one {name} per response, got {len(rows)} for {measurements} "
                    f"responses in '{self.path}'. The file is inconsistent: export it again."
                )
        source, listener, view, up = positions.values()
        offsets = np.broadcast_to(source - listener, (measurements, 3))[:, None]
        if with_emitters:
            emitter = self._positions("EmitterPosition")
            if len(emitter) != emitters:
                raise InputError(
                    f"There must be one EmitterPosition per emitter, got {len(emitter)} for "
                    f"{emitters} emitters in '{self.path}'. The file is inconsistent: export it "
                    "again."
                )
            offsets = offsets + emitter
        zero = np.flatnonzero(~offsets.any(axis=2))
        if len(zero):
            raise InputError(
                f"All sources must be away from the listener, got {len(zero)} at its position "
                f"(the first is number {zero[0]}) in '{self.path}'. Repair SourcePosition."
            )
        axes = np.broadcast_to(self._listener_axes(view, up), (measurements, 3, 3))
        vectors: Array = np.einsum("mij,mej->mei", axes, offsets)
        return vectors

    def _listener_axes(self, view: Array, up: Array) -> Array:
        """Return the axes of the listener (1 or M, 3, 3), with rows front, left and up."""
        left = np.cross(up, view)
        # The length of `left` is the sine of the angle times both lengths; NaN fails as 0 does.
        lengths = np.linalg.norm(view, axis=1) * np.linalg.norm(up, axis=1)
        if not (np.linalg.norm(left, axis=1) > 1e-6 * lengths).all():
            raise InputError(
                f"ListenerView and ListenerUp must not be parallel or zero, got "
                f"{view[0].tolist()} and {up[0].tolist()} in '{self.path}'. Repair ListenerView."
            )
        left = left / np.linalg.norm(left, axis=1, keepdims=True)
        front = view / np.linalg.norm(view, axis=1, keepdims=True)
        front = np.broadcast_to(front, left.shape)
        return np.stack([front, left, np.cross(front, left)], axis=1)

    def _positions(
        self,
        name: str,
        described_by: str | None = None,
        *,
        default: tuple[float, float, float] = (0.0, 0.0, 0.0),
        any_distance: bool = False,
    ) -> Array:
        """Return a SOFA position as cartesian rows (·, 3).

        `described_by` names the variable that has its Type and Units. With `any_distance`, a
        distance of 0 is replaced by 1, because some files do not tell the distance.
        """
        if name not in self.file.variables:
            return np.array([default])
        rows = self._static_rows(name)
        kind, units = self._type_and_units(described_by or name)
        if kind == "cartesian":
            return rows
        angles = np.degrees(rows[:, :2]) if units.startswith("rad") else rows[:, :2]
        distance = rows[:, 2:]
        if any_distance:
            distance = np.where(distance > 0, distance, 1.0)
        return to_vectors(angles) * distance

    def _static_rows(self, name: str) -> Array:
        """Return the rows (·, 3) of a position, which must not change between measurements."""
        rows = self._numbers(name)
        if rows.ndim not in (2, 3) or rows.shape[1] != 3:
            raise InputError(
                f"{name} must have three columns, got the shape {rows.shape} in '{self.path}'. Add "
                "the missing column (distance in metres)."
            )
        if rows.ndim == 2:
            return rows
        if np.ptp(rows, axis=2).any():
            raise InputError(
                f"{name} must not change between measurements, got {rows.shape[2]} positions each "
                f"in '{self.path}'. Split the file by measurement."
            )
        return rows[:, :, 0]

    def _type_and_units(self, name: str) -> tuple[str, str]:
        """Return Type and Units of a position in lower case; cartesian is the usual default."""
        kind = units = ""
        if name in self.file.variables:
            kind = self._text(self.file[name], "Type").lower()
            units = self._text(self.file[name], "Units").lower()
        if not kind and name != "SourcePosition":  # its default differs between conventions
            kind = "cartesian"
        if kind not in ("cartesian", "spherical"):
            remedy = "Convert the set to directions" if "harmonics" in kind else "Repair its Type"
            raise InputError(
                f"{name} must have the Type cartesian or spherical, got '{kind or 'none'}' in "
                f"'{self.path}'. {remedy}."
            )
        return kind, units

    def _check_numbers(self, data: SofaData) -> None:
        """Raise InputError if a direction or a response is not finite."""
        for name, rows in (("directions", data.directions), ("responses", data.responses)):
            invalid = np.flatnonzero(~np.isfinite(rows.reshape(len(rows), -1)).all(axis=1))
            if len(invalid):
                raise InputError(
                    f"The head must have finite {name}, got NaN, infinity or missing values in "
                    f"{len(invalid)} of {len(rows)} (the first is number {invalid[0]}) in "
                    f"'{self.path}'. Remove those measurements from the file."
                )


def _apply_delays(h: Array, delay_samples: Array) -> Array:
    """Return responses (..., taps') delayed relative to the smallest delay.

    A delay common to all responses changes no cue. Fractional delays are applied to the spectrum,
    which is exact for band-limited responses.
    """
    shift = delay_samples - delay_samples.min()
    longest = float(shift.max())
    if longest == 0:
        return h
    # Fractional delays have tails: those of a sinc function, of which 32 samples are kept.
    margin = 0 if np.array_equal(shift, np.round(shift)) else 32
    taps = h.shape[-1] + int(np.ceil(longest)) + 2 * margin
    size = fast_fft_length(taps)
    angles = -2 * np.pi * np.arange(size // 2 + 1) / size
    shifted = np.empty((*h.shape[:-1], taps))
    for m, response in enumerate(h):  # one measurement at a time, to save memory
        phase = np.exp(1j * angles * (shift[m] + margin)[..., None])
        shifted[m] = np.fft.irfft(np.fft.rfft(response, size) * phase, size)[..., :taps]
    return shifted


def _verify(path: Path) -> str:
    """Return how the file violates the standard, in a few words, or an empty string."""
    import sofar

    # sofar accepts only this ending and names in UTF-8; other files are not verified.
    if path.suffix != ".sofa" or not _is_utf8(str(path)):
        return ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sofar warns about old versions
        try:
            sofa = sofar.read_sofa(str(path), verify=False, verbose=False)
            sofa.verify(mode="read")
        except Exception as error:  # sofar raises errors of many types
            listed = [line[2:] for line in str(error).splitlines() if line.startswith("- ")]
            return listed[0][:160] if listed else _first_line(error)
    return ""


def _reason(error: Exception) -> str:
    """Return why a file cannot be opened, without error numbers and without its name."""
    if isinstance(error, OSError) and error.strerror:
        return _ERROR_REASONS.get(error.errno or 0, error.strerror.removeprefix("NetCDF: "))
    return _first_line(error)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:160].rstrip(". ")
