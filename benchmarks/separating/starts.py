"""Our VESSL from different starts, on one mixture; the coarser scales are learned here alone."""

import numpy as np

import earatlas as ea
from earatlas.ppam.em import Learning
from earatlas.ppam.model import PPAM
from earatlas.separation.multiscale_initialization import multiscale
from earatlas.separation.separator import Separator
from earatlas.separation.source_model import SourceModel
from earatlas.separation.vessl import VESSL, State
from earatlas.types import Array
from separating.figures import Row
from separating.methods import found_row, sure_bins

COARSE = Learning(starts=1, iterations=10)  # one scale only hands its masks on to the next


def our_scales(atlas: ea.Atlas, known: ea.Head) -> list[SourceModel]:
    """Our sources with 1, 2, 4, … charts of the head that the atlas was learned from, and its own.

    An atlas holds the model that is used; a multi-scale start needs the coarser ones too.
    """
    finest, x, y = atlas.separator.source_model, known.directions, known.cues(atlas.layout)
    noise = atlas.calibration.frame_noise
    assert noise is not None
    K = len(atlas.model.weights)
    sizes = [2**i for i in range(K.bit_length()) if 2**i < K]
    coarse = [PPAM.fit(atlas.space, x, y, components=k, learning=COARSE) for k in sizes]
    return [*(SourceModel.of(m, atlas.layout, noise, finest.how) for m in coarse), finest]


def every_start(
    scene: ea.SimulatedScene, separator: Separator, scales: list[SourceModel]
) -> dict[str, Row]:
    """Soft masks from each start."""
    M, grid = len(scene.directions), separator.scout.grid
    spectra, sure = sure_bins(separator, scene)
    vessl = VESSL(scales[-1], sure)
    sets = separator.scout.look(sure).best_sets(M, 4)
    rng = np.random.default_rng(0)
    guesses = [grid[rng.choice(len(grid), M, replace=False)] for _ in range(4)]

    def best_of(places: list[Array]) -> State:
        states = [vessl.run(vessl.start_at(x)) for x in places]
        return max(states, key=lambda state: state.free_energy)

    climbing = vessl.start_at(sets[0])
    for model in scales:
        coarse = VESSL(model, sure)
        climbing = coarse.run(coarse.start_with(climbing.assignments))
    states = {
        "random masks": multiscale(scales[-1:], sure, M, seed=0),
        "random directions": best_of(guesses[:1]),
        "best of 4 random directions": best_of(guesses),
        "multi-scale": multiscale(scales, sure, M, seed=0),
        "scout": best_of(sets[:1]),
        "scout + multi-scale": climbing,
        "best of 2 scouted": best_of(sets[:2]),
        "best of 4 scouted": best_of(sets),
        "true directions": best_of([scene.directions]),
    }
    return {
        name: found_row(scene, separator, vessl, state, spectra) for name, state in states.items()
    }
