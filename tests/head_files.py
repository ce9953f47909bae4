"""Heads as files for tests: SOFA files, and tables of impulse responses."""

from pathlib import Path

import numpy as np
import sofar

import earatlas as ea

__all__ = ["write_responses", "write_sofa"]


def write_sofa(path: Path, head: ea.Head) -> Path:
    """Write a head as a SOFA file."""
    sofa = sofar.Sofa("SimpleFreeFieldHRIR")
    ears = head.responses()
    sofa.Data_IR, sofa.Data_SamplingRate = ears.samples, ears.rate
    sofa.SourcePosition = np.column_stack([head.directions, np.ones(len(head))])
    sofar.write_sofa(str(path), sofa)
    return path


def write_responses(table: Path, head: ea.Head, *, prefix: str = "") -> Path:
    """Write the responses of a simulated head (48 kHz) as a table and WAV files beside it."""
    lines = ["file,azimuth,elevation"]
    for n, (azimuth, elevation) in enumerate(head.directions):
        file = table.with_name(f"{prefix}{n}.wav")
        ea.Audio(head.responses().samples[n], 48000).write(file)
        lines.append(f"{file.name},{azimuth},{elevation}")
    table.write_text("\n".join(lines))
    return table
