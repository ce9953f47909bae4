"""Writing a head as a SOFA file (AES69) of the convention SimpleFreeFieldHRIR.

Input: a `Head` with impulse responses: measured, simulated, from calibration recordings, or
interpolated. Output: a file that `read_sofa` and other programs read.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from earatlas.errors import InputError, check_path
from earatlas.files import atomic_write
from earatlas.hrtf.head import Head

__all__ = ["write_sofa"]


def write_sofa(
    head: Head,
    path: str | Path,
    *,
    distance_metres: float = 1.0,
    licence: str | None = None,
    organization: str = "",
) -> Path:
    """Write a head as a SOFA file of the convention SimpleFreeFieldHRIR [1]_.

    Parameters
    ----------
    head : Head
        A head with impulse responses. `read_recordings` returns one for recorded responses, and
        `interpolated_head` one at other directions.
    path : str or Path
        A name that ends in .sofa.
    distance_metres : float, default 1.0
        Distance of the loudspeaker, which a head does not know.
    licence : str, optional
        Licence of the data; by default that of the head.
    organization : str, default ""
        Who made the measurement.

    Returns
    -------
    Path
        The path of the file.

    Raises
    ------
    InputError
        If the head has no impulse responses, the name has another ending, the distance is not
        positive, or the file cannot be written.

    References
    ----------
    .. [1] AES69-2022, "AES standard for file exchange: Spatial acoustic data file format", Audio
       Engineering Society.

    Examples
    --------
    >>> import tempfile
    >>> import earatlas as ea
    >>> head = ea.simulated_head([[30, 0], [0, 0], [-30, 10]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ea.read_sofa(ea.write_sofa(head, f"{folder}/head.sofa"))
    Head('head', 3 directions)
    """
    path = check_path(path)
    if path.suffix != ".sofa":
        raise InputError(f"path must end in .sofa, got '{path}'. Rename the output.")
    if not 0 < distance_metres < np.inf:
        raise InputError(
            f"distance_metres must be positive, got {distance_metres}. Give the distance of the "
            "loudspeaker."
        )
    head.check_directions("be written as SOFA")
    responses = head.responses()
    import sofar  # imported here because it is slow

    sofa = sofar.Sofa("SimpleFreeFieldHRIR")
    azimuth, elevation = head.directions.T
    positions = [azimuth % 360.0, elevation, np.full(len(head), float(distance_metres))]
    sofa.SourcePosition = np.stack(positions, axis=1)
    sofa.Data_IR = responses.samples
    sofa.Data_SamplingRate = float(responses.rate)
    sofa.Data_Delay = np.zeros((1, 2))
    sofa.GLOBAL_Title = head.provenance or head.name
    sofa.GLOBAL_ListenerShortName = head.name
    sofa.GLOBAL_License = licence or head.licence
    sofa.GLOBAL_Organization = organization
    sofa.GLOBAL_ApplicationName = "earatlas"
    with atomic_write(path) as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sofar warns about values that it converts
        sofar.write_sofa(str(scratch), sofa)
    return path
