"""Figure 4: two principal components of frontal low ILD and low IPD."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.experiments.bench import PAGE_HEADS, Bench
from earatlas.experiments.figure3 import CUES
from earatlas.experiments.rows import Experiment, Row
from earatlas.experiments.tables import fill_template, format_range, group_by_head
from earatlas.manifold.faithfulness import Faithfulness, faithfulness
from earatlas.manifold.ltsa import pca
from earatlas.types import Array

__all__ = ["EXPERIMENT"]

_SHOWN = ("low ILD", "low IPD")
ABOUT = """\
The axes are the principal components of the correlation matrix, as in the paper: all channels
have the same weight."""
FINDINGS = """\
Low IPD is folded on all heads (trustworthiness {phases}; {least} is homeomorphic), so that
distant directions coincide. Low ILD is folded less ({levels}), and on ku100 hardly at all
({hardly}): there the second axis represents the lowest channels, whose ILD hardly varies, and
without them it is folded like on the other heads. The paper calls both cues extremely distorted
and excludes linear regression for this reason; two axes do not show what a regression on all
channels achieves."""


def plan(bench: Bench) -> list[dict[str, Any]]:
    """Return one row per cue."""
    return [{"cue": cue, "seed": 0} for cue in _SHOWN]


def _standardize(y: Array) -> Array:
    """Return every channel with mean 0 and variance 1; a constant channel is 0."""
    centred = y - y.mean(axis=0)
    deviation = centred.std(axis=0)
    changes = deviation > 1e-9 * deviation.max()
    standardized: Array = centred / np.where(changes, deviation, np.inf)
    return standardized


def measure(bench: Bench, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the two leading principal components of the frontal cues."""
    from earatlas.experiments.figure_parts import pack_array

    frontal = np.abs(bench.full_head.directions[:, 0]) <= 90
    head = bench.full_head.subset(frontal)
    t = pca(_standardize(bench.full_cues(CUES[settings["cue"]])[frontal]), coordinates=2)
    return {
        "score": asdict(faithfulness(bench.space, head.directions, t, seed=settings["seed"])),
        "spacing_degrees": head.spacing_degrees,
        "directions": pack_array(head.directions),
        "coordinates": pack_array(t),
    }


def section(rows: Sequence[Row], folder: Path) -> str:
    """Return pictures with lines of equal elevation in the plane of the two components."""
    import matplotlib
    from matplotlib.collections import LineCollection

    from earatlas.experiments.figure_parts import new_figure, save_picture, style_axes, unpack_array
    from earatlas.manifold.viewer import rings
    from earatlas.plotting.palette import ELEVATION_MAP
    from earatlas.plotting.style import degree_labels

    parts = []
    for head, head_rows in group_by_head(rows).items():
        figure = new_figure(9.6, 4.3)
        colours, captions = matplotlib.colormaps[ELEVATION_MAP], []
        head_rows = sorted(head_rows, key=lambda row: _SHOWN.index(row["settings"]["cue"]))
        for panel, row in enumerate(head_rows, start=1):
            r, cue = row["result"], row["settings"]["cue"]
            x, t = unpack_array(r["directions"]), unpack_array(r["coordinates"])
            axes = figure.add_subplot(1, len(head_rows), panel)
            low, high = x[:, 1].min(), x[:, 1].max()
            lines = rings(x, r["spacing_degrees"])
            shades = [colours(0.03 + 0.94 * (x[i, 1].mean() - low) / (high - low)) for i in lines]
            axes.add_collection(
                LineCollection([t[i] for i in lines], colors=shades, linewidths=0.8, alpha=0.8)
            )
            axes.autoscale_view()
            style_axes(axes, f"{cue}, {len(x)} frontal directions", "first axis", "second axis")
            s = r["score"]
            captions.append(
                f"{cue}: trustworthiness {s['trustworthiness']:.2f}, continuity "
                f"{s['continuity']:.2f}, nearest by coordinates beyond 30° in "
                f"{100 * s['beyond_30_share']:.0f} %"
            )
        norm = matplotlib.colors.Normalize(low, high)
        bar = figure.colorbar(matplotlib.cm.ScalarMappable(norm, colours), ax=figure.axes,
                              aspect=30, pad=0.02)  # fmt: skip
        bar.set_label("elevation; a line is one elevation", fontsize=8)
        degree_labels(bar.ax.yaxis)
        bar.ax.tick_params(labelsize=7)
        markdown = save_picture(figure, folder, f"figure4_{head}", f"{head}: PCA of frontal cues")
        parts.append(f"**{head}**. {'; '.join(captions)}.\n\n{markdown}")
    return "\n\n".join(parts)


def findings(rows: Sequence[Row]) -> str:
    """Return the findings with the numbers of the rows."""
    trustworthiness = {
        (r["data"]["head"], r["settings"]["cue"]): r["result"]["score"]["trustworthiness"]
        for r in rows
    }
    return fill_template(
        FINDINGS,
        phases=format_range(
            (v for (_, cue), v in trustworthiness.items() if cue == "low IPD"), "{:.2f}"
        ),
        levels=format_range(
            (
                v
                for (head, cue), v in trustworthiness.items()
                if cue == "low ILD" and head != "ku100"
            ),
            "{:.2f}",
        ),
        hardly=f"{trustworthiness['ku100', 'low ILD']:.2f}",
        least=Faithfulness.HOMEOMORPHIC_THRESHOLD,
    )


EXPERIMENT = Experiment(
    name="figure4",
    title="Figure 4: the same by PCA",
    plan=plan,
    measure=measure,
    section=section,
    description=ABOUT,
    findings=findings,
    findings_on=PAGE_HEADS,
    revision=2,  # correlation instead of covariance matrix
)
