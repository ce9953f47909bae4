"""SOFA files (AES69): any free-field or room set of impulse responses of two ears.

In: a file of a convention that holds impulse responses (HRIR, BRIR). Out: directions as the
listener hears them, and responses with Data.Delay put in. Files in the wild break the standard in
harmless ways (latin-1 text, old versions, missing attributes): what fails verification is read all
the same, with a warning, as long as the numbers can be used.

    M, R, N, E    measurements, receivers (ears), samples, emitters, as in the standard
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from earatlas.directions import to_directions, to_vectors
from earatlas.errors import EaratlasWarning, InputError

__all__ = ["SofaData", "load_sofa"]

Array = NDArray[np.float64]

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


class SofaData:
    """Directions (N, 2), responses (N, 2, taps), rate and the file's own words about itself."""

    def __init__(self, path: Path, sofa: Any) -> None:
        self.path = path
        self._sofa = sofa
        self._check_convention()
        self.rate = self._rate()
        vectors = self._source_vectors()  # (M, E, 3)
        responses = self._responses(vectors.shape[1])  # (M, E, 2, taps)
        self.directions = to_directions(vectors.reshape(-1, 3))
        self.responses = responses.reshape(-1, 2, responses.shape[-1])
        self._check_numbers()

    def text(self, *names: str) -> str:
        """The first of these global attributes that says something, in readable letters."""
        for name in names:
            value = str(getattr(self._sofa, f"GLOBAL_{name}", "") or "").strip()
            if value:
                # Text that was not UTF-8 arrives with replacement marks; they help nobody.
                return value.replace("\ufffd", "?")
        return ""

    def _check_convention(self) -> None:
        convention = str(getattr(self._sofa, "GLOBAL_SOFAConventions", ""))
        if convention not in _CONVENTIONS:
            raise InputError(
                f"head must be a SOFA file of impulse responses ({', '.join(_CONVENTIONS[:3])}, "
                f"room sets, …), got convention '{convention or 'none'}' in '{self.path}'. "
                "Convert it to SimpleFreeFieldHRIR."
            )
        if not hasattr(self._sofa, "Data_IR"):
            raise InputError(
                f"head must hold impulse responses (Data.IR), got none in '{self.path}'. "
                "The file is incomplete: fetch it again."
            )

    def _rate(self) -> float:
        rates = np.unique(np.asarray(self._sofa.Data_SamplingRate, dtype=np.float64))
        if len(rates) != 1 or not (np.isfinite(rates[0]) and rates[0] > 0):
            raise InputError(
                f"head must have one positive sampling rate, got {rates.tolist()} Hz in "
                f"'{self.path}'. Repair Data.SamplingRate."
            )
        return float(rates[0])

    def _positions(self, name: str, default: tuple[float, float, float]) -> Array:
        """Cartesian rows (·, 3) of a SOFA position, given as cartesian or spherical."""
        raw = getattr(self._sofa, name, None)
        rows = np.asarray(default if raw is None else raw, dtype=np.float64)
        if rows.ndim == 3:  # (rows, 3, 1 or M): positions that move are beyond a static head
            if rows.shape[2] > 1 and np.ptp(rows, axis=2).any():
                raise InputError(
                    f"head must have {name} that does not move, got {rows.shape[2]} positions each "
                    f"in '{self.path}'. Split the file by measurement."
                )
            rows = rows[:, :, 0]
        rows = rows.reshape(-1, 3)
        if raw is None or str(getattr(self._sofa, f"{name}_Type", "cartesian")) != "spherical":
            return rows
        units = str(getattr(self._sofa, f"{name}_Units", "degree")).lower()
        angles = np.degrees(rows[:, :2]) if units.startswith("rad") else rows[:, :2]
        distance = rows[:, 2:]
        # A distance of 0 or none stands in some files for "far away"; the direction is what counts.
        return to_vectors(angles) * np.where(np.nan_to_num(distance) > 0, distance, 1.0)

    def _source_vectors(self) -> Array:
        """Vectors (M, E, 3) from the listener to each emitter: x ahead, y left, z up."""
        source = self._positions("SourcePosition", (1.0, 0.0, 0.0))
        if len(source) == 0 or 0 in np.shape(self._sofa.Data_IR):
            raise InputError(
                f"head must have at least one direction, got none in '{self.path}'. "
                "The file is empty: export it again."
            )
        emitters = np.zeros((1, 3))
        if np.ndim(self._sofa.Data_IR) == 4:
            emitters = self._positions("EmitterPosition", (0.0, 0.0, 0.0))
        listener = self._positions("ListenerPosition", (0.0, 0.0, 0.0))
        view = self._positions("ListenerView", (1.0, 0.0, 0.0))
        up = self._positions("ListenerUp", (0.0, 0.0, 1.0))
        measurements = np.shape(self._sofa.Data_IR)[0]
        for name, rows in (("SourcePosition", source), ("ListenerView", view)):
            if len(rows) not in (1, measurements):
                raise InputError(
                    f"head must have one {name} a response, got {len(rows)} for {measurements} "
                    f"responses in '{self.path}'. The file is inconsistent: export it again."
                )
        offset = np.broadcast_to(source - listener, (measurements, 3))[:, None] + emitters
        ahead = view / np.linalg.norm(view, axis=1, keepdims=True)
        left = np.cross(np.broadcast_to(up, ahead.shape), ahead)
        left /= np.linalg.norm(left, axis=1, keepdims=True)
        frame = np.stack([ahead, left, np.cross(ahead, left)], axis=1)  # (1 or M, 3, 3)
        frames = np.broadcast_to(frame, (measurements, 3, 3))
        vectors: Array = np.einsum("mij,mej->mei", frames, offset)
        return vectors

    def _responses(self, emitters: int) -> Array:
        """Responses (M, E, 2, taps) with Data.Delay put in."""
        h = np.asarray(self._sofa.Data_IR, dtype=np.float64)
        if h.ndim not in (3, 4) or h.shape[1] != 2:
            receivers = h.shape[1] if h.ndim > 1 else 0
            raise InputError(
                f"head must have two receivers (ears), got {receivers} in '{self.path}'. "
                "One ear carries no interaural cues: choose a binaural set."
            )
        if h.ndim == 3:
            h = h[:, None]
        elif str(getattr(self._sofa, "GLOBAL_DataType", "")).upper() == "FIRE":
            h = np.moveaxis(h, 2, 1)  # M R E N, the older order
        else:
            h = np.moveaxis(h, 3, 1)  # M R N E
        if h.shape[1] != emitters:
            raise InputError(
                f"head must have one EmitterPosition an emitter, got {emitters} for {h.shape[1]} "
                f"emitters in '{self.path}'. The file is inconsistent: export it again."
            )
        delay = np.asarray(getattr(self._sofa, "Data_Delay", 0.0), dtype=np.float64)
        if delay.ndim == 3:
            delay = np.moveaxis(delay, 2, 1)
        elif delay.ndim == 2:
            delay = delay[:, None]
        return _delayed(h, np.broadcast_to(delay, h.shape[:-1]))

    def _check_numbers(self) -> None:
        for name, rows in (("directions", self.directions), ("responses", self.responses)):
            bad = np.flatnonzero(~np.isfinite(rows.reshape(len(rows), -1)).all(axis=1))
            if len(bad):
                raise InputError(
                    f"head must have finite {name}, got NaN or infinity in {len(bad)} of "
                    f"{len(rows)} (first: number {bad[0]}) in '{self.path}'. "
                    "Remove those measurements from the file."
                )


def _delayed(h: Array, delay_samples: Array) -> Array:
    """Responses (..., taps') with each one's delay applied, less the smallest delay of all.

    A delay common to all responses changes no cue. Fractions of a sample are exact up to the
    response's own bandwidth: the shift is done on its spectrum.
    """
    shift = delay_samples - delay_samples.min()
    longest = float(shift.max())
    if not np.isfinite(longest) or longest == 0:
        return h
    margin = 0 if np.array_equal(shift, np.round(shift)) else 32  # room for the sinc's tails
    taps = h.shape[-1] + int(np.ceil(longest)) + 2 * margin
    size = scipy.fft.next_fast_len(taps, real=True)
    turn = np.exp(-2j * np.pi * np.arange(size // 2 + 1) / size * (shift + margin)[..., None])
    shifted: Array = scipy.fft.irfft(scipy.fft.rfft(h, size) * turn, size)[..., :taps]
    return shifted


def load_sofa(path: str | Path) -> SofaData:
    """Read a SOFA file; warns where it breaks the standard, raises InputError where unusable."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"head must be a file, got the folder '{path}'. Name a .sofa file in it.")
    if not path.exists():
        raise InputError(f"head must be an existing file, got '{path}'. Check the name.")
    with warnings.catch_warnings():
        # What sofar says of old versions and odd text is said here in one sentence.
        warnings.simplefilter("ignore")
        sofa, fault = _open_leniently(path)
    data = SofaData(path, sofa)
    if fault:
        warnings.warn(
            f"'{path}' does not pass SOFA verification ({fault}); its numbers can be used, and "
            "are.",
            EaratlasWarning,
            stacklevel=3,
        )
    return data


def _open_leniently(path: Path) -> tuple[Any, str]:
    """The file as sofar has it, and what is wrong with it, or nothing.

    sofar raises many kinds of errors for files that break a convention. Without verification it
    reads more of them, and as bare netCDF more still.
    """
    import sofar

    name = str(path)
    try:
        return sofar.read_sofa(name, verify=True, verbose=False), ""
    except Exception:
        try:
            sofa = sofar.read_sofa(name, verify=False, verbose=False)
            return sofa, _first_issue(sofa)
        except Exception as strict:
            try:
                return sofar.read_sofa_as_netcdf(name), _first_line(strict)
            except Exception as error:
                raise InputError(
                    f"head must be a SOFA (netCDF-4) file, got '{path}', which cannot be read "
                    f"({_first_line(error)}). Check that it is complete."
                ) from error


def _first_issue(sofa: Any) -> str:
    issues = str(sofa.verify(issue_handling="return", mode="read") or "")
    listed = [line[2:] for line in issues.splitlines() if line.startswith("- ")]
    return listed[0][:160] if listed else "mandatory data are missing"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:160].rstrip(". ")
