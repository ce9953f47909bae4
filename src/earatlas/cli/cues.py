"""`earatlas cues`: statistics and a plot of the interaural cues of a recording."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from earatlas.cli.app import Command, command_app, examples
from earatlas.cli.console import print_json, print_line, progress
from earatlas.cli.options import ChannelsOption, ForceOption, JsonOption
from earatlas.cli.outputs import OutputFiles
from earatlas.errors import sanitize
from earatlas.features.audio_files import audio_seconds
from earatlas.features.cues import Cues, recording_cues
from earatlas.features.layout import CueLayout, Threshold

__all__ = ["app", "cues"]

app = command_app()

_MAX_PLOT_SECONDS = 60.0  # the plot shows at most this much of the recording


@app.command(
    cls=Command,
    epilog=examples("earatlas cues party.wav", "earatlas cues party.wav --plot cues.png"),
)
def cues(
    recording: Annotated[
        Path, typer.Argument(metavar="RECORDING", help="Two-channel recording (left, right).")
    ],
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Plot the cues of the first minute (.png, .svg, .pdf)."),
    ] = None,
    channels: ChannelsOption = (0, 1),
    relative_db: Annotated[
        float,
        typer.Option(
            metavar="DB", help="Ignore time-frequency bins below this level relative to the peak."
        ),
    ] = -45.0,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure the interaural cues of a recording, and plot them.

    Prints the share of time-frequency bins with cues, and the mean level difference.
    """
    start = time.perf_counter()
    outputs = OutputFiles(force=force)
    if plot is not None:
        outputs.claim_picture(plot)
    statistics = _CueStatistics(CueLayout(), keep_cues=plot is not None)
    seconds = audio_seconds(recording)
    threshold = Threshold(relative_db=relative_db)
    with progress("measuring") as update:
        for part in recording_cues(
            recording, statistics.layout, threshold=threshold, channels=channels, progress=update
        ):
            statistics.add(part)
    if plot is not None:
        _plot(statistics, plot, recording.name)
    outputs.report()
    if as_json:
        answer = _json_answer(recording, seconds, statistics, time.perf_counter() - start)
        print_json({**answer, "plot": None if plot is None else str(plot)})
        return
    _print(recording.name, seconds, statistics)
    if plot is not None:
        print_line(f"picture: {plot}")


@dataclass
class _CueStatistics:
    """Running statistics of the cues of a recording, and the cues to plot."""

    layout: CueLayout
    keep_cues: bool  # for the plot
    frames: int = 0
    observed: int = 0  # bins with cues
    levels: int = 0  # bins with an ILD
    level_sum: float = 0.0  # sum of ILDs, dB
    plotted: list[Cues] = field(default_factory=list)

    def add(self, part: Cues) -> None:
        """Add the cues of the next part of the recording."""
        layout = self.layout
        if self.keep_cues and self.frames * layout.hop < _MAX_PLOT_SECONDS * layout.rate:
            self.plotted.append(part)
        self.frames += part.frames
        self.observed += int(part.observed.sum())
        self.levels += int(part.observed[layout.ild_frequencies].sum())
        self.level_sum += float(np.nansum(part.ild))

    @property
    def share(self) -> float:
        """Fraction of bins with cues."""
        return self.observed / (self.frames * self.layout.n_frequencies)

    @property
    def mean_db(self) -> float | None:
        """Mean ILD in dB, positive if the right ear is louder; None without observations."""
        return round(self.level_sum / self.levels, 2) if self.levels else None


def _json_answer(
    recording: Path, length: float, statistics: _CueStatistics, seconds: float
) -> dict[str, Any]:
    """Return the statistics as JSON values."""
    return {
        "file": str(recording),
        "recording_seconds": round(length, 3),
        "frames": statistics.frames,
        "observed_share": round(statistics.share, 4),
        "mean_ild_db": statistics.mean_db,
        "seconds": round(seconds, 3),
        "real_time_factor": round(seconds / length, 5),
    }


def _print(name: str, length: float, statistics: _CueStatistics) -> None:
    """Print the statistics as one line."""
    answer = f"{name}: {length:.1f} s, {statistics.frames} frames, "
    answer += f"{100 * statistics.share:.0f} % of the time-frequency bins observed"
    mean_db = statistics.mean_db
    if mean_db is not None:
        answer += f", mean level difference {_format_level_difference(mean_db)}"
    print_line(answer)


def _format_level_difference(decibels: float) -> str:
    """Format a level difference; the louder side is named unless it rounds to 0.0 dB."""
    if abs(decibels) < 0.05:
        return "0.0 dB"
    return f"{decibels:+.1f} dB ({'right' if decibels > 0 else 'left'} louder)"


def _plot(statistics: _CueStatistics, plot: Path, title: str) -> None:
    """Plot the cues of the first minute."""
    from earatlas.plotting.cues import plot_cues
    from earatlas.plotting.style import save

    layout = statistics.layout
    max_frames = round(_MAX_PLOT_SECONDS * layout.rate / layout.hop)
    values = np.concatenate([part.values for part in statistics.plotted], axis=1)[:, :max_frames]
    observed = np.concatenate([part.observed for part in statistics.plotted], axis=1)[
        :, :max_frames
    ]
    with progress("plotting"):
        save(plot_cues(Cues(values, observed, layout), title=sanitize(title)), plot)
