"""VESSL with different initializations on one mixture; coarser models are learned only here."""

import numpy as np

import earatlas as ea
from earatlas.ppam.em import EMSettings
from earatlas.ppam.model import PPAM
from earatlas.separation.multiscale_initialization import multiscale_vessl
from earatlas.separation.separator import Separator
from earatlas.separation.source_model import SourceModel
from earatlas.separation.vessl import VESSL, VESSLState
from earatlas.types import Array
from separation_parts.methods import coherent_bins, vessl_row
from separation_parts.metrics import Row

# A coarse model only initializes the next one.
COARSE_SETTINGS = EMSettings(n_starts=1, max_iterations=10)


def our_scales(atlas: ea.Atlas, training: ea.Head) -> list[SourceModel]:
    """Return source models with 1, 2, 4, … charts of the training head, and that of the atlas.

    An atlas contains only the finest model; multi-scale initialization needs coarser ones as well.
    """
    finest, x, y = atlas.separator.source_model, training.directions, training.cues(atlas.layout)
    noise = atlas.calibration.frame_noise
    assert noise is not None
    K = len(atlas.model.weights)
    sizes = [2**i for i in range(K.bit_length()) if 2**i < K]
    coarse = [PPAM.fit(atlas.space, x, y, components=k, settings=COARSE_SETTINGS) for k in sizes]
    return [
        *(SourceModel.from_ppam(m, atlas.layout, noise, finest.settings) for m in coarse),
        finest,
    ]


def every_initialization(
    scene: ea.SimulatedScene, separator: Separator, scales: list[SourceModel]
) -> dict[str, Row]:
    """Return the metrics of soft masks for each initialization."""
    M, grid = len(scene.directions), separator.candidate_search.grid
    spectra, bins = coherent_bins(separator, scene)
    vessl = VESSL(scales[-1], bins)
    sets = separator.candidate_search.search(bins).best_sets(M, 4)
    rng = np.random.default_rng(0)
    random_sets = [grid[rng.choice(len(grid), M, replace=False)] for _ in range(4)]

    def best_of(direction_sets: list[Array]) -> VESSLState:
        states = [vessl.run(vessl.initialize_at(x)) for x in direction_sets]
        return max(states, key=lambda state: state.free_energy)

    multiscale = vessl.initialize_at(sets[0])
    for model in scales:
        coarse = VESSL(model, bins)
        multiscale = coarse.run(coarse.initialize_with(multiscale.assignments))
    states = {
        "random masks": multiscale_vessl(scales[-1:], bins, M, seed=0),
        "random directions": best_of(random_sets[:1]),
        "best of 4 random directions": best_of(random_sets),
        "multi-scale": multiscale_vessl(scales, bins, M, seed=0),
        "candidate search": best_of(sets[:1]),
        "candidate search + multi-scale": multiscale,
        "best of 2 candidate sets": best_of(sets[:2]),
        "best of 4 candidate sets": best_of(sets),
        "true directions": best_of([scene.directions]),
    }
    return {
        name: vessl_row(scene, separator, vessl, state, spectra) for name, state in states.items()
    }
