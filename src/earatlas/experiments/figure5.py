"""Figure 5: how PPAM divides a toy surface (N = 9,600, K = 15, L = 2, D = 3) into affine pieces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from earatlas.errors import missing_extra
from earatlas.experiments.bench import Bench
from earatlas.experiments.rows import Experiment, Row
from earatlas.experiments.tables import by_head, table, told
from earatlas.geometry.spaces import Plane
from earatlas.ppam.em import Learning
from earatlas.ppam.model import PPAM
from earatlas.types import Array, Indices

__all__ = ["EXPERIMENT"]


_SQUARE = Plane(((-1.0, 1.0), (-1.0, 1.0)))
_NOISE = 0.01
_HEADER = ["", "rms from the noiseless surface", "largest to smallest piece",
           "rank correlation of size and curvature"]  # fmt: skip
ABOUT = """\
The paper does not say which surface it took; this one is a sheet with a hill, a hollow and a bend.
Colours are the component that is most probable given x, as in the paper; the affine images of the
pieces are drawn apart. Beside PPAM: k-means on x alone, with as many pieces and an affine map by
least squares in each. Curvature is the mean square of the surface's second derivatives over a
piece; its rank correlation with the pieces' sizes is -1 where the most curved are the smallest."""
FINDINGS = """\
As in the paper, pieces follow the geometry of the surface, but only a little: they come nearer to
it than those of k-means, and the more curved ones tend to be the smaller, which they do not with
k-means. In size they hardly differ more than those do."""


def plan(bench: Bench) -> list[dict[str, Any]]:
    """One row: there is one toy, and nothing of it is random but its samples."""
    return [{"N": 9600, "K": 15, "seed": 0}]


def surface(x: Array) -> Array:
    """(N, 3) of (N, 2): a sheet with a hill and a hollow, one side of it bent up."""
    a, b = x.T
    hill = 0.6 * np.exp(-(((a + 0.4) / 0.3) ** 2) - ((b - 0.3) / 0.3) ** 2)
    hollow = 0.4 * np.exp(-(((a - 0.1) / 0.3) ** 2) - ((b + 0.45) / 0.3) ** 2)
    up = np.maximum(a - 0.3, 0.0) ** 2
    return np.stack([a - 0.3 * up, b, hill - hollow + up], axis=1)


def measure(bench: Bench, settings: dict[str, Any]) -> dict[str, Any]:
    """The samples, their pieces and the affine image of each."""
    from earatlas.experiments.figure_parts import pack

    N, K, seed = settings["N"], settings["K"], settings["seed"]
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (N, 2))
    y = surface(x) + rng.normal(scale=_NOISE, size=(N, 3))
    how = Learning(spread_prior=None, temperature=1.0, iterations=200)
    model = PPAM.fit(_SQUARE, x, y, components=K, latent=0, learning=how, seed=seed)
    gates, u = model.gates(x)
    mapped = np.einsum("kdl,nkl->nkd", model.A, u) + model.b
    piece = gates.argmax(axis=1)
    image = mapped[np.arange(N), piece]
    ways = {
        "PPAM": (piece, image),
        "k-means on x": _affine(x, y, _kmeans(x, K, seed, starts=bench.repeats(10))),
        "one affine map": _affine(x, y, np.zeros(N, dtype=np.intp)),
    }
    return {
        "components": len(model.weights),
        "ways": {name: _figures(x, *way) for name, way in ways.items()},
        "noise": _NOISE,
        "y": pack(y),
        "image": pack(image),
        "piece": piece.tolist(),
    }


def _kmeans(x: Array, pieces: int, seed: int, *, starts: int) -> Indices:
    try:
        from sklearn.cluster import KMeans
    except ImportError as error:
        raise missing_extra("sklearn", "scikit-learn") from error
    labels: Indices = KMeans(pieces, n_init=starts, random_state=seed).fit_predict(x)
    return labels


def _affine(x: Array, y: Array, piece: Indices) -> tuple[Indices, Array]:
    """The pieces, and their images (N, 3) by an affine map each."""
    image = np.empty_like(y)
    for k in np.unique(piece):
        own = piece == k
        basis = np.c_[x[own], np.ones(own.sum())]
        image[own] = basis @ np.linalg.lstsq(basis, y[own], rcond=None)[0]
    return piece, image


def _figures(x: Array, piece: Indices, image: Array) -> dict[str, float | None]:
    """How far from the surface, which has no noise, and how the pieces' sizes go with its bends."""
    sizes = np.bincount(piece)
    squares = np.bincount(piece, weights=_curvature(x) ** 2)[sizes > 0]
    sizes = sizes[sizes > 0]
    order = spearmanr(sizes, squares / sizes).statistic if len(sizes) > 1 else None
    return {
        "rms": round(float(np.sqrt(((surface(x) - image) ** 2).mean())), 5),
        "largest_to_smallest": round(float(sizes.max() / sizes.min()), 2),
        "size_and_curvature": order if order is None else round(float(order), 3),
    }


def _curvature(x: Array, step: float = 1e-3) -> Array:
    """Norm (N,) of the second derivatives of the surface, by differences."""
    a, b = step * np.eye(2)
    here = 2 * surface(x)
    along = [surface(x + d) + surface(x - d) - here for d in (a, b)]
    across = (surface(x + a + b) - surface(x + a - b) - surface(x - a + b) + surface(x - a - b)) / 4
    every = np.concatenate([*along, across, across], axis=1)
    return np.asarray(np.linalg.norm(every, axis=1) / step**2)


def section(rows: Sequence[Row], folder: Path) -> str:
    """The surface in the colours of its pieces, and the pieces' affine images."""
    import matplotlib

    from earatlas.experiments.figure_parts import INK, figure_of, picture, unpack

    (row, *_), *_ = by_head(rows).values()
    r, piece = row["result"], np.array(row["result"]["piece"])
    figure = figure_of(10.0, 4.2)
    order = np.random.default_rng(1).permutation(r["components"])  # neighbours unlike in colour
    colours = matplotlib.colormaps["tab20"](order[piece] / 20 + 0.01)
    for place, (name, title) in enumerate(
        (("y", "Samples, coloured by their piece"), ("image", "Affine images of the pieces")), 1
    ):
        axes = figure.add_subplot(1, 2, place, projection="3d")
        axes.scatter(*unpack(r[name]).T, c=colours, s=5, linewidths=0, depthshade=False)
        axes.set_title(title, fontsize=10, color=INK, fontweight="bold")
        axes.view_init(elev=36, azim=-118)
        axes.set_axis_off()
        axes.set_box_aspect((1.2, 1.2, 0.8), zoom=1.2)
    s = row["settings"]
    shown = picture(figure, folder, "figure5", "PPAM on a toy surface")
    lines = [
        [
            name,
            f"{way['rms']:.4f}",
            f"{way['largest_to_smallest']:.1f}" if way["size_and_curvature"] is not None else "",
            f"{way['size_and_curvature']:.2f}" if way["size_and_curvature"] is not None else "",
        ]
        for name, way in r["ways"].items()
    ]
    return (
        f"N = {s['N']}, K = {s['K']} ({r['components']} kept), L = 2, D = 3, as in the paper; the "
        f"noise is {r['noise']}.\n\n{shown}\n\n{table(_HEADER, lines)}"
    )


def findings(rows: Sequence[Row]) -> str:
    """What came out, in words."""
    return told(FINDINGS)


EXPERIMENT = Experiment(
    name="figure5",
    title="Figure 5: PPAM on a toy surface",
    plan=plan,
    measure=measure,
    section=section,
    about=ABOUT,
    findings=findings,
    findings_on=("toy",),
    revision=2,
    head=False,
)
