"""SOFA files (AES69): any free-field or room set of impulse responses of two ears.

In: a file. Out: a `Head`. What a file says is found out by `earatlas.hrtf.sofa_file`, in a process
of its own: some files crash the library that reads them.
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
    distinct,
    left_first,
)
from earatlas.hrtf.sofa_file import SofaData
from earatlas.hrtf.sofa_subprocess import read_aside

__all__ = ["load_sofa", "read_sofa"]


def load_sofa(path: str | Path) -> SofaData:
    """Read a SOFA file; warns where it breaks the standard, raises InputError where unusable."""
    data = read_aside(existing_file(path, "head"))
    if data.fault:
        warnings.warn(
            f"'{path}' does not pass SOFA verification ({data.fault}); its numbers can be used, "
            "and are.",
            EaratlasWarning,
            stacklevel=3,
        )
    return data


def read_sofa(
    path: str | Path, *, duplicates: Duplicates = "error", wrong_way: WrongWay | None = None
) -> Head:
    """A head from a SOFA file of impulse responses, free-field or in a room.

    Some files have sounds from the left louder in the right ear. `wrong_way` says what is wrong in
    such a file, its "ears" or its "azimuths"; without it the ears are swapped, with a warning.
    """
    data = load_sofa(path)
    silent = (np.abs(data.responses).max(axis=2) == 0).any(axis=1)
    if silent.any():
        raise InputError(
            f"head must have sound in both ears, got silence in {silent.sum()} of {len(silent)} "
            f"responses of '{path}' (first: number {np.argmax(silent)}). Remove them."
        )
    words = ("Title", "DatabaseName", "ListenerShortName", "Organization")
    head = Head(
        name=Path(path).stem,
        directions=data.directions,
        ears=ImpulseResponses(data.responses, data.rate),
        licence=data.about.get("License") or "unknown",
        provenance="; ".join(dict.fromkeys(filter(None, map(data.about.get, words)))),
    )
    return left_first(distinct(head, duplicates, str(path)), str(path), wrong_way)
