"""Binaural manifolds (paper, section 4): the surface that a head's cue vectors lie on, unrolled.

In: cue vectors, with or without directions. Out: a few coordinates of each by local tangent space
alignment (LTSA), the same by PCA, and how faithful they are to the directions.

    y_n (N, D)  cue vectors             t_n (N, Q)  coordinates; Q = L + 1 for a closed surface
    I_n         neighbourhood of n      V_n (|I_n|, L)  tangent coordinates, by PCA of y[I_n]
    B (N, N)    alignment matrix, sparse: B[I_n, I_n] += 1 - 1/|I_n| - V_n V_nᵀ, over all n

Σ_n of what no affine map of V_n explains of t[I_n] is tr(tᵀ B t): the coordinates are the
eigenvectors of B with the *smallest* eigenvalues after the constant one (the paper prints
"largest"). No N × N array is ever dense.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import coo_array, csr_array, eye_array
from scipy.sparse.linalg import LinearOperator, eigsh, splu

from earatlas.errors import EaratlasWarning, InputError
from earatlas.types import Array, Indices

__all__ = ["Manifold", "alignment_matrix", "ltsa", "neighbour_graph", "pca"]

_BLOCK_NUMBERS = 2_000_000  # in one work array: 16 MB
_MOST_SETS = 5000  # of eigenvectors that are compared: seconds
_SHIFT = 1e-10  # of B's largest diagonal element: above its rounding, below its eigenvalues


def nearest_neighbours(y: Array, k: int, points: Array | None = None) -> Indices:
    """(N, k) the nearest rows of y to each of its own rows, itself apart; or to other points."""
    centre = y.mean(axis=0)  # near zero, |a|² + |b|² - 2ab keeps its digits
    y = y - centre
    asked = y if points is None else points - centre
    squares = (y**2).sum(axis=1)
    found = np.empty((len(asked), k), dtype=np.intp)
    step = max(_BLOCK_NUMBERS // len(y), 1)
    for start in range(0, len(asked), step):
        block = slice(start, start + step)
        distance = squares - 2 * (asked[block] @ y.T)
        if points is None:
            rows = np.arange(len(distance))
            distance[rows, rows + start] = np.inf
        found[block] = np.argpartition(distance, k - 1, axis=1)[:, :k]
    return found


def neighbour_graph(y: ArrayLike, neighbours: int = 20, *, symmetric: bool = True) -> csr_array:
    """(N, N) sparse: row n marks the neighbourhood of n, without n.

    Symmetric: two points are neighbours only if each is among the other's nearest, so that no
    outlier and no border pulls at points that have nearer ones.
    """
    cues = checked_vectors(y)
    if not 1 <= neighbours < len(cues):
        raise InputError(
            f"neighbours must be from 1 to {len(cues) - 1} for {len(cues)} vectors, got "
            f"{neighbours}. The paper takes 15 to 25."
        )
    near = nearest_neighbours(cues, neighbours)
    ends = np.arange(len(cues) + 1) * neighbours
    graph = csr_array((np.ones(near.size), near.ravel(), ends), shape=(len(cues),) * 2)
    graph.sort_indices()
    return csr_array(graph.multiply(graph.T)) if symmetric else graph


def _by_size(graph: csr_array, numbers: int) -> Iterator[tuple[Indices, Indices]]:
    """(points (B,), their neighbourhoods (B, n)) in blocks of one size n and bounded memory."""
    sizes = np.diff(graph.indptr)
    for size in np.unique(sizes[sizes > 0]):
        points = np.flatnonzero(sizes == size)
        step = max(_BLOCK_NUMBERS // (int(size) * numbers), 1)
        for start in range(0, len(points), step):
            block = points[start : start + step]
            yield block, graph.indices[graph.indptr[block, None] + np.arange(size)]


def alignment_matrix(y: Array, graph: csr_array, dims: int) -> csr_array:
    """B (N, N), sparse: what is left of each neighbourhood beside constants and its tangent."""
    rows, columns, values = [], [], []
    for _, near in _by_size(graph, y.shape[1]):
        size = near.shape[1]
        part = y[near] - y[near].mean(axis=1, keepdims=True)
        _, V = _tangents(part, dims)
        values.append((np.eye(size) - 1 / size - V @ V.mT).ravel())
        rows.append(np.repeat(near, size, axis=1).ravel())
        columns.append(np.tile(near, (1, size)).ravel())
    entries = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))
    return csr_array(coo_array(entries, shape=graph.shape))


def smallest_eigenpairs(B: csr_array, count: int) -> tuple[Array, Array]:
    """Values (Q,) and vectors (N, Q) of B, smallest first, among those orthogonal to constants."""
    N = B.shape[0]
    if 4 * count >= N:  # too few points for Krylov's method: the constant vector is made largest
        values, vectors = np.linalg.eigh(B.toarray() + B.diagonal().sum() / N)
        return values[:count], vectors[:, :count]
    shift = _SHIFT * float(B.diagonal().max())
    # Symmetric elimination: half the fill of the default, and B + shift needs no pivoting.
    factor = splu(
        (B + shift * eye_array(N)).tocsc(),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )

    def inverse(x: Array) -> Array:
        solved: Array = factor.solve(x.ravel() - x.mean())
        solved -= solved.mean()
        return solved

    start = np.random.default_rng(0).normal(size=N)
    operator = LinearOperator((N, N), matvec=inverse, dtype=np.float64)
    values, vectors = eigsh(operator, k=count, which="LA", v0=start - start.mean())
    return 1 / values[::-1] - shift, vectors[:, ::-1]


@dataclass(frozen=True, eq=False)
class Manifold:
    """Coordinates t of cue vectors y, with t ≈ t_i + J_i (y - y_i) in the neighbourhood of any i.

    Each coordinate has mean 0 and variance 1 over the kept vectors; their signs and scales mean
    nothing. What no neighbourhood holds fast is left out, but `embed` places it all the same.
    """

    coordinates: Array  # (M, Q)
    kept: Indices  # (M,) which of the N vectors, ascending
    cues: Array  # (M, P) those vectors, in the basis
    basis: Array | None  # (D, P) in which neighbours were sought; None: the cues' own
    graph: csr_array  # (M, M) neighbourhoods, each with the point itself
    eigenvalues: Array  # (Q,) of the alignment matrix: how far from affine each neighbourhood is
    order: Indices  # (Q,) which eigenvectors these are; 0 is the first after the constant one
    vectors: int  # N
    dims: int  # L

    def __repr__(self) -> str:
        M, Q = self.coordinates.shape
        return f"Manifold({M} of {self.vectors} vectors, L={self.dims}, Q={Q})"

    @property
    def left_out(self) -> Indices:
        """(N - M,) the vectors that had too few neighbours in common with the others."""
        return np.setdiff1d(np.arange(self.vectors), self.kept)

    def embed(self, y: ArrayLike) -> Array:
        """Coordinates (n, Q) of any vectors (n, D), by the tangent map of the nearest kept one.

        For kept vectors, those that were learned.
        """
        new = checked_vectors(y)
        columns = self.cues.shape[1] if self.basis is None else len(self.basis)
        if new.shape[1] != columns:
            raise InputError(
                f"y must have {columns} columns as learned, got {new.shape[1]}. "
                "Use the same cue layout."
            )
        new = new if self.basis is None else new @ self.basis
        nearest = nearest_neighbours(self.cues, 1, new)[:, 0]
        out = self.coordinates[nearest]
        asked = csr_array(self.graph[nearest])
        for rows, near in _by_size(asked, new.shape[1]):
            part = self.cues[near]
            part = part - part.mean(axis=1, keepdims=True)
            values, V = _tangents(part, self.dims)
            # y - y_i along the tangent, in the coordinates of the neighbourhood's own vectors
            along = (V.mT @ (part @ (new[rows] - self.cues[nearest[rows]])[..., None])) / values
            out[rows] += ((V @ along).mT @ self.coordinates[near])[:, 0]
        return out


def _tangents(part: Array, dims: int) -> tuple[Array, Array]:
    """Variances (B, L, 1) and left singular vectors V (B, n, L) of centred vectors (B, n, D).

    [1/√n, V] has orthonormal columns; those of V that the vectors do not span are zero.
    """
    n = part.shape[1]
    L = min(dims, n - 1)
    products = part @ part.mT
    # The constant vector, of variance 0 but for rounding, must not mix with thin tangents: it is
    # made the smallest by far.
    far = 2 / n * products.trace(axis1=1, axis2=2)[:, None, None]
    values, vectors = np.linalg.eigh(products - far)
    values, V = values[:, n - L :, None], vectors[..., n - L :]
    flat = values <= 1e-12 * values[:, -1:]
    return np.where(flat, np.inf, values), np.where(flat.mT, 0.0, V)


def checked_vectors(y: ArrayLike) -> Array:
    """The vectors as a float array (N, D), or an InputError that says what is wrong."""
    cues = np.asarray(y, dtype=np.float64)
    if cues.ndim != 2 or cues.size == 0 or not np.isfinite(cues).all():
        raise InputError(
            f"y must be finite numbers of shape (N, D), one row a vector, got shape {cues.shape}. "
            "Leave out the rows with missing cues."
        )
    return cues


def aligned_part(graph: csr_array, dims: int) -> Indices:
    """The largest set of points that neighbourhoods hold together, ascending.

    A neighbourhood joins where it has L + 1 points in common with what is joined already: with
    fewer it could turn freely, and that would be an eigenvector before any true coordinate. (L + 1
    points on a line still leave it free; to ask for more lost most of some measured surfaces.)
    """
    N, sizes = graph.shape[0], np.diff(graph.indptr)
    free, best = sizes > dims + 1, np.zeros(N, dtype=bool)
    while free.sum() > best.sum():
        start = int(np.argmax(np.where(free, sizes, 0)))
        part = np.zeros(N, dtype=bool)
        part[graph.indices[graph.indptr[start] : graph.indptr[start + 1]]] = True
        joined = 0
        while part.sum() > joined:
            joined = int(part.sum())
            holds = (graph @ part.astype(np.float64) > dims) & (sizes > dims + 1)
            part |= graph.T @ holds.astype(np.float64) > 0
        best = part if joined > best.sum() else best
        free &= ~part
        free[start] = False
    return np.flatnonzero(best)


def ltsa(
    y: ArrayLike,
    *,
    dims: int = 2,
    coordinates: int | None = None,
    neighbours: int = 20,
    symmetric: bool = True,
    candidates: int | None = None,
    whiten: int | None = None,
) -> Manifold:
    """Local tangent space alignment of vectors (N, D) on a surface of L = `dims` dimensions.

    `coordinates` is Q, by default L + 1: a closed surface needs one more. With `candidates` above
    Q, the Q most faithful of that many eigenvectors are chosen instead of the first: on a long
    surface the first few repeat its length (1, 2, 3 half waves) before any shows its width.
    With `whiten`, neighbours are sought among that many principal components, made equally large:
    in the open the lateral angle moves the cues so much more than elevation does that otherwise
    the surface is thinner than the gap between measured directions.
    """
    cues = checked_vectors(y)
    basis = None if whiten is None else _whitening(cues, whiten)
    cues = cues if basis is None else cues @ basis
    Q = dims + 1 if coordinates is None else coordinates
    count = max(Q, candidates or 0)
    if dims < 1 or not 1 <= Q <= 12 or count > 24:
        raise InputError(
            f"dims must be at least 1, coordinates from 1 to 12 and candidates at most 24, got "
            f"{dims}, {Q} and {count}. 2, 3 and 9 are usual."
        )
    if comb(count, Q) > _MOST_SETS:
        raise InputError(
            f"candidates must leave at most {_MOST_SETS} choices of {Q} coordinates, got {count} "
            f"with {comb(count, Q)}. Take fewer candidates, or {Q} for the first eigenvectors."
        )
    graph = neighbour_graph(cues, neighbours, symmetric=symmetric)
    if symmetric:
        graph = csr_array(graph + eye_array(len(cues)))
        graph.sort_indices()
        kept = aligned_part(graph, dims)
    else:
        kept = np.arange(len(cues))
    if len(kept) < count + 2:
        raise InputError(
            f"y must have more than {count + 1} vectors that hold together, got {len(kept)} of "
            f"{len(cues)}. Take more neighbours than {neighbours}, or more vectors."
        )
    inner = csr_array(graph[kept][:, kept])
    inner.sort_indices()
    values, vectors = smallest_eigenpairs(alignment_matrix(cues[kept], inner, dims), count)
    vectors = vectors * np.sqrt(len(kept))
    order = _faithful(cues[kept], vectors, Q) if count > Q else np.arange(Q)
    if len(kept) < 0.9 * len(cues):
        warnings.warn(
            f"{len(cues) - len(kept)} of {len(cues)} vectors have too few neighbours in common "
            f"with the others and are left out. Take more neighbours than {neighbours}.",
            EaratlasWarning,
            stacklevel=2,
        )
    return Manifold(
        vectors[:, order], kept, cues[kept], basis, inner, values[order], order, len(cues), dims
    )


def _whitening(y: Array, components: int) -> Array:
    """(D, P) axes of the leading principal components, scaled so that y @ axes has variance 1."""
    part = y - y.mean(axis=0)
    values, axes = np.linalg.eigh(part.T @ part / len(y))
    P = min(components, int((values > 1e-10 * values[-1]).sum()))
    if P < 1:
        raise InputError(
            f"whiten must be at least 1 and the vectors must differ, got {components}. "
            "About 20 is good for cues."
        )
    whitening: Array = axes[:, : -P - 1 : -1] / np.sqrt(values[: -P - 1 : -1])
    return whitening


def _faithful(y: Array, vectors: Array, count: int, most: int = 600) -> Indices:
    """Which `count` eigenvectors together put next to each other what is near in y.

    Scored on a sample: how far, in y, is the nearest neighbour by coordinates, against the truly
    nearest one (mean of the logarithm of the ratio). No direction is needed.
    """
    some = np.random.default_rng(0).permutation(len(y))[: min(most, len(y))]
    y = y[some] - y.mean(axis=0)
    squares = (y**2).sum(axis=1)
    distance = np.sqrt(np.maximum(squares[:, None] + squares - 2 * y @ y.T, 0.0))
    np.fill_diagonal(distance, np.inf)
    floor = np.maximum(distance.min(axis=1), 1e-12 * np.sqrt(squares.max()))
    ratio = np.log(np.maximum(distance, floor[:, None]) / floor[:, None])
    v = vectors[some].T
    rows = np.arange(len(some))
    apart = ((v[:, :, None] - v[:, None]) ** 2).astype(np.float32)  # (candidates, n, n)
    apart[:, rows, rows] = np.inf
    best, least = np.arange(count), np.inf
    for chosen in combinations(range(len(v)), count):
        near = sum(apart[q] for q in chosen).argmin(axis=1)
        score = float(ratio[rows, near].mean())
        if score < least - 1e-9:
            best, least = np.array(chosen), score
    return best


def pca(y: ArrayLike, coordinates: int = 3) -> Array:
    """The leading principal components (N, Q) of vectors (N, D), each scaled to variance 1."""
    cues = checked_vectors(y)
    if not 1 <= coordinates <= min(len(cues) - 1, cues.shape[1]):
        raise InputError(
            f"coordinates must be from 1 to {min(len(cues) - 1, cues.shape[1])} for vectors of "
            f"shape {cues.shape}, got {coordinates}. 3 can be drawn."
        )
    scores: Array = (cues - cues.mean(axis=0)) @ _whitening(cues, coordinates)
    return np.pad(scores, ((0, 0), (0, coordinates - scores.shape[1])))
