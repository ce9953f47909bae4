"""Local tangent space alignment (LTSA) of binaural cues (paper, section 4).

Input: cue vectors. Output: a few coordinates of each vector on the manifold that the vectors lie
on, by LTSA or PCA.

    y_n (N, D)  cue vectors             t_n (N, Q)  coordinates; Q = L + 1 for a closed surface
    I_n         neighbourhood of n      V_n (|I_n|, L)  tangent coordinates, by PCA of y[I_n]
    B (N, N)    alignment matrix, sparse: B[I_n, I_n] += 1 - 1/|I_n| - V_n V_nᵀ, over all n

The part of t[I_n] that no affine map of V_n explains, summed over n, is tr(tᵀ B t). Hence the
coordinates are the eigenvectors of B with the *smallest* eigenvalues after the constant one (the
paper prints "largest"). No dense N × N array is formed.
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

_BLOCK_NUMBERS = 2_000_000  # numbers per work array, 16 MB


def nearest_neighbours(y: Array, k: int, points: Array | None = None) -> Indices:
    """Return the k nearest rows of y (N, D) to each other row, or to other points: (N, k)."""
    centre = y.mean(axis=0)  # |a|² + |b|² - 2ab keeps its digits near zero
    y = y - centre
    queries = y if points is None else points - centre
    squares = (y**2).sum(axis=1)
    nearest = np.empty((len(queries), k), dtype=np.intp)
    step = max(_BLOCK_NUMBERS // len(y), 1)
    for start in range(0, len(queries), step):
        block = slice(start, start + step)
        distance = squares - 2 * (queries[block] @ y.T)
        if points is None:
            rows = np.arange(len(distance))
            distance[rows, rows + start] = np.inf
        nearest[block] = np.argpartition(distance, k - 1, axis=1)[:, :k]
    return nearest


def neighbour_graph(y: ArrayLike, neighbours: int = 20, *, symmetric: bool = True) -> csr_array:
    """Return the sparse neighbourhood graph (N, N); row n marks the neighbours of n, without n.

    If symmetric, two points are neighbours only if each is among the nearest of the other, so that
    outliers and borders do not affect points that have nearer neighbours.
    """
    cues = checked_vectors(y)
    if not 1 <= neighbours < len(cues):
        raise InputError(
            f"neighbours must be from 1 to {len(cues) - 1} for {len(cues)} vectors, got "
            f"{neighbours}. The paper uses 15 to 25."
        )
    near = nearest_neighbours(cues, neighbours)
    ends = np.arange(len(cues) + 1) * neighbours
    graph = csr_array((np.ones(near.size), near.ravel(), ends), shape=(len(cues),) * 2)
    graph.sort_indices()
    return csr_array(graph.multiply(graph.T)) if symmetric else graph


def _by_size(graph: csr_array, numbers: int) -> Iterator[tuple[Indices, Indices]]:
    """Yield blocks of points (B,) and their neighbourhoods (B, n), all of one size n."""
    sizes = np.diff(graph.indptr)
    for size in np.unique(sizes[sizes > 0]):
        points = np.flatnonzero(sizes == size)
        step = max(_BLOCK_NUMBERS // (int(size) * numbers), 1)
        for start in range(0, len(points), step):
            block = points[start : start + step]
            yield block, graph.indices[graph.indptr[block, None] + np.arange(size)]


def alignment_matrix(y: Array, graph: csr_array, dims: int) -> csr_array:
    """Return the sparse alignment matrix B (N, N) of vectors y (N, D)."""
    rows, columns, values = [], [], []
    for _, near in _by_size(graph, y.shape[1]):
        size = near.shape[1]
        centred = y[near] - y[near].mean(axis=1, keepdims=True)
        _, V = _tangents(centred, dims)
        values.append((np.eye(size) - 1 / size - V @ V.mT).ravel())
        rows.append(np.repeat(near, size, axis=1).ravel())
        columns.append(np.tile(near, (1, size)).ravel())
    entries = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))
    return csr_array(coo_array(entries, shape=graph.shape))


def smallest_eigenpairs(B: csr_array, count: int) -> tuple[Array, Array]:
    """Return eigenvalues (Q,) and eigenvectors (N, Q) of B, smallest first, without constants."""
    N = B.shape[0]
    if (
        4 * count >= N
    ):  # too few points for a Krylov method; the constant vector is made the largest
        values, vectors = np.linalg.eigh(B.toarray() + B.diagonal().sum() / N)
        return values[:count], vectors[:, :count]
    # Above the rounding errors of B, below its eigenvalues. Evidence:
    # docs/figures/settings/manifold.md, "ltsa".
    shift = 1e-10 * float(B.diagonal().max())
    # Symmetric elimination has half the fill-in, and B + shift needs no pivoting.
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
    """Coordinates of cue vectors on their manifold.

    In the neighbourhood of any vector i, t ≈ t_i + J_i (y - y_i). Each coordinate has mean 0 and
    variance 1 over the kept vectors; signs and scales are arbitrary. Vectors that share too few
    neighbours with the others are left out, but `embed` assigns coordinates to them, too. `ltsa`
    computes a manifold.

    Attributes
    ----------
    coordinates : ndarray of shape (M, Q)
        Coordinates t of the kept vectors.
    kept : ndarray of int, shape (M,)
        Indices of the kept ones of the N vectors, ascending.
    cues : ndarray of shape (M, P)
        The kept vectors, in the basis.
    basis : ndarray of shape (D, P) or None
        Whitening basis; None if the cues themselves were used (P = D).
    graph : sparse array of shape (M, M)
        Neighbourhoods, each including the point itself.
    eigenvalues : ndarray of shape (Q,)
        Eigenvalues of the alignment matrix: deviation from affine neighbourhoods.
    order : ndarray of int, shape (Q,)
        Indices of the eigenvectors; 0 is the first after the constant one.
    vectors : int
        Number N of input vectors.
    dims : int
        Dimension L of the surface.

    Examples
    --------
    >>> import earatlas as ea, numpy as np
    >>> u = np.random.default_rng(0).uniform(size=(200, 2))
    >>> manifold = ea.ltsa(np.column_stack([u, u[:, 0] ** 2]), neighbours=15)
    >>> manifold.embed([[0.5, 0.5, 0.25]]).shape
    (1, 3)
    """

    coordinates: Array  # (M, Q) t
    kept: Indices  # (M,) indices of the embedded ones of the N vectors, ascending
    cues: Array  # (M, P) these vectors, in the basis
    basis: Array | None  # (D, P) whitening basis; None: the cues themselves
    graph: csr_array  # (M, M) neighbourhoods, each including the point itself
    eigenvalues: Array  # (Q,) of the alignment matrix: deviation from affine neighbourhoods
    order: Indices  # (Q,) indices of the eigenvectors; 0 is the first after the constant one
    vectors: int  # N, number of input vectors
    dims: int  # L, dimension of the surface

    def __repr__(self) -> str:
        M, Q = self.coordinates.shape
        return f"Manifold({M} of {self.vectors} vectors, L={self.dims}, Q={Q})"

    @property
    def left_out(self) -> Indices:
        """Indices (N - M,) of the vectors that share too few neighbours with the others."""
        return np.setdiff1d(np.arange(self.vectors), self.kept)

    def embed(self, y: ArrayLike) -> Array:
        """Return the coordinates of new vectors, by the tangent map of the nearest kept vector.

        Parameters
        ----------
        y : array_like of shape (n, D)
            Cue vectors of the same layout.

        Returns
        -------
        ndarray of shape (n, Q)
            Coordinates; those of kept vectors equal `coordinates`.

        Raises
        ------
        InputError
            If the number of columns differs from that of the training vectors.
        """
        new = checked_vectors(y)
        columns = self.cues.shape[1] if self.basis is None else len(self.basis)
        if new.shape[1] != columns:
            raise InputError(
                f"y must have {columns} columns like the training vectors, got {new.shape[1]}. "
                "Use the same cue layout."
            )
        new = new if self.basis is None else new @ self.basis
        nearest = nearest_neighbours(self.cues, 1, new)[:, 0]
        out = self.coordinates[nearest]
        neighbourhoods = csr_array(self.graph[nearest])
        for rows, near in _by_size(neighbourhoods, new.shape[1]):
            centred = self.cues[near]
            centred = centred - centred.mean(axis=1, keepdims=True)
            values, V = _tangents(centred, self.dims)
            # y - y_i along the tangent, in terms of the vectors of the neighbourhood
            along = (V.mT @ (centred @ (new[rows] - self.cues[nearest[rows]])[..., None])) / values
            out[rows] += ((V @ along).mT @ self.coordinates[near])[:, 0]
        return out


def _tangents(centred: Array, dims: int) -> tuple[Array, Array]:
    """Return variances (B, L, 1) and left singular vectors V (B, n, L) of vectors (B, n, D).

    [1/√n, V] has orthonormal columns; columns of V that the vectors do not span are zero.
    """
    n = centred.shape[1]
    L = min(dims, n - 1)
    products = centred @ centred.mT
    # The constant vector has variance 0 up to rounding. It is made the smallest by far, so that it
    # does not mix with tangents of small variance.
    offset = 2 / n * products.trace(axis1=1, axis2=2)[:, None, None]
    values, vectors = np.linalg.eigh(products - offset)
    values, V = values[:, n - L :, None], vectors[..., n - L :]
    flat = values <= 1e-12 * values[:, -1:]
    return np.where(flat, np.inf, values), np.where(flat.mT, 0.0, V)


def checked_vectors(y: ArrayLike) -> Array:
    """Return the vectors as a float array (N, D), or raise an InputError."""
    cues = np.asarray(y, dtype=np.float64)
    if cues.ndim != 2 or cues.size == 0 or not np.isfinite(cues).all():
        raise InputError(
            f"y must be finite numbers of shape (N, D), one row per vector, got shape "
            f"{cues.shape}. Remove the rows with missing cues."
        )
    return cues


def aligned_part(graph: csr_array, dims: int) -> Indices:
    """Return the largest set of points that overlapping neighbourhoods connect, ascending.

    A neighbourhood is connected if it shares L + 1 points with the set. With fewer it could rotate
    freely, which would be an eigenvector before any true coordinate. (L + 1 points on a line still
    allow a rotation; requiring more points lost most of some measured surfaces.)
    """
    N, sizes = graph.shape[0], np.diff(graph.indptr)
    unvisited, best = sizes > dims + 1, np.zeros(N, dtype=bool)
    while unvisited.sum() > best.sum():
        start = int(np.argmax(np.where(unvisited, sizes, 0)))
        part = np.zeros(N, dtype=bool)
        part[graph.indices[graph.indptr[start] : graph.indptr[start + 1]]] = True
        size = 0
        while part.sum() > size:
            size = int(part.sum())
            connected = (graph @ part.astype(np.float64) > dims) & (sizes > dims + 1)
            part |= graph.T @ connected.astype(np.float64) > 0
        best = part if size > best.sum() else best
        unvisited &= ~part
        unvisited[start] = False
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
    """Embed vectors on a low-dimensional surface by local tangent space alignment.

    Parameters
    ----------
    y : array_like of shape (N, D)
        Cue vectors without missing values.
    dims : int, default 2
        Dimension L of the surface.
    coordinates : int, optional
        Number Q of coordinates; by default L + 1, as a closed surface needs.
    neighbours : int, default 20
        Size of the neighbourhoods.
    symmetric : bool, default True
        Whether two vectors are neighbours only if each is among the nearest of the other.
    candidates : int, optional
        If larger than Q, the Q most faithful of that many eigenvectors are selected instead of the
        first Q. On an elongated surface the first eigenvectors are harmonics of its length.
    whiten : int, optional
        If given, neighbours are found among that many principal components, scaled to equal
        variance. Under anechoic conditions the lateral angle changes cues so much more than
        elevation that the surface is otherwise thinner than the distance between measured
        directions.

    Returns
    -------
    Manifold
        The coordinates and what is needed to embed new vectors.

    Raises
    ------
    InputError
        If an argument is out of range, or if too few vectors are connected.

    Warns
    -----
    EaratlasWarning
        If more than a tenth of the vectors are left out.

    References
    ----------
    .. [1] Z. Zhang and H. Zha, "Principal manifolds and nonlinear dimensionality reduction via
       tangent space alignment", SIAM Journal on Scientific Computing, 26(1), 2004.
    .. [2] A. Deleforge, F. Forbes and R. Horaud, "Acoustic space learning for sound-source
       separation and localization on binaural manifolds", International Journal of Neural
       Systems, 25(1), 2015, section 4.

    Examples
    --------
    >>> import earatlas as ea, numpy as np
    >>> angle = np.linspace(0, 2 * np.pi, 100, endpoint=False)
    >>> circle = np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=1)
    >>> ea.ltsa(circle, dims=1, neighbours=6)
    Manifold(100 of 100 vectors, L=1, Q=2)
    """
    cues = checked_vectors(y)
    basis = None if whiten is None else _whitening(cues, whiten)
    cues = cues if basis is None else cues @ basis
    Q = dims + 1 if coordinates is None else coordinates
    count = max(Q, candidates or 0)
    if dims < 1 or not 1 <= Q <= 12 or count > 24:
        raise InputError(
            f"dims must be at least 1, coordinates from 1 to 12 and candidates at most 24, got "
            f"{dims}, {Q} and {count}. Use 2, 3 and 9, for example."
        )
    if comb(count, Q) > 5000:  # comparing so many takes seconds
        raise InputError(
            f"candidates must allow at most 5000 combinations of {Q} coordinates, "
            f"got {count} with {comb(count, Q)}. Use fewer candidates, or {Q} for the first "
            "eigenvectors."
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
            f"y must have more than {count + 1} connected vectors, got {len(kept)} of {len(cues)}. "
            f"Use more neighbours than {neighbours}, or more vectors."
        )
    inner = csr_array(graph[kept][:, kept])
    inner.sort_indices()
    values, vectors = smallest_eigenpairs(alignment_matrix(cues[kept], inner, dims), count)
    vectors = vectors * np.sqrt(len(kept))
    order = _most_faithful(cues[kept], vectors, Q) if count > Q else np.arange(Q)
    if len(kept) < 0.9 * len(cues):
        warnings.warn(
            f"{len(cues) - len(kept)} of {len(cues)} vectors have too few neighbours in common "
            f"with the others and are left out. Use more neighbours than {neighbours}.",
            EaratlasWarning,
            stacklevel=2,
        )
    return Manifold(
        vectors[:, order], kept, cues[kept], basis, inner, values[order], order, len(cues), dims
    )


def _whitening(y: Array, components: int) -> Array:
    """Return axes (D, P) of the leading principal components; y @ axes has variance 1."""
    centred = y - y.mean(axis=0)
    values, axes = np.linalg.eigh(centred.T @ centred / len(y))
    P = min(components, int((values > 1e-10 * values[-1]).sum()))
    if P < 1:
        raise InputError(
            f"whiten must be at least 1 and the vectors must differ, got {components}. "
            "Use about 20 for cues."
        )
    whitening: Array = axes[:, : -P - 1 : -1] / np.sqrt(values[: -P - 1 : -1])
    return whitening


def _most_faithful(y: Array, vectors: Array, count: int, max_points: int = 600) -> Indices:
    """Return the `count` eigenvectors that best preserve the neighbourhoods of y.

    The score on a random sample is the mean log ratio of two distances in y: to the nearest
    neighbour by coordinates, and to the nearest neighbour in y. It needs no directions.
    """
    sample = np.random.default_rng(0).permutation(len(y))[: min(max_points, len(y))]
    y = y[sample] - y.mean(axis=0)
    squares = (y**2).sum(axis=1)
    distance = np.sqrt(np.maximum(squares[:, None] + squares - 2 * y @ y.T, 0.0))
    np.fill_diagonal(distance, np.inf)
    floor = np.maximum(distance.min(axis=1), 1e-12 * np.sqrt(squares.max()))
    ratio = np.log(np.maximum(distance, floor[:, None]) / floor[:, None])
    v = vectors[sample].T
    rows = np.arange(len(sample))
    squared = ((v[:, :, None] - v[:, None]) ** 2).astype(np.float32)  # (candidates, n, n)
    squared[:, rows, rows] = np.inf
    best, least = np.arange(count), np.inf
    for chosen in combinations(range(len(v)), count):
        near = sum(squared[q] for q in chosen).argmin(axis=1)
        score = float(ratio[rows, near].mean())
        if score < least - 1e-9:
            best, least = np.array(chosen), score
    return best


def pca(y: ArrayLike, coordinates: int = 3) -> Array:
    """Return the leading principal components (N, Q) of vectors (N, D), scaled to variance 1."""
    cues = checked_vectors(y)
    if not 1 <= coordinates <= min(len(cues) - 1, cues.shape[1]):
        raise InputError(
            f"coordinates must be from 1 to {min(len(cues) - 1, cues.shape[1])} for vectors of "
            f"shape {cues.shape}, got {coordinates}. Use 3 for plots."
        )
    scores: Array = (cues - cues.mean(axis=0)) @ _whitening(cues, coordinates)
    return np.pad(scores, ((0, 0), (0, coordinates - scores.shape[1])))
