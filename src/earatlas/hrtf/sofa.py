"""Reading SOFA files (AES69) with binaural impulse responses, anechoic or reverberant.

`earatlas.hrtf.sofa_file` reads the file in a separate process, because some files crash the
library that reads them.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from earatlas.errors import EaratlasWarning, InputError, SettingHint, existing_file
from earatlas.hrtf.head import (
    Duplicates,
    Head,
    ImpulseResponses,
    WrongWay,
    correct_mirroring,
    remove_duplicates,
)
from earatlas.hrtf.sofa_file import SofaData
from earatlas.hrtf.sofa_subprocess import read_in_subprocess
from earatlas.types import Array

__all__ = ["load_sofa", "read_sofa"]


def load_sofa(path: str | Path) -> SofaData:
    """Read a SOFA file; warn if it violates the standard, raise InputError if it is unusable."""
    data = read_in_subprocess(existing_file(path, "head"))
    if data.violation:
        warnings.warn(
            f"The file '{path}' does not pass SOFA verification ({data.violation}). Its data are "
            "usable and were read.",
            EaratlasWarning,
            stacklevel=3,
        )
    return data


def read_sofa(
    path: str | Path,
    *,
    duplicates: Duplicates = "error",
    wrong_way: WrongWay | None = None,
    receivers: tuple[int, int] = (0, 1),
) -> Head:
    """Read a head from a SOFA file [1]_ of anechoic or reverberant impulse responses.

    Transfer functions (`SimpleFreeFieldHRTF`, `FreeFieldHRTF`) are converted to impulse responses.

    Parameters
    ----------
    path : str or Path
        SOFA file with impulse responses or transfer functions of two ears.
    duplicates : {"error", "first"}, default "error"
        Whether directions that occur several times are refused, or the first one is kept.
    wrong_way : {"ears", "azimuths"}, optional
        What to correct if sounds from the left are louder in the right ear. By default the ears are
        swapped, with a warning.
    receivers : (int, int), default (0, 1)
        Receivers of the left and the right ear, counted from 0, of a file with more than two.

    Returns
    -------
    Head
        The head, with its licence and provenance.

    Raises
    ------
    InputError
        If the file is not a SOFA file of binaural impulse responses, is damaged, or does not have
        these receivers.

    Warns
    -----
    EaratlasWarning
        If the file violates the standard but can be used, the ears were swapped, or the file has
        more than two receivers.

    References
    ----------
    .. [1] AES69-2022, "AES standard for file exchange: Spatial acoustic data file format", Audio
       Engineering Society.

    Examples
    --------
    >>> import earatlas as ea
    >>> head = ea.read_sofa("HRIR_FULL2DEG.sofa")  # doctest: +SKIP
    >>> head.direct()  # doctest: +SKIP
    """
    data = load_sofa(path)
    responses = _ears(data.responses, receivers, path)
    silent = (np.abs(responses).max(axis=2) == 0).any(axis=1)
    if silent.any():
        raise InputError(
            f"The head '{path}' has {silent.sum()} of {len(silent)} responses with a silent ear "
            f"(the first is number {np.argmax(silent)}). Remove those measurements from the file."
        )
    attributes = ("Title", "DatabaseName", "ListenerShortName", "Organization")
    head = Head(
        name=Path(path).stem,
        directions=data.directions,
        ears=ImpulseResponses(responses, data.rate),
        licence=data.attributes.get("License") or "unknown",
        provenance="; ".join(dict.fromkeys(filter(None, map(data.attributes.get, attributes)))),
    )
    return correct_mirroring(remove_duplicates(head, duplicates, str(path)), str(path), wrong_way)


def _ears(responses: Array, receivers: tuple[int, int], path: str | Path) -> Array:
    """Return the responses (N, 2, taps) of two of the R receivers (N, R, taps)."""
    count = responses.shape[1]
    left, right = receivers
    if left == right or not (0 <= left < count and 0 <= right < count):
        raise InputError(
            f"receivers must be two different ones from 0 to {count - 1}, got {left} and {right} "
            f"for '{path}'. Name those of the left and the right ear.",
            hint=SettingHint("receivers=(0, 1)", "--channels 0 1"),
        )
    if count > 2 and receivers == (0, 1):
        warnings.warn(
            EaratlasWarning(
                f"The file '{path}' has {count} receivers, of which 0 and 1 are used as the left "
                "and the right ear. Name others if these are not the ears.",
                hint=SettingHint("receivers=(2, 3)", "--channels 2 3"),
            ),
            stacklevel=3,
        )
    return responses[:, [left, right]] if count > 2 or left else responses
