"""`earatlas cues`: what a recording lets one hear."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from earatlas.cli.app import Command, examples, one_command
from earatlas.cli.console import print_json, progress, say
from earatlas.cli.options import ChannelsOption, ForceOption, JsonOption
from earatlas.cli.outputs import Outputs
from earatlas.errors import harmless
from earatlas.features.audio_files import audio_seconds
from earatlas.features.cues import Cues, recording_cues
from earatlas.features.layout import CueLayout, Threshold

__all__ = ["app", "cues"]

app = one_command()

_DRAWN_SECONDS = 60.0


@app.command(
    cls=Command,
    epilog=examples("earatlas cues party.wav", "earatlas cues party.wav --plot cues.png"),
)
def cues(
    recording: Annotated[
        Path, typer.Argument(metavar="RECORDING", help="A two-channel recording: left, right.")
    ],
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a picture of the first minute.")
    ] = None,
    channels: ChannelsOption = (0, 1),
    relative_db: Annotated[
        float,
        typer.Option(metavar="DB", help="A bin counts as heard above this, from the peak down."),
    ] = -45.0,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say how much of a recording carries interaural cues, and draw them."""
    start = time.perf_counter()
    outputs = Outputs(force=force)
    if plot is not None:
        outputs.claim_picture(plot)
    heard = _Heard(CueLayout(), drawing=plot is not None)
    seconds = audio_seconds(recording)
    threshold = Threshold(relative_db=relative_db)
    with progress("listening") as update:
        for part in recording_cues(
            recording, heard.layout, threshold=threshold, channels=channels, progress=update
        ):
            heard.add(part)
    if plot is not None:
        _draw(heard, plot, recording.name)
    outputs.tell()
    if as_json:
        answer = _answer(recording, seconds, heard, time.perf_counter() - start)
        print_json({**answer, "plot": None if plot is None else str(plot)})
        return
    _print(recording.name, seconds, heard)
    if plot is not None:
        say(f"picture: {plot}")


@dataclass
class _Heard:
    """What is counted as the parts of a recording go by, and those that are drawn."""

    layout: CueLayout
    drawing: bool
    frames: int = 0
    observed: int = 0  # bins
    levels: int = 0  # bins that have an ILD
    level_sum: float = 0.0  # dB
    drawn: list[Cues] = field(default_factory=list)

    def add(self, part: Cues) -> None:
        layout = self.layout
        if self.drawing and self.frames * layout.hop < _DRAWN_SECONDS * layout.rate:
            self.drawn.append(part)
        self.frames += part.frames
        self.observed += int(part.observed.sum())
        self.levels += int(part.observed[layout.ild_frequencies].sum())
        self.level_sum += float(np.nansum(part.ild))

    @property
    def share(self) -> float:
        return self.observed / (self.frames * self.layout.n_frequencies)

    @property
    def mean_db(self) -> float | None:
        return round(self.level_sum / self.levels, 2) if self.levels else None


def _answer(recording: Path, length: float, heard: _Heard, seconds: float) -> dict[str, Any]:
    return {
        "file": str(recording),
        "recording_seconds": round(length, 3),
        "frames": heard.frames,
        "observed_share": round(heard.share, 4),
        "mean_ild_db": heard.mean_db,
        "seconds": round(seconds, 3),
        "real_time_factor": round(seconds / length, 5),
    }


def _print(name: str, length: float, heard: _Heard) -> None:
    answer = f"{name}: {length:.1f} s, {heard.frames} frames, "
    answer += f"{100 * heard.share:.0f} % of the time-frequency bins heard"
    mean_db = heard.mean_db
    if mean_db is not None:
        louder = "right" if mean_db > 0 else "left" if mean_db < 0 else "neither"
        answer += f", mean level difference {mean_db:+.1f} dB ({louder} louder)"
    say(answer)


def _draw(heard: _Heard, plot: Path, title: str) -> None:
    from earatlas.plotting.cues import plot_cues
    from earatlas.plotting.style import save

    layout = heard.layout
    most = round(_DRAWN_SECONDS * layout.rate / layout.hop)
    values = np.concatenate([part.values for part in heard.drawn], axis=1)[:, :most]
    observed = np.concatenate([part.observed for part in heard.drawn], axis=1)[:, :most]
    with progress("drawing"):
        save(plot_cues(Cues(values, observed, layout), title=harmless(title)), plot)
