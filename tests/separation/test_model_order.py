"""Number of sources and start of VESSL: every branch of the decision tree, and real mixtures."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.signal import oaconvolve

import earatlas as ea
from earatlas.features.stft import stft
from earatlas.localization.onset_mixture import OnsetMixture
from earatlas.separation import model_order
from earatlas.separation.initialization import Initialization
from earatlas.separation.model_order import ModelOrderSettings, fit_sources
from earatlas.simulation.random_reverberation import RandomReverberation

TWO_DIRECTIONS = np.array([[50.0, 10.0], [-70.0, 0.0]])
N_BINS = 100


@dataclass(frozen=True)
class FakeState:
    """A state of VESSL: number of sources and free energy, and how it was made."""

    count: int
    free_energy: float
    start: str
    variance: float = 1.0

    @property
    def sources(self) -> range:
        """As many as there are sources."""
        return range(self.count)

    @property
    def directions(self) -> np.ndarray:
        """One per source."""
        return np.zeros((self.count, 2))


@dataclass(frozen=True)
class FakeFit:
    """A fit of a state."""

    state: FakeState
    detections: Any
    anechoic: bool
    relative_variance: float

    @property
    def n_sources(self) -> int:
        """Number of sources."""
        return self.state.count


@dataclass
class FakeStart:
    """Starts of VESSL in a recording with known properties."""

    onsets: int  # sources that the onsets count; 0: no onsets
    reliable: bool = True
    reverberant: bool = False
    alternating: bool = True  # whether all sources have onsets at the same frequencies
    anechoic: tuple[bool, ...] = (True,) * 7  # whether the model fits, by the number of sources
    energies: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)  # by the number, nats per bin
    trial_loss: float = 0.0  # what a trial is below the final free energy, nats per bin
    variance: float = 1.0  # of the fit at the detections
    calls: list[str] = field(default_factory=list)

    @property
    def vessl(self) -> Any:
        """VESSL with N bins; a run completes a trial."""
        return SimpleNamespace(
            bins=range(N_BINS),
            directions=None,
            run=lambda trial: self._state(trial.count, "candidates"),
        )

    def _state(self, count: int, start: str, loss: float = 0.0) -> FakeState:
        energy = N_BINS * (self.energies[count] - loss)
        return FakeState(count, energy, start, self.variance if start == "detections" else 1.0)

    def detect_sources(self, n_sources: int | None) -> Any:
        """Return the detections."""
        count = 0 if not self.onsets else n_sources or self.onsets
        self.calls.append(f"detect {n_sources}")

        class Detections(SimpleNamespace):
            def __len__(self) -> int:
                return count

        estimate = SimpleNamespace(reverberant=self.reverberant)
        return Detections(
            reliable=self.reliable, directions=np.zeros((count, 2)), reverberation=estimate
        )

    def alternate(self, detections: Any, directions: np.ndarray) -> bool:
        """Return whether sources have onsets at the same frequencies."""
        return self.alternating

    def at_directions(self, directions: np.ndarray) -> FakeState:
        """Start at directions."""
        return self._state(len(directions), "detections")

    def at_candidates(self, n_sources: int) -> FakeState:
        """Start at candidates."""
        return self._state(n_sources, "candidates")

    def trial(self, n_sources: int) -> FakeState:
        """Return an incomplete state."""
        self.calls.append(f"trial {n_sources}")
        return self._state(n_sources, "trial", self.trial_loss)

    def source_fit(self, state: FakeState, detections: Any) -> FakeFit:
        """Return the fit of a state."""
        return FakeFit(state, detections, self.anechoic[state.count], state.variance)


GROWING = (0.0, 0.0, 1.0, 1.05, 9.0, 9.0, 9.0)  # two sources explain more than one; three hardly


@pytest.mark.parametrize(
    ("start", "given", "number", "taken"),
    [
        # Without onsets: the candidate search; the number is given or that of the free energy.
        (FakeStart(0), 3, 3, "candidates"),
        (FakeStart(0, energies=GROWING), None, 2, "candidates"),
        # A given number, with reliable and unreliable detections.
        (FakeStart(1, energies=GROWING), 2, 2, "detections"),
        (FakeStart(1, reliable=False, energies=GROWING), 1, 1, "candidates"),
        # In reverberant recordings the onsets decide.
        (FakeStart(1, reverberant=True, variance=99.0, energies=GROWING), None, 1, "detections"),
        (FakeStart(3, reverberant=True, reliable=False), None, 3, "candidates"),
        # The bins are explained, so no more sources are tried.
        (FakeStart(1, energies=GROWING), None, 1, "detections"),
        # They are not, and one more source explains them.
        (FakeStart(1, variance=99.0, energies=GROWING), None, 2, "candidates"),
        # It does so at frequencies of its own: another head made the recording.
        (FakeStart(1, variance=99.0, energies=GROWING, alternating=False), None, 1, "detections"),
        # With two detected sources, the onsets of a third may be masked.
        (
            FakeStart(2, variance=99.0, energies=(0.0, 0.0, 1.0, 2.0, 2.0, 2.0), alternating=False),
            None,
            3,
            "candidates",
        ),
        # One more source that does not fit the anechoic model is ignored.
        (
            FakeStart(1, variance=99.0, energies=GROWING, anechoic=(True,) * 2 + (False,) * 5),
            None,
            1,
            "detections",
        ),
        # The detections do not fit: the free energy counts from one source on.
        (
            FakeStart(3, energies=GROWING, anechoic=(True, True, True, False) + (True,) * 3),
            None,
            2,
            "candidates",
        ),
        # Unreliable detections of the same number as that of the free energy are kept.
        (FakeStart(2, reliable=False, energies=GROWING), None, 2, "candidates"),
        # A trial far below the previous free energy is not completed.
        (FakeStart(1, variance=99.0, energies=GROWING, trial_loss=1.3), None, 1, "detections"),
    ],
)  # fmt: skip
def test_decision_tree(start: FakeStart, given: int | None, number: int, taken: str) -> None:
    """Each branch takes the right start and the right number of sources."""
    fit: Any = fit_sources(start, given)  # type: ignore[arg-type]
    assert fit.n_sources == number
    assert fit.state.start == taken


def test_detections_are_repeated_for_another_number() -> None:
    """Detections of the result have the number of its sources."""
    start = FakeStart(1, variance=99.0, energies=GROWING)
    fit = fit_sources(start, None)  # type: ignore[arg-type]
    assert start.calls == ["detect None", "trial 2", "trial 3", "detect 2"]
    assert len(fit.detections) == 2


def test_settings_of_the_gain() -> None:
    """The smallest gain is per bin."""
    start = FakeStart(1, variance=99.0, energies=(0.0, 0.0, 0.3, 0.3, 0.3, 0.3, 0.3))
    for gain, number in ((0.29, 2), (0.31, 1)):
        settings = replace(ModelOrderSettings(), min_gain_nats=gain)
        assert fit_sources(start, None, settings).n_sources == number  # type: ignore[arg-type]


# --- real mixtures -----------------------------------------------------------------------------


def anechoic_pair(head: ea.Head, seconds: float) -> ea.Audio:
    """Return two talkers without reverberation."""
    sounds = [ea.synthetic_speech(seconds, seed=m) for m in range(2)]
    return ea.render_scene(
        head, sounds, TWO_DIRECTIONS, settings=ea.SceneSettings(snr_db=60.0)
    ).mixture


def reverberant_pair(head: ea.Head, seconds: float) -> ea.Audio:
    """Return two talkers with random reverberation of the head."""
    room = RandomReverberation(
        t60_seconds=0.3, volume_cubic_metres=80.0, distance_metres=1.5, drop_db=6.0
    )
    rng = np.random.default_rng(0)
    h = head.responses().at_rate(16_000)
    even = np.append(np.full(len(h), 1 / len(h)), 0.0)
    n = int(seconds * 16_000)
    samples = np.zeros((2, n))
    for m, direction in enumerate(TWO_DIRECTIONS):
        direct = ea.simulated_head(direction[None]).responses().at_rate(16_000)
        wet = room.response(np.concatenate([h, direct]), len(h), 16_000, even, rng)
        samples += oaconvolve(ea.synthetic_speech(seconds, seed=m)[None], wet, axes=1)[:, :n]
    return ea.Audio(samples / np.abs(samples).max(), 16_000)


def test_free_energy_counts_sources_in_anechoic_recordings_only(
    atlas: ea.Atlas, atlas_head: ea.Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two anechoic sources are found although onsets count one; in a room, onsets decide."""
    monkeypatch.setattr(OnsetMixture, "count_sources", lambda self, most: self.search(1)[-1])
    dry = anechoic_pair(atlas_head, 2.5)
    assert len(atlas.separate(dry, rendering="soft").sources) == 2
    wet = reverberant_pair(atlas_head, 2.5)

    def count(*_: object) -> None:
        raise AssertionError("VESSL was used to count the sources")

    monkeypatch.setattr(model_order, "_add_sources", count)
    assert len(atlas.separate(wet, rendering="soft").sources) == 1
    with pytest.raises(AssertionError, match="count the sources"):
        atlas.separate(dry, rendering="soft")


def test_more_sources_are_found_given_known_ones(atlas: ea.Atlas, atlas_head: ea.Head) -> None:
    """Starting from one or from none gives the same two; two known sources stay unchanged."""
    dry, separator = anechoic_pair(atlas_head, 1.5), atlas.separator
    bins = separator.coherent_bins(stft(dry.samples, atlas.layout.window, atlas.layout.hop), -60.0)
    start = Initialization(separator, bins)
    both = fit_sources(start, None)
    assert both.n_sources == 2
    one = start.source_fit(start.at_candidates(1), both.detections)
    assert one.relative_variance > ModelOrderSettings().explained_variance
    grown = model_order._add_sources(start, one.state, ModelOrderSettings())
    grown_fit = start.source_fit(grown, both.detections)
    np.testing.assert_allclose(grown_fit.state.directions, both.state.directions, atol=1e-9)
    two = start.source_fit(start.at_directions(TWO_DIRECTIONS), both.detections)
    assert two.relative_variance < ModelOrderSettings().explained_variance
