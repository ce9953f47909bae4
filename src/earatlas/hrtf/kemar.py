"""MIT KEMAR from the package `slab`, which contains one ear mirrored to both sides."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np

from earatlas.errors import EaratlasWarning, missing_extra
from earatlas.hrtf.head import Head, ImpulseResponses, correct_mirroring, remove_duplicates

__all__ = ["MIRRORED_EAR_WARNING", "kemar"]

# Beginning of the warning, by which callers can filter it.
MIRRORED_EAR_WARNING = "The KEMAR of slab is one ear mirrored to both sides"


def kemar() -> Head:
    """Return the MIT KEMAR head [1]_ from the package `slab`.

    Returns
    -------
    Head
        710 directions, with the left ear mirrored to the right side.

    Raises
    ------
    MissingExtraError
        If `slab` is not installed (`pip install 'earatlas[kemar]'`).

    Warns
    -----
    EaratlasWarning
        Always, because mirrored ears have no level differences on the median plane, so that
        elevation and front/back cannot be learned there.

    References
    ----------
    .. [1] W. G. Gardner and K. D. Martin, "HRTF measurements of a KEMAR", Journal of the
       Acoustical Society of America, 97(6), 1995.

    Examples
    --------
    >>> import earatlas as ea
    >>> head = ea.kemar()  # doctest: +SKIP
    >>> len(head)  # doctest: +SKIP
    710
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
        f"{MIRRORED_EAR_WARNING}: on the median plane both ears receive the same sound, so "
        "elevation and front/back cannot be learned there. If that matters, use a head that was "
        "measured at both ears.",
        EaratlasWarning,
        stacklevel=2,
    )
    return correct_mirroring(remove_duplicates(head, "first", "slab's KEMAR"), "slab's KEMAR")


def _slab_kemar() -> Any:
    """Import slab and return its KEMAR data set."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # slab warns about plotting and pickle
        try:
            import slab
        except ImportError as error:
            raise missing_extra("kemar", "slab") from error
        except OSError:
            # slab imports sounddevice, which raises OSError without PortAudio. The entry None
            # turns that into an ImportError, which slab handles.
            sys.modules["sounddevice"] = None  # type: ignore[assignment]
            try:
                import slab
            finally:
                del sys.modules["sounddevice"]
        return slab.HRTF.kemar()
