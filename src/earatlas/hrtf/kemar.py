"""MIT KEMAR, as the package `slab` carries it: one ear, mirrored."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np

from earatlas.errors import EaratlasWarning, missing_extra
from earatlas.hrtf.head import Head, ImpulseResponses, distinct, left_first

__all__ = ["MIRRORED", "kemar"]

MIRRORED = "The KEMAR of slab is one ear mirrored to both sides"  # how its warning begins


def kemar() -> Head:
    """MIT KEMAR (Gardner and Martin 1994) from the package `slab`: one ear, mirrored.

    Its median plane has no level difference at all, so it warns.
    """
    hrtf = _slab_kemar()
    samples = np.stack([np.asarray(f.data, dtype=np.float64).T for f in hrtf.data])
    polar = np.asarray(hrtf.sources.vertical_polar, dtype=np.float64)
    head = Head(
        name="kemar",
        directions=polar[:, :2],
        ears=ImpulseResponses(samples, float(hrtf.samplerate)),
        licence="Gardner and Martin 1994: free to use, cite the authors",
        provenance="MIT KEMAR, normal pinna, left ear mirrored to the right; from slab",
    )
    warnings.warn(
        f"{MIRRORED}: on the median plane both ears hear the same, so elevation and front/back "
        "cannot be learned there. Use a head that was measured at both ears where that matters.",
        EaratlasWarning,
        stacklevel=2,
    )
    return left_first(distinct(head, "first", "slab's KEMAR"), "slab's KEMAR")


def _slab_kemar() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # slab's own, about its plotting and its old pickle
        try:
            import slab
        except ImportError as error:
            raise missing_extra("kemar", "slab") from error
        except OSError:
            # slab imports sounddevice, which fails where PortAudio is not installed. None makes
            # that an ImportError, which slab knows how to live with.
            sys.modules["sounddevice"] = None  # type: ignore[assignment]
            try:
                import slab
            finally:
                del sys.modules["sounddevice"]
        return slab.HRTF.kemar()
