"""What is wished of a separation: how many sources, how their sound is made, at which rate."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from earatlas.errors import InputError
from earatlas.features.audio import checked_rate
from earatlas.features.layout import Threshold
from earatlas.features.recording import Recording
from earatlas.separation.demixing.rendering import Rendering, check_rendering
from earatlas.separation.separator import MOST_SOURCES

__all__ = ["Separating"]

_RATES = (2_000, 384_000)  # Hz: below, no voice is left; above, no converter goes


@dataclass(frozen=True)
class Separating:
    """What is wished of a separation."""

    n_sources: int | None = None  # None: find out
    rendering: Rendering = "spatial"  # how sound is made from masks
    threshold: Threshold = field(default_factory=Threshold)
    rate: int | None = None  # Hz, of the sounds; None: that of the recording
    dry: bool = False  # each with less of the room

    def __post_init__(self) -> None:
        allowed = range(1, MOST_SOURCES + 1)
        if self.n_sources is not None and self.n_sources not in allowed:
            raise InputError(
                f"n_sources must be from 1 to {MOST_SOURCES}, or left out to be found, got "
                f"{self.n_sources!r}. Two ears hardly tell more apart."
            )
        if self.n_sources is not None:
            object.__setattr__(self, "n_sources", int(self.n_sources))
        check_rendering(self.rendering)
        if self.rate is not None:
            object.__setattr__(self, "rate", checked_rate(self.rate))
            if not _RATES[0] <= self.rate <= _RATES[1]:
                raise InputError(
                    f"rate must be from {_RATES[0]} to {_RATES[1]} Hz for sounds to be separated, "
                    f"got {self.rate}. Ask for another with rate= (command line: --rate)."
                )

    def of(self, recording: Recording) -> Separating:
        """The same with a rate: the recording's own, unless another is wished."""
        return self if self.rate is not None else replace(self, rate=recording.rate)
