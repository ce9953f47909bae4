"""Multi-scale initialization of VESSL with progressive masking (paper, section 6.2).

Input: source models of one head from coarse to fine, and the observed bins. Output: the state at
the finest scale. `Atlas.separate` initializes VESSL by onsets or by the candidate search instead;
this is the method of the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from earatlas.features.tf_bins import ObservedBins
from earatlas.separation.source_model import SourceModel
from earatlas.separation.vessl import VESSL, VESSLState

__all__ = ["multiscale_vessl"]


def multiscale_vessl(
    source_models: Sequence[SourceModel],
    bins: ObservedBins,
    n_sources: int,
    *,
    seed: int | np.random.Generator = 0,
) -> VESSLState:
    """Run VESSL from random masks at the coarsest scale to the finest.

    The masks of one scale initialize the next. At every scale masking is progressive: each frame is
    first one block, then 2, 4, … F blocks whose bins are assigned together. λ counts once per
    block, not once per bin: otherwise a source with more frames would get larger weights at every
    frequency, then more frames, and soon all of them.

    Parameters
    ----------
    source_models : sequence of SourceModel
        Models of the same head, the coarsest first.
    bins : ObservedBins
        Observed bins of the mixture.
    n_sources : int
        Number of sources M.
    seed : int or numpy.random.Generator, default 0
        Seed of the random masks.

    Returns
    -------
    VESSLState
        State at the finest scale. Its free energies begin after progressive masking.

    References
    ----------
    .. [1] A. Deleforge, F. Forbes and R. Horaud, "Acoustic space learning for sound-source
       separation and localization on binaural manifolds", International Journal of Neural Systems
       25(1), 2015.
    """
    rng = np.random.default_rng(seed)
    frames = rng.dirichlet(np.ones(n_sources), size=bins.frames).T
    assignments = frames[:, bins.t]
    for model in source_models:
        vessl = VESSL(model, bins)
        state = vessl.initialize_with(assignments)
        blocks = 1
        while blocks < bins.layout.n_frequencies:
            state = vessl.step(state, blocks=blocks, all_charts=True)
            blocks *= 2
        state = vessl.run(replace(state, free_energies=()))
        assignments = state.assignments
    return state
