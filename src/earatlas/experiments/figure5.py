"""Figure 5: how PPAM divides a toy surface (N = 9,600, K = 15, L = 2, D = 3) into affine pieces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earatlas.directions import Plane
from earatlas.experiments.data import Bench
from earatlas.experiments.rows import Experiment, Row
from earatlas.ppam import PPAM, Learning

__all__ = ["EXPERIMENT"]

Array = NDArray[np.float64]

_SQUARE = Plane(((-1.0, 1.0), (-1.0, 1.0)))
_NOISE = 0.01
REMARKS = """\
The paper does not say which surface it took; this one is a sheet with a hill, a hollow and a bend.
As there, pieces follow the geometry of the surface: small where it curves, large where it is flat,
which k-means on x alone would not give. Colours are the component that is most
probable given x, as in the paper; the affine images of the pieces are drawn apart."""


def plan(bench: Bench) -> list[dict[str, Any]]:
    """One row."""
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
    from earatlas.experiments.drawing import pack

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
    linear = np.c_[x, np.ones(N)] @ np.linalg.lstsq(np.c_[x, np.ones(N)], y, rcond=None)[0]
    return {
        "components": len(model.weights),
        "rms": float(np.sqrt(((y - image) ** 2).mean())),
        "rms_linear": float(np.sqrt(((y - linear) ** 2).mean())),
        "noise": _NOISE,
        "y": pack(y),
        "image": pack(image),
        "piece": piece.tolist(),
    }


def render(rows: Sequence[Row], folder: Path) -> str:
    """The surface in the colours of its pieces, and the pieces' affine images."""
    import matplotlib

    from earatlas.experiments.drawing import INK, figure_of, picture, unpack

    row = rows[-1]
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
    return (
        f"N = {s['N']}, K = {s['K']} ({r['components']} kept), L = 2, D = 3, as in the paper. Root "
        f"mean square from the surface: {r['rms']:.3f} by affine pieces, {r['rms_linear']:.3f} by "
        f"one affine map; the noise is {r['noise']}.\n\n{shown}"
    )


EXPERIMENT = Experiment(
    name="figure5",
    title="Figure 5: PPAM on a toy surface",
    plan=plan,
    measure=measure,
    render=render,
    remarks=REMARKS,
    head=False,
)
