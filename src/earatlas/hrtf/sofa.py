"""Reading SOFA files (AES69) with binaural impulse responses, anechoic or reverberant.

`earatlas.hrtf.sofa_file` reads the file in a separate process, because some files crash the
library that reads them.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from earatlas.errors import EaratlasWarning, InputError, existing_file
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
    path: str | Path, *, duplicates: Duplicates = "error", wrong_way: WrongWay | None = None
) -> Head:
    """Read a head from a SOFA file [1]_ of anechoic or reverberant impulse responses.

    Parameters
    ----------
    path : str or Path
        SOFA file with impulse responses of two ears.
    duplicates : {"error", "first"}, default "error"
        Whether directions that occur several times are refused, or the first one is kept.
    wrong_way : {"ears", "azimuths"}, optional
        What to correct if sounds from the left are louder in the right ear. By default the ears are
        swapped, with a warning.

    Returns
    -------
    Head
        The head, with its licence and provenance.

    Raises
    ------
    InputError
        If the file is not a SOFA file of binaural impulse responses, or is damaged.

    Warns
    -----
    EaratlasWarning
        If the file violates the standard but can be used, or the ears were swapped.

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
    silent = (np.abs(data.responses).max(axis=2) == 0).any(axis=1)
    if silent.any():
        raise InputError(
            f"The head '{path}' has {silent.sum()} of {len(silent)} responses with a silent ear "
            f"(the first is number {np.argmax(silent)}). Remove those measurements from the file."
        )
    attributes = ("Title", "DatabaseName", "ListenerShortName", "Organization")
    head = Head(
        name=Path(path).stem,
        directions=data.directions,
        ears=ImpulseResponses(data.responses, data.rate),
        licence=data.attributes.get("License") or "unknown",
        provenance="; ".join(dict.fromkeys(filter(None, map(data.attributes.get, attributes)))),
    )
    return correct_mirroring(remove_duplicates(head, duplicates, str(path)), str(path), wrong_way)
