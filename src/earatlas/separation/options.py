"""Options of a separation: number of sources, rendering, threshold, output rate, dry signals."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from earatlas.errors import InputError, SettingHint
from earatlas.features.audio import check_rate
from earatlas.features.layout import Threshold
from earatlas.features.recording import Recording
from earatlas.separation.demixing.rendering import Rendering, check_rendering
from earatlas.separation.separator import MAX_SOURCES

__all__ = ["SeparationOptions"]

_MIN_RATE, _MAX_RATE = 2_000, 384_000  # Hz: range of speech, and of audio converters


@dataclass(frozen=True)
class SeparationOptions:
    """Options of a separation.

    Parameters
    ----------
    n_sources : int or None, default None
        Number of sources, from 1 to 6. None estimates the number.
    rendering : {"spatial", "soft", "binary"}, default "spatial"
        How the signals are made from the masks: by demixing filters, soft masks or binary masks.
    threshold : Threshold, optional
        Level that a time-frequency bin must exceed to be used.
    rate : int or None, default None
        Sampling rate of the separated signals in Hz, from 2000 to 384000. None keeps the rate of
        the recording.
    dry : bool, default False
        Whether to reduce the late reverberation of each source. The signals then no longer sum to
        the mixture.

    Raises
    ------
    InputError
        If a value is out of range.

    Examples
    --------
    >>> SeparationOptions(n_sources=2).rendering
    'spatial'
    """

    n_sources: int | None = None  # None: estimate the number
    rendering: Rendering = "spatial"
    threshold: Threshold = field(default_factory=Threshold)
    rate: int | None = None  # Hz, of the separated signals; None: that of the recording
    dry: bool = False  # reduce late reverberation

    def __post_init__(self) -> None:
        if self.n_sources is not None and self.n_sources not in range(1, MAX_SOURCES + 1):
            too_many = isinstance(self.n_sources, int) and self.n_sources > MAX_SOURCES
            reason = "Two microphones hardly separate more. " if too_many else ""
            raise InputError(
                f"n_sources must be from 1 to {MAX_SOURCES}, got {self.n_sources!r}. "
                f"{reason}Leave it out to estimate the number."
            )
        if self.n_sources is not None:
            object.__setattr__(self, "n_sources", int(self.n_sources))
        check_rendering(self.rendering)
        if self.rate is not None:
            object.__setattr__(self, "rate", check_rate(self.rate))
            if not _MIN_RATE <= self.rate <= _MAX_RATE:
                raise InputError(
                    f"rate must be from {_MIN_RATE} to {_MAX_RATE} Hz for separated signals, got "
                    f"{self.rate}. Choose another output rate.",
                    hint=SettingHint("rate=48000", "--rate 48000"),
                )

    def with_rate_of(self, recording: Recording) -> SeparationOptions:
        """Return the options with the recording's rate if no rate is given."""
        return self if self.rate is not None else replace(self, rate=recording.rate)
