"""Figure 4: what PCA makes of frontal low ILD and low IPD, two axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.experiments.bench import PAGE_HEADS, Bench
from earatlas.experiments.figure3 import CUES
from earatlas.experiments.rows import Experiment, Row
from earatlas.experiments.tables import by_head, span, told
from earatlas.manifold.faithfulness import Faithfulness, faithfulness
from earatlas.manifold.ltsa import pca
from earatlas.types import Array

__all__ = ["EXPERIMENT"]

_SHOWN = ("low ILD", "low IPD")
ABOUT = """\
The axes are those of the correlation matrix, as in the paper: every channel counts alike."""
FINDINGS = """\
Low IPD is folded over itself on all heads (trustworthiness {phases}; {least} is homeomorphic), so
that directions far apart fall together. Low ILD is folded less ({levels}), and on ku100 hardly
({hardly}): there the second axis is that of the lowest channels, whose ILD hardly varies, and
without them it is folded as the others are. The paper calls both cues extremely distorted and rules
out linear regression by that; what a regression on all channels does, two axes do not show."""


def plan(bench: Bench) -> list[dict[str, Any]]:
    """A row a cue."""
    return [{"cue": cue, "seed": 0} for cue in _SHOWN]


def _standardized(y: Array) -> Array:
    """Every channel with mean 0 and variance 1; one that never changes is 0."""
    part = y - y.mean(axis=0)
    deviation = part.std(axis=0)
    changes = deviation > 1e-9 * deviation.max()
    alike: Array = part / np.where(changes, deviation, np.inf)
    return alike


def measure(bench: Bench, settings: dict[str, Any]) -> dict[str, Any]:
    """The two leading axes of the correlation matrix of the frontal directions' cues."""
    from earatlas.experiments.figure_parts import pack

    head = bench.whole
    head = head.subset(np.abs(head.directions[:, 0]) <= 90)
    t = pca(_standardized(head.cues(CUES[settings["cue"]])), coordinates=2)
    return {
        "score": asdict(faithfulness(bench.space, head.directions, t, seed=settings["seed"])),
        "spacing_degrees": head.spacing_degrees,
        "directions": pack(head.directions),
        "coordinates": pack(t),
    }


def section(rows: Sequence[Row], folder: Path) -> str:
    """Lines of one elevation in the plane of the first two axes."""
    import matplotlib
    from matplotlib.collections import LineCollection

    from earatlas.experiments.figure_parts import figure_of, picture, styled, unpack
    from earatlas.manifold.viewer import rings

    parts = []
    for head, own in by_head(rows).items():
        figure = figure_of(9.6, 4.3)
        colours, words = matplotlib.colormaps["turbo"], []
        own = sorted(own, key=lambda row: _SHOWN.index(row["settings"]["cue"]))
        for panel, row in enumerate(own, start=1):
            r, cue = row["result"], row["settings"]["cue"]
            x, t = unpack(r["directions"]), unpack(r["coordinates"])
            axes = figure.add_subplot(1, len(own), panel)
            low, high = x[:, 1].min(), x[:, 1].max()
            lines = rings(x, r["spacing_degrees"])
            shades = [colours(0.03 + 0.94 * (x[i, 1].mean() - low) / (high - low)) for i in lines]
            axes.add_collection(
                LineCollection([t[i] for i in lines], colors=shades, linewidths=0.8, alpha=0.8)
            )
            axes.autoscale_view()
            styled(axes, f"{cue}, {len(x)} frontal directions", "first axis", "second axis")
            s = r["score"]
            words.append(
                f"{cue}: trustworthiness {s['trustworthiness']:.2f}, continuity "
                f"{s['continuity']:.2f}, nearest by coordinates beyond 30° in "
                f"{100 * s['beyond_30_share']:.0f} %"
            )
        norm = matplotlib.colors.Normalize(low, high)
        bar = figure.colorbar(matplotlib.cm.ScalarMappable(norm, colours), ax=figure.axes,
                              aspect=30, pad=0.02)  # fmt: skip
        bar.set_label("elevation in degrees; a line is one elevation", fontsize=8)
        bar.ax.tick_params(labelsize=7)
        shown = picture(figure, folder, f"figure4_{head}", f"{head}: PCA of frontal cues")
        parts.append(f"**{head}**. {'; '.join(words)}.\n\n{shown}")
    return "\n\n".join(parts)


def findings(rows: Sequence[Row]) -> str:
    """What came out, in words and in the rows' figures."""
    trust = {
        (r["data"]["head"], r["settings"]["cue"]): r["result"]["score"]["trustworthiness"]
        for r in rows
    }
    return told(
        FINDINGS,
        phases=span((v for (_, cue), v in trust.items() if cue == "low IPD"), "{:.2f}"),
        levels=span(
            (v for (head, cue), v in trust.items() if cue == "low ILD" and head != "ku100"),
            "{:.2f}",
        ),
        hardly=f"{trust['ku100', 'low ILD']:.2f}",
        least=Faithfulness.LEAST,
    )


EXPERIMENT = Experiment(
    name="figure4",
    title="Figure 4: the same by PCA",
    plan=plan,
    measure=measure,
    section=section,
    about=ABOUT,
    findings=findings,
    findings_on=PAGE_HEADS,
    revision=2,  # of the correlation, no more the covariance matrix
)
