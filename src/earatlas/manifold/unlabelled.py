"""Unlabelled learning: PPAM on the intrinsic coordinates of the manifold (paper, conclusion).

Input: cue vectors of unknown directions. Output: an `IntrinsicMap`, which assigns coordinates to
new cues such that neighbouring sounds have neighbouring coordinates; a few labelled vectors turn
coordinates into directions.

    y_n (N, D)  cue vectors      t_n (N, Q)  coordinates (`earatlas.manifold.ltsa`), in place of x_n
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.angles import to_directions, to_vectors
from earatlas.geometry.spaces import Plane, Sphere
from earatlas.manifold.ltsa import Manifold, checked_vectors, ltsa
from earatlas.ppam.model import PPAM
from earatlas.types import Array

__all__ = ["CalibratedMap", "IntrinsicMap", "learn_unlabelled"]


@dataclass(frozen=True, eq=False)
class IntrinsicMap:
    """A PPAM from cues to the intrinsic coordinates of their manifold.

    Coordinates are scaled such that a sphere has a radius of 57.3, so one unit is about one degree.
    `learn_unlabelled` learns a map.

    Attributes
    ----------
    manifold : Manifold
        Manifold of the training cues, with its Q unscaled coordinates.
    model : PPAM
        Mapping between the scaled coordinates, on a plane with L = Q, and the cues.

    Examples
    --------
    >>> import earatlas as ea, numpy as np
    >>> x = ea.Sphere().grid(15.0)
    >>> y = ea.Sphere().log([[0.0, 0.0]], x) @ np.random.default_rng(0).normal(size=(2, 6))
    >>> intrinsic = ea.learn_unlabelled(y, whiten=None)
    >>> intrinsic.calibrated(y[::9], x[::9]).localize(y[:2]).shape
    (2, 2)
    """

    manifold: Manifold
    model: PPAM

    def locate(self, y: ArrayLike) -> Array:
        """Return the intrinsic coordinates of cue vectors.

        Parameters
        ----------
        y : array_like of shape (n, D)
            Cue vectors without missing values.

        Returns
        -------
        ndarray of shape (n, Q)
            Posterior means of the coordinates.
        """
        weights, means, _ = self.model.inverse_batch(checked_vectors(y))
        coordinates: Array = np.einsum("nk,nkq->nq", weights, means + self.model.centres)
        return coordinates

    def calibrated(self, y: ArrayLike, directions: ArrayLike) -> CalibratedMap:
        """Fit the map from coordinates to directions to a few labelled vectors.

        Parameters
        ----------
        y : array_like of shape (n, D)
            Cue vectors, at least Q + 2.
        directions : array_like of shape (n, 2)
            Their directions in degrees.

        Returns
        -------
        CalibratedMap
            A map from cues to directions.

        Raises
        ------
        InputError
            If there are too few labelled vectors, or not as many directions as vectors.
        """
        cues, points = checked_vectors(y), Sphere().check(directions)
        Q = self.manifold.coordinates.shape[1]
        if len(cues) != len(points) or len(cues) < Q + 2:
            raise InputError(
                f"y and directions must have equal lengths of at least {Q + 2}, got {len(cues)} "
                f"and {len(points)}. Label more recordings."
            )
        from scipy.interpolate import RBFInterpolator  # slow to import

        # Without smoothing, two vectors with almost equal coordinates would distort the map.
        spline = RBFInterpolator(
            self.locate(cues), to_vectors(points), kernel="thin_plate_spline", smoothing=1.0
        )
        return CalibratedMap(self, spline)


@dataclass(frozen=True, eq=False)
class CalibratedMap:
    """A map from cues to directions through intrinsic coordinates and a thin-plate spline."""

    intrinsic: IntrinsicMap
    spline: Callable[[Array], Array]  # coordinates (n, Q) -> vectors (n, 3)

    def localize(self, y: ArrayLike) -> Array:
        """Return the directions (n, 2) in degrees of cue vectors (n, D)."""
        return to_directions(self.spline(self.intrinsic.locate(y)))


def learn_unlabelled(
    y: ArrayLike,
    *,
    neighbours: int = 10,
    candidates: int = 9,
    whiten: int | None = 30,
    components: int | None = None,
    seed: int = 0,
) -> IntrinsicMap:
    """Learn to localize from cue vectors of unknown directions.

    Parameters
    ----------
    y : array_like of shape (N, D)
        Cue vectors. Use cues below 2 kHz, `CueLayout(ild_band_hz=(0, 2000))`: under anechoic
        conditions higher frequencies tear the surface (docs/figures/settings/manifold.md).
    neighbours : int, default 10
        Size of the neighbourhoods of `ltsa`.
    candidates : int, default 9
        Number of eigenvectors of `ltsa` among which the most faithful are selected.
    whiten : int or None, default 30
        Number of whitened principal components among which neighbours are found.
    components : int, optional
        Number of components of the PPAM; by default one per ten vectors.
    seed : int, default 0
        Seed of the PPAM.

    Returns
    -------
    IntrinsicMap
        The map from cues to intrinsic coordinates.

    References
    ----------
    .. [1] A. Deleforge, F. Forbes and R. Horaud, "Acoustic space learning for sound-source
       separation and localization on binaural manifolds", International Journal of Neural
       Systems, 25(1), 2015, section 8.

    Examples
    --------
    >>> import earatlas as ea, numpy as np
    >>> angle = np.radians(ea.Sphere().grid(15.0))
    >>> v = np.stack([np.cos(angle[:, 0]), np.sin(angle[:, 0]), np.sin(angle[:, 1])], axis=1)
    >>> y = np.tanh(v @ np.random.default_rng(0).normal(size=(3, 12)))
    >>> ea.learn_unlabelled(y, whiten=None).locate(y[:2]).shape
    (2, 3)
    """
    cues = checked_vectors(y)
    manifold = ltsa(cues, neighbours=neighbours, candidates=candidates, whiten=whiten)
    M, Q = manifold.coordinates.shape
    t = manifold.coordinates * (np.degrees(1.0) / np.sqrt(Q))
    bounds = tuple((float(low), float(high)) for low, high in zip(t.min(0), t.max(0), strict=True))
    kept = cues[manifold.kept]
    model = PPAM.fit(Plane(bounds), t, kept, components=components or max(M // 10, 1), seed=seed)
    return IntrinsicMap(manifold, model)
