"""Figure 5: affine components of PPAM on a synthetic surface (N = 9,600, K = 15, L = 2, D = 3)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from earatlas.errors import missing_extra
from earatlas.experiments.bench import Bench
from earatlas.experiments.rows import Experiment, Row
from earatlas.experiments.tables import fill_template, group_by_head, markdown_table
from earatlas.geometry.spaces import Plane
from earatlas.ppam.em import EMSettings
from earatlas.ppam.model import PPAM
from earatlas.types import Array, Indices

__all__ = ["EXPERIMENT"]


_SQUARE = Plane(((-1.0, 1.0), (-1.0, 1.0)))  # domain of the toy surface, without unit
_HEADER = ["", "rms from the noiseless surface", "largest to smallest piece",
           "rank correlation of size and curvature"]  # fmt: skip
ABOUT = """\
The paper does not specify its surface; this one is a sheet with a hill, a hollow and a bend.
Colours show the most probable component given x, as in the paper; the affine images of the
pieces are drawn separately. PPAM is compared with k-means on x alone, with as many pieces and a
least-squares affine map in each. Curvature is the mean square of the second derivatives of the
surface over a piece; its rank correlation with the sizes of the pieces is -1 if the most curved
pieces are the smallest."""
FINDINGS = """\
As in the paper, the pieces follow the geometry of the surface, but only slightly: they
approximate it better than those of k-means, and the more curved pieces tend to be smaller,
unlike those of k-means. Their sizes hardly vary more than those of k-means."""


def plan(bench: Bench) -> list[dict[str, Any]]:
    """Return one row, as only the samples are random."""
    return [{"N": 9600, "K": 15, "seed": 0}]


def surface(x: Array) -> Array:
    """Return the surface (N, 3) at (N, 2): a sheet with a hill, a hollow and a bent side."""
    a, b = x.T
    hill = 0.6 * np.exp(-(((a + 0.4) / 0.3) ** 2) - ((b - 0.3) / 0.3) ** 2)
    hollow = 0.4 * np.exp(-(((a - 0.1) / 0.3) ** 2) - ((b + 0.45) / 0.3) ** 2)
    bend = np.maximum(a - 0.3, 0.0) ** 2
    return np.stack([a - 0.3 * bend, b, hill - hollow + bend], axis=1)


def measure(bench: Bench, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the samples, their pieces and the affine image of each."""
    from earatlas.experiments.figure_parts import pack_array

    N, K, seed = settings["N"], settings["K"], settings["seed"]
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (N, 2))
    noise = 0.01  # standard deviation
    y = surface(x) + rng.normal(scale=noise, size=(N, 3))
    learning_settings = EMSettings(spread_prior=None, temperature=1.0, max_iterations=200)
    model = PPAM.fit(_SQUARE, x, y, components=K, latent=0, settings=learning_settings, seed=seed)
    log_gating, u = model.log_gating(x)
    mapped = np.einsum("kdl,nkl->nkd", model.A, u) + model.b
    piece = log_gating.argmax(axis=1)
    image = mapped[np.arange(N), piece]
    methods = {
        "PPAM": (piece, image),
        "k-means on x": _fit_affine_maps(x, y, _kmeans(x, K, seed, starts=bench.repeats(10))),
        "one affine map": _fit_affine_maps(x, y, np.zeros(N, dtype=np.intp)),
    }
    return {
        "components": len(model.weights),
        "ways": {name: _measures(x, *method) for name, method in methods.items()},
        "noise": noise,
        "y": pack_array(y),
        "image": pack_array(image),
        "piece": piece.tolist(),
    }


def _kmeans(x: Array, pieces: int, seed: int, *, starts: int) -> Indices:
    try:
        from sklearn.cluster import KMeans
    except ImportError as error:
        raise missing_extra("sklearn", "scikit-learn") from error
    labels: Indices = KMeans(pieces, n_init=starts, random_state=seed).fit_predict(x)
    return labels


def _fit_affine_maps(x: Array, y: Array, piece: Indices) -> tuple[Indices, Array]:
    """Return the pieces and their images (N, 3) by one affine map per piece."""
    image = np.empty_like(y)
    for k in np.unique(piece):
        members = piece == k
        basis = np.c_[x[members], np.ones(members.sum())]
        image[members] = basis @ np.linalg.lstsq(basis, y[members], rcond=None)[0]
    return piece, image


def _measures(x: Array, piece: Indices, image: Array) -> dict[str, float | None]:
    """Return the distance from the noiseless surface, and how piece sizes relate to curvature."""
    sizes = np.bincount(piece)
    squares = np.bincount(piece, weights=_curvature(x) ** 2)[sizes > 0]
    sizes = sizes[sizes > 0]
    rank_correlation = spearmanr(sizes, squares / sizes).statistic if len(sizes) > 1 else None
    return {
        "rms": round(float(np.sqrt(((surface(x) - image) ** 2).mean())), 5),
        "largest_to_smallest": round(float(sizes.max() / sizes.min()), 2),
        "size_and_curvature": rank_correlation
        if rank_correlation is None
        else round(float(rank_correlation), 3),
    }


def _curvature(x: Array, step: float = 1e-3) -> Array:
    """Return the norm (N,) of the second derivatives of the surface, by finite differences."""
    a, b = step * np.eye(2)
    here = 2 * surface(x)
    second_derivatives = [surface(x + d) + surface(x - d) - here for d in (a, b)]
    mixed_derivative = (
        surface(x + a + b) - surface(x + a - b) - surface(x - a + b) + surface(x - a - b)
    ) / 4
    every = np.concatenate([*second_derivatives, mixed_derivative, mixed_derivative], axis=1)
    return np.asarray(np.linalg.norm(every, axis=1) / step**2)


def section(rows: Sequence[Row], folder: Path) -> str:
    """Return the surface in the colours of its pieces, and the affine images of the pieces."""
    import matplotlib

    from earatlas.experiments.figure_parts import INK, new_figure, save_picture, unpack_array
    from earatlas.plotting.palette import ELEVATION_MAP

    (row, *_), *_ = group_by_head(rows).values()
    r, piece = row["result"], np.array(row["result"]["piece"])
    figure = new_figure(10.0, 4.2)
    # A random order gives neighbouring pieces different shades, which differ also in lightness.
    order = np.random.default_rng(1).permutation(r["components"])
    colours = matplotlib.colormaps[ELEVATION_MAP](order[piece] / (r["components"] - 1))
    for position, (name, title) in enumerate(
        (("y", "Samples, coloured by their piece"), ("image", "Affine images of the pieces")), 1
    ):
        axes = figure.add_subplot(1, 2, position, projection="3d")
        axes.scatter(*unpack_array(r[name]).T, c=colours, s=5, linewidths=0, depthshade=False)
        axes.set_title(title, fontsize=10, color=INK, fontweight="bold")
        axes.view_init(elev=36, azim=-118)
        axes.set_axis_off()
        axes.set_box_aspect((1.2, 1.2, 0.8), zoom=1.2)
    s = row["settings"]
    markdown = save_picture(figure, folder, "figure5", "PPAM on a toy surface")
    lines = [
        [
            name,
            f"{method['rms']:.4f}",
            f"{method['largest_to_smallest']:.1f}"
            if method["size_and_curvature"] is not None
            else "",
            f"{method['size_and_curvature']:.2f}"
            if method["size_and_curvature"] is not None
            else "",
        ]
        for name, method in r["ways"].items()
    ]
    return (
        f"N = {s['N']}, K = {s['K']} ({r['components']} kept), L = 2, D = 3, as in the paper; the "
        f"noise is {r['noise']}.\n\n{markdown}\n\n{markdown_table(_HEADER, lines)}"
    )


def findings(rows: Sequence[Row]) -> str:
    """Return the findings."""
    return fill_template(FINDINGS)


EXPERIMENT = Experiment(
    name="figure5",
    title="Figure 5: PPAM on a toy surface",
    plan=plan,
    measure=measure,
    section=section,
    description=ABOUT,
    findings=findings,
    findings_on=("toy",),
    revision=2,
    head=False,
)
