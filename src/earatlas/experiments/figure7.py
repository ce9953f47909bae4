"""Figure 7: inputs and outputs of the separation of two talkers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.evaluation.directions import assign_directions
from earatlas.evaluation.ground_truth import GroundTruth, true_masks
from earatlas.evaluation.score import score
from earatlas.experiments.bench import Bench
from earatlas.experiments.rows import Experiment, Row
from earatlas.experiments.table2 import our_atlas
from earatlas.experiments.tables import group_by_head, speech_label
from earatlas.experiments.talkers import render_talkers
from earatlas.experiments.vessl_as_published import separate_as_published, source_models
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Plane
from earatlas.separation.result import SpectrogramSummary
from earatlas.simulation.scene import SimulatedScene
from earatlas.types import Array

__all__ = ["EXPERIMENT"]


_POSTERIOR_FIELDS = ("centres", "weights", "means", "covariances")

METHODS = ("VESSL(T2)", "ours(T2)")
ABOUT = """\
The panels are those of the paper: (a) interaural level differences, (b, c) log-density of the
direction posterior of each talker, (d, e) posterior probability that a bin belongs to the
talker, (f, g) true binary masks; unobserved bins are grey. Inference is by VESSL as published,
and ours (`Atlas.separate`), both trained on T2 as in Table 3."""


@dataclass(frozen=True, eq=False)
class _Estimate:
    """Separated sources of one method."""

    sounds: Array  # (M, 2, n)
    directions: Array  # (M, 2), degrees
    posteriors: list[DirectionPosterior]
    spectrogram: SpectrogramSummary


def plan(bench: Bench) -> list[dict[str, Any]]:
    """Return one mixture of two talkers for each method."""
    return [{"sources": 2, "seed": 1, "method": method} for method in METHODS]


def _ours(bench: Bench, scene: SimulatedScene) -> _Estimate:
    found = our_atlas(bench).separate(scene.mixture, n_sources=len(scene.directions))
    sounds = np.stack([source.audio.samples for source in found.sources])
    posteriors = [source.posterior for source in found.sources]
    return _Estimate(sounds, found.directions, posteriors, found.spectrogram)


def _as_published(bench: Bench, scene: SimulatedScene, seed: int) -> _Estimate:
    found = separate_as_published(source_models(bench)["T2"], scene, seed)
    layout = found.layout
    f = np.arange(0, found.masks.shape[1], 2)  # the rows of the picture
    t = np.arange(0, found.masks.shape[2], max(found.masks.shape[2] // 300, 1))  # its columns
    ild = found.ild_db[np.ix_(f, t)]
    masks = np.where(np.isnan(ild), np.nan, found.masks[:, f][:, :, t])
    summary = SpectrogramSummary(
        seconds=t * layout.hop / layout.rate,
        frequencies_hz=layout.frequencies_hz[f],
        level_db=np.zeros(0),  # not drawn
        ild_db=ild,
        masks=masks,
    )
    return _Estimate(found.signals(), found.directions, list(found.posteriors), summary)


def measure(bench: Bench, settings: dict[str, Any]) -> dict[str, Any]:
    """Return everything that is drawn."""
    from earatlas.experiments.figure_parts import pack_array

    _, test = bench.training_set("T2")
    M, seed = settings["sources"], settings["seed"]
    scene = render_talkers(bench, test, M, seed, seconds=(1.5, 2.5))
    ours = settings["method"] == "ours(T2)"
    estimate = _ours(bench, scene) if ours else _as_published(bench, scene, seed)
    on_sphere = np.clip(estimate.directions, (-180, -90), (180, 90))
    order = [int(j) for j in assign_directions(scene.directions, on_sphere).found]
    quality = score(scene.images, estimate.sounds[order], scene.mixture.samples).quality.mean()
    p = estimate.spectrogram
    posteriors = [estimate.posteriors[j].pruned(1e-6) for j in order]
    return {
        "true": scene.directions.tolist(),
        "found": estimate.directions[order].tolist(),
        "sdr_db": round(quality.sdr_db, 2),
        "stir_db": round(quality.sir_db, 2),
        "posteriors": [
            {name: getattr(posterior, name).tolist() for name in _POSTERIOR_FIELDS}
            for posterior in posteriors
        ],
        "seconds": p.seconds.tolist(),
        "frequencies_hz": p.frequencies_hz.tolist(),
        "ild_db": pack_array(p.ild_db),
        "masks": pack_array(p.masks[order]),
        "true_masks": pack_array(true_masks(p, GroundTruth.of(scene).images)),
    }


def section(rows: Sequence[Row], folder: Path) -> str:
    """Return pictures with the input, and posterior, masks and true masks of each talker."""
    from earatlas.experiments.figure_parts import new_figure, save_picture, unpack_array
    from earatlas.plotting.scenes import draw_ild, draw_mask, draw_posterior

    parts = []
    shown = [
        (head, row["settings"].get("method", METHODS[-1]), row)
        for head, head_rows in group_by_head(rows).items()
        for row in head_rows
    ]
    for head, method, head_row in shown:
        r = head_row["result"]
        masks, truth = unpack_array(r["masks"]), unpack_array(r["true_masks"])
        summary = SpectrogramSummary(
            seconds=np.array(r["seconds"]),
            frequencies_hz=np.array(r["frequencies_hz"]),
            level_db=np.zeros(0),  # not drawn
            ild_db=unpack_array(r["ild_db"]),
            masks=masks,
        )
        figure = new_figure(12.0, 6.4)
        grid = figure.add_gridspec(2, 4)
        top = figure.add_subplot(grid[:, 0])
        bar = figure.colorbar(draw_ild(top, summary), ax=top, aspect=30, location="bottom")
        bar.set_label("dB, right over left", fontsize=8)
        bar.ax.tick_params(labelsize=7)
        top.set_title("(a) Level difference", loc="left", fontsize=10, fontweight="bold")
        for m, posterior in enumerate(r["posteriors"]):
            density = DirectionPosterior(
                Plane(), *(np.array(posterior[name]) for name in _POSTERIOR_FIELDS)
            )
            axes_of_marks = axes = figure.add_subplot(grid[m, 1])
            direction = ", ".join(f"{v:.0f}" for v in r["found"][m])
            draw_posterior(axes, density, m=m, title=f"({'bc'[m]}) Talker {m + 1} at ({direction})",
                        truth=r["true"][m])  # fmt: skip
            title = f"({'de'[m]}) Assignment"
            draw_mask(figure.add_subplot(grid[m, 2]), summary, masks[m], m=m, title=title)
            title = f"({'fg'[m]}) True mask"
            draw_mask(figure.add_subplot(grid[m, 3]), summary, truth[m], m=m, title=title)
        marks = axes_of_marks.get_legend_handles_labels()
        figure.legend(*marks, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
        picture = f"figure7_{head}" if method == METHODS[-1] else f"figure7_{head}_published"
        markdown = save_picture(
            figure, folder, picture, f"{head}, {method}: a separation of two talkers"
        )
        directions = " and ".join(
            f"({f[0]:.1f}, {f[1]:.1f})° for ({t[0]:.1f}, {t[1]:.1f})°"
            for f, t in zip(r["found"], r["true"], strict=True)
        )
        parts.append(
            f"**{head}, {method}**, {speech_label(head_row)}: estimated {directions}; SDR "
            f"{r['sdr_db']:.1f} dB, STIR {r['stir_db']:.1f} dB.\n\n{markdown}"
        )
    return "\n\n".join(parts)


EXPERIMENT = Experiment(
    name="figure7",
    title="Figure 7: inputs and outputs of a separation",
    plan=plan,
    measure=measure,
    section=section,
    description=ABOUT,
    revision=2,
    needs_speech=True,
)
