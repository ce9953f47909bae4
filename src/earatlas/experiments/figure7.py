"""Figure 7: what goes into the separation of two talkers, and what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.evaluation.directions import assign_directions
from earatlas.evaluation.ground_truth import Truth, true_masks
from earatlas.evaluation.score import score
from earatlas.experiments.bench import Bench
from earatlas.experiments.rows import Experiment, Row
from earatlas.experiments.table2 import our_atlas
from earatlas.experiments.tables import by_head, said_by
from earatlas.experiments.talkers import talkers_at
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Plane
from earatlas.separation.spectrogram_summary import Picture

__all__ = ["EXPERIMENT"]


_BELIEF = ("centres", "weights", "means", "covariances")

ABOUT = """\
The panels are the paper's: (a) level differences, (b, c) log-density of each talker's direction,
(d, e) the probability that a bin is theirs, (f, g) true binary masks; grey is missing. Inference is
ours (`Atlas.separate`), learned from T2 as in Table 3."""


def plan(bench: Bench) -> list[dict[str, Any]]:
    """One mixture of two talkers, to look at."""
    return [{"sources": 2, "seed": 1}]


def measure(bench: Bench, settings: dict[str, Any]) -> dict[str, Any]:
    """All that is drawn."""
    from earatlas.experiments.figure_parts import pack

    _, asked = bench.training_set("T2")
    M, seed = settings["sources"], settings["seed"]
    scene = talkers_at(bench, asked, M, seed, seconds=(1.5, 2.5))
    found = our_atlas(bench).separate(scene.mixture, n_sources=M)
    order = assign_directions(scene.directions, found.directions).found
    sounds = [found.sources[int(j)].audio for j in order]
    quality = score(
        scene.images, np.stack([s.samples for s in sounds if s is not None]), scene.mixture.samples
    ).quality.mean()
    p = found.picture
    posteriors = [found.sources[int(j)].posterior.pruned(1e-6) for j in order]
    return {
        "true": scene.directions.tolist(),
        "found": found.directions[order].tolist(),
        "sdr_db": round(quality.sdr_db, 2),
        "stir_db": round(quality.sir_db, 2),
        "beliefs": [
            {name: getattr(posterior, name).tolist() for name in _BELIEF}
            for posterior in posteriors
        ],
        "seconds": p.seconds.tolist(),
        "frequencies_hz": p.frequencies_hz.tolist(),
        "ild_db": pack(p.ild_db),
        "masks": pack(p.masks[order]),
        "true_masks": pack(true_masks(p, Truth.of(scene).images)),
    }


def section(rows: Sequence[Row], folder: Path) -> str:
    """Input on top; then density, assignment and truth of each talker."""
    from earatlas.experiments.figure_parts import figure_of, picture, unpack
    from earatlas.plotting.scenes import draw_belief, draw_ild, draw_mask

    parts = []
    for head, own in by_head(rows).items():
        r = own[-1]["result"]
        masks, truth = unpack(r["masks"]), unpack(r["true_masks"])
        seen = Picture(
            seconds=np.array(r["seconds"]),
            frequencies_hz=np.array(r["frequencies_hz"]),
            level_db=np.zeros(0),  # not drawn here
            ild_db=unpack(r["ild_db"]),
            masks=masks,
        )
        figure = figure_of(12.0, 6.4)
        grid = figure.add_gridspec(2, 4)
        top = figure.add_subplot(grid[:, 0])
        bar = figure.colorbar(draw_ild(top, seen), ax=top, aspect=30, location="bottom")
        bar.set_label("dB, right over left", fontsize=8)
        bar.ax.tick_params(labelsize=7)
        top.set_title("(a) Level difference", loc="left", fontsize=10, fontweight="bold")
        for m, posterior in enumerate(r["beliefs"]):
            density = DirectionPosterior(Plane(), *(np.array(posterior[name]) for name in _BELIEF))
            axes_of_marks = axes = figure.add_subplot(grid[m, 1])
            place = ", ".join(f"{v:.0f}" for v in r["found"][m])
            draw_belief(axes, density, m=m, title=f"({'bc'[m]}) Talker {m + 1} at ({place})",
                        truth=r["true"][m])  # fmt: skip
            title = f"({'de'[m]}) Assignment"
            draw_mask(figure.add_subplot(grid[m, 2]), seen, masks[m], m=m, title=title)
            title = f"({'fg'[m]}) True mask"
            draw_mask(figure.add_subplot(grid[m, 3]), seen, truth[m], m=m, title=title)
        marks = axes_of_marks.get_legend_handles_labels()
        figure.legend(*marks, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
        shown = picture(figure, folder, f"figure7_{head}", f"{head}: a separation of two talkers")
        places = " and ".join(
            f"({f[0]:.1f}, {f[1]:.1f})° for ({t[0]:.1f}, {t[1]:.1f})°"
            for f, t in zip(r["found"], r["true"], strict=True)
        )
        parts.append(
            f"**{head}**, {said_by(own[-1])}: found {places}; SDR "
            f"{r['sdr_db']:.1f} dB, STIR {r['stir_db']:.1f} dB.\n\n{shown}"
        )
    return "\n\n".join(parts)


EXPERIMENT = Experiment(
    name="figure7",
    title="Figure 7: inputs and outputs of a separation",
    plan=plan,
    measure=measure,
    section=section,
    about=ABOUT,
    revision=2,
    sound=True,
)
