"""Pictures of a recording as PNG and SVG files, for its archive.

The input is the folder of a separated recording: its stored scene and its mixture. The output is
the folder `pictures` in it: the scene, the differences between the ears, and the posterior of each
source.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from earatlas.plotting.palette import MISSING, PHASE_MAP
from earatlas.plotting.posterior_maps import cell_edges
from earatlas.plotting.posteriors import plot_posterior
from earatlas.plotting.scenes import draw_ild, plot_scene
from earatlas.plotting.style import (
    add_colour_bar,
    add_title,
    new_figure,
    phase_labels,
    save,
    style_axes,
)
from earatlas.separation.result import SceneSummary
from earatlas.studio.archives import PICTURES, unique_names
from earatlas.studio.phase_spectrogram import PhaseSpectrogram, phase_spectrogram
from earatlas.studio.progress import ProgressReporter
from earatlas.studio.stored_scene import SCENE_FILE, read_scene

__all__ = ["PICTURE_SUFFIXES", "write_pictures"]

PICTURE_SUFFIXES = (".png", ".svg")


def write_pictures(request: dict[str, Any], reporter: ProgressReporter) -> dict[str, Any]:
    """Draw the pictures of the requested recordings, except for those that exist already."""
    recordings: Sequence[dict[str, str]] = request["recordings"]
    progress = reporter.stage("drawing the pictures")
    for number, one in enumerate(recordings):
        folder = Path(one["folder"])
        if not (folder / PICTURES).is_dir():
            _draw(folder, one["name"], Path(one["mixture"]))
        progress(number + 1, len(recordings))
    return {"n_recordings": len(recordings)}


def _draw(folder: Path, name: str, mixture: Path) -> None:
    """Draw all pictures into a scratch folder of this job, which is renamed when it is complete.

    They are drawn again if the sources of the scene were named meanwhile.
    """
    stored, drawn = folder / SCENE_FILE, 0
    while (written := stored.stat().st_mtime_ns) != drawn:
        drawn, scene = written, read_scene(folder)
        scratch = Path(mkdtemp(prefix=f"{PICTURES}-", dir=folder))
        for title, draw in _figures(scene, name, mixture):
            figure = draw()
            for suffix in PICTURE_SUFFIXES:
                save(figure, scratch / f"{title}{suffix}")
                figure.set_layout_engine("none")  # keeps the layout, a fifth of the time
        if stored.stat().st_mtime_ns != drawn:
            shutil.rmtree(scratch)
    try:
        scratch.rename(folder / PICTURES)
    except OSError:  # another job has drawn them meanwhile
        shutil.rmtree(scratch)
        if not (folder / PICTURES).is_dir():
            raise


def _figures(
    scene: SceneSummary, name: str, mixture: Path
) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """Yield file names and functions that draw; one figure is in memory at a time."""
    yield "scene", partial(plot_scene, scene, title=name)
    yield "differences", lambda: _plot_differences(scene, phase_spectrogram(mixture), name)
    stems = unique_names([source.name for source in scene.sources])  # may come from users
    for stem, source in zip(stems, scene.sources, strict=True):
        yield (
            f"{stem}_direction",
            partial(plot_posterior, source, title=f"{name}: {source.name}"),
        )


def _plot_differences(scene: SceneSummary, phases: PhaseSpectrogram, name: str) -> Figure:
    """Plot the level and phase differences between the ears over time and frequency."""
    phases = phases.observed_in(scene.spectrogram)
    figure = new_figure(9.0, 6.4)
    axes = figure.add_subplot(2, 1, 1)
    add_colour_bar(draw_ild(axes, scene.spectrogram), axes, "dB, right over left")
    axes = figure.add_subplot(2, 1, 2)
    axes.set_facecolor(MISSING)
    image = axes.imshow(
        phases.radians,
        origin="lower",
        aspect="auto",
        extent=(*cell_edges(phases.seconds), *cell_edges(phases.frequencies_hz / 1000)),
        cmap=PHASE_MAP,
        vmin=-np.pi,
        vmax=np.pi,
        interpolation="nearest",
    )
    style_axes(axes, "Phase difference", "seconds", "kHz")
    phase_labels(add_colour_bar(image, axes, "radians, right minus left").ax.yaxis)
    return add_title(figure, name)
