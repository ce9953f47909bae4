"""The paper's start of VESSL: from random masks at a coarse scale to the finest (section 6.2).

In: source models of the same head, the coarsest first, and the heard bins. Out: the state of the
last. Where to start is told by a scout or by onsets today; this is the paper as printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from earatlas.features.tf_bins import HeardBins
from earatlas.separation.source_model import SourceModel
from earatlas.separation.vessl import VESSL, State

__all__ = ["multiscale"]


def multiscale(
    source_models: Sequence[SourceModel],
    bins: HeardBins,
    n_sources: int,
    *,
    seed: int | np.random.Generator = 0,
) -> State:
    """The paper's start: from random masks at the coarsest scale to the finest, handing masks on.

    At every scale masking is progressive: a frame is first one block, then 2, 4, … F blocks whose
    bins are assigned together. λ stays even as long: whoever has more of the whole frames would
    have more of every frequency, so more of the next frames, and soon all of them. The free
    energies are those of the last scale, from the release on.
    """
    rng = np.random.default_rng(seed)
    frames = rng.dirichlet(np.ones(n_sources), size=bins.frames).T
    assignments = frames[:, bins.t]
    for model in source_models:
        vessl = VESSL(model, bins)
        even = vessl.start_with(np.full_like(assignments, 1 / n_sources)).shares
        state = replace(vessl.start_with(assignments), shares=even)
        blocks = 1
        while blocks < bins.layout.n_frequencies:
            state = vessl.step(state, blocks=blocks, all_charts=True)
            state = replace(state, shares=even)
            blocks *= 2
        state = vessl.run(replace(state, free_energies=()))
        assignments = state.assignments[:n_sources]
    return state
