"""Number of sources: the rule of `separate` beside information criteria, as the paper suggests.

    python benchmarks/counting.py --head ku100 --count 10

The paper (section 8) leaves the number M of sources open and proposes a Bayesian information
criterion. With the free energy F_M of VESSL in place of the log-likelihood,

    BIC(M) = F_M - p_M / 2 log N,   p_M = 2 M + (M - 1) C,

where N is the number of observed bins and C the number of mixing weights of a source: frequencies
in VESSL as printed, cells of a frame and a band in ours, which have a prior. `bound` is F_M without
a penalty; for VESSL as printed, λ and v are then maximized without a price. All criteria start
VESSL at the same candidate directions for M = 1 to 5 and take the largest value. `separate` is the
rule of the package: onsets, and the free energy where the anechoic model fits.

Talkers are at directions of a head that was learned from its other directions, at least 15° apart.
"""

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import joblib
import numpy as np
from protocol import load_head, mixtures, split

import earatlas as ea
from earatlas.features.layout import Threshold
from earatlas.features.recording import MemoryRecording
from earatlas.features.tf_bins import ObservedBins
from earatlas.separation.initialization import Initialization
from earatlas.separation.separator import Separator, observe_recording
from earatlas.separation.source_model import SourceModel, VESSLSettings
from earatlas.separation.vessl import VESSL, VESSLState

CANDIDATES = range(1, 6)  # numbers of sources that the criteria compare
RULES = ("separate", "BIC", "bound", "BIC, as printed", "bound, as printed")


@dataclass(frozen=True)
class Condition:
    """Noise and reverberation of the mixtures."""

    name: str
    snr_db: float = 60.0
    t60: float | None = None

    def scenes(
        self, head: ea.Head, held_out: ea.Head, count: int, talkers: int, seed: int
    ) -> Iterator[ea.SimulatedScene]:
        """Yield mixtures of so many talkers."""
        room = None if self.t60 is None else ea.Room(t60_seconds=self.t60)
        return mixtures(
            held_out, count, talkers, snr_db=self.snr_db, room=room, room_head=head, seed=seed
        )


CONDITIONS = (
    Condition("anechoic"),
    Condition("noise at 20 dB", snr_db=20.0),
    Condition("T60 0.3 s", t60=0.3),
    Condition("T60 0.6 s", t60=0.6),
)


def penalty(vessl: VESSL, n_sources: int) -> float:
    """Return half the number of parameters of M sources times the log of the number of bins."""
    weights = len(np.unique(vessl.cell))
    return 0.5 * (2 * n_sources + (n_sources - 1) * weights) * float(np.log(len(vessl.bins)))


def best_numbers(vessl: VESSL, states: list[VESSLState]) -> tuple[int, int]:
    """Return the numbers of sources with the largest BIC, and with the largest free energy."""
    bound = np.array([state.free_energy for state in states])
    price = np.array([penalty(vessl, M) for M in CANDIDATES])
    return CANDIDATES[int(np.argmax(bound - price))], CANDIDATES[int(np.argmax(bound))]


def as_printed(separator: Separator, bins: ObservedBins) -> VESSL:
    """Return VESSL as printed, with the map of the atlas."""
    head = separator.head
    settings = VESSLSettings.paper()
    model = SourceModel.from_ppam(head.model, head.layout, head.model.noise, settings)
    return VESSL(model, bins.restricted_to(head.layout))


def numbers(atlas: ea.Atlas, mixture: ea.Audio) -> list[int]:
    """Return the number of sources by each rule."""
    separator = atlas.separator
    recording = MemoryRecording(mixture).without_dc_offset()
    observed = observe_recording(
        separator, recording, mixture.rate, Threshold(), progress=lambda _: None
    )
    start = Initialization(separator, observed.bins)
    ours = [start.at_candidates(M) for M in CANDIDATES]
    printed = as_printed(separator, observed.bins)
    states = [printed.run(printed.initialize_at(state.directions)) for state in ours]
    rule = len(atlas.separate(mixture, rendering="soft").sources)
    return [rule, *best_numbers(start.vessl, ours), *best_numbers(printed, states)]


def main() -> None:
    """Print, for each condition, how often each rule finds the number of talkers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--head", default="ku100", help="head with its own atlas")
    parser.add_argument("--count", type=int, default=25, help="mixtures per number of talkers")
    parser.add_argument("--talkers", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--seed", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ea.EaratlasWarning)
    head = load_head(options.head)
    training, held_out = split(head, 0)
    atlas = ea.learn(training)
    print(f"Correct number of talkers, % of {options.count} mixtures of 3 s; {options.head}\n")
    print("| condition | talkers | " + " | ".join(RULES) + " |\n" + "|---" * (len(RULES) + 2) + "|")
    for condition in CONDITIONS:
        rows = []
        for M in options.talkers:
            scenes = condition.scenes(head, held_out, options.count, M, options.seed)
            found = joblib.Parallel(n_jobs=options.jobs)(
                joblib.delayed(numbers)(atlas, scene.mixture) for scene in scenes
            )
            correct = 100 * np.mean(np.array(found) == M, axis=0)
            rows.append(correct)
            cells = " | ".join(f"{value:.0f}" for value in correct)
            print(f"| {condition.name} | {M} | {cells} |", flush=True)
        cells = " | ".join(f"{value:.0f}" for value in np.mean(rows, axis=0))
        print(f"| {condition.name} | all | {cells} |", flush=True)


if __name__ == "__main__":
    main()
