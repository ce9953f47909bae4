"""Blocks of any size to hops and back: the input and the output of a live stream.

A stream is processed in hops of a fixed length, so that the size of the blocks has no influence on
the result. `StreamInput` returns the hops that a block completes, without the constant offset of
the converter, also at the head's rate (`Resampler`). `StreamOutput` holds the separated hops until
they are due and makes the report of each block, which has as many samples as the block.

    y[k] = Σ_j h_p[j] x[i_k - j]        i_k = ⌊k down / up⌋,  p = k down mod up     (resampling)

    up / down     target rate over input rate, in lowest terms
    h (up, taps)  windowed sinc for each phase p

The state consists of arrays and numbers, so that it can be copied and pickled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import gcd

import numpy as np

from earatlas.features.input_samples import DCOffsetFilter, SampleChecker
from earatlas.geometry.alternatives import Alternative
from earatlas.geometry.lateral_angle import LateralAngle, lateral_angles
from earatlas.localization.diagnostics import Doubt, DoubtKind, input_doubt
from earatlas.streaming.report import LiveReport, LiveSource
from earatlas.tracking.front_end import TrackingFrontEnd
from earatlas.tracking.online_track import OnlineTrack, TrackState
from earatlas.types import Array

__all__ = ["Hop", "OutputSettings", "Resampler", "ResamplerSettings", "StreamInput", "StreamOutput"]


@dataclass(frozen=True, eq=False, slots=True)
class Hop:
    """The samples of one hop, without the offset of the converter."""

    samples: Array  # (2, hop) at the rate of the stream
    resampled: Array  # (2, n) at the head's rate


class StreamInput:
    """Converts blocks (2, n) at `rate` to hops of `hop` samples, also at `head_rate`."""

    def __init__(self, rate: int, head_rate: int, hop: int) -> None:
        self._hop = hop
        self._offset = DCOffsetFilter(rate, hop)
        self._resampler = Resampler(rate, head_rate, ResamplerSettings())
        self._remainder = np.zeros((2, 0))  # samples that do not fill a hop yet
        self.n_samples = 0  # samples so far
        self._samples = SampleChecker(rate)

    def accept(self, x: Array) -> Array:
        """Count the samples of a block (2, n) and replace those that are not usable by silence."""
        self.n_samples += x.shape[1]
        return self._samples.usable(x)

    def padding(self, latency_samples: int) -> Array:
        """Return the samples (2, n) that complete the last hop and pass the latency.

        They are the converter's offset: filters with look-ahead would respond to a step.
        """
        missing = -(self.n_samples + latency_samples) % self._hop + latency_samples
        return np.repeat(self._offset.current_offset, missing, axis=1)

    def hops(self, x: Array) -> Iterator[Hop]:
        """Yield the hops that samples (2, n) complete."""
        x = np.concatenate([self._remainder, x], axis=1)
        n_whole = x.shape[1] // self._hop * self._hop
        self._remainder = x[:, n_whole:]
        for start in range(0, n_whole, self._hop):
            samples = self._offset.push(x[:, start : start + self._hop])
            yield Hop(samples, self._resampler.push(samples))

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Doubts about samples that were replaced or are clipped."""
        return tuple(input_doubt(finding) for finding in self._samples.findings)


# Evidence: docs/figures/settings/streaming.md, "hops".
@dataclass(frozen=True, slots=True)
class OutputSettings:
    """What a report says about a source."""

    active_seconds: float = 0.4  # time since the last hit within which a source is active
    level_seconds: float = 0.3  # time constant (1/e) of the level of a source


@dataclass(frozen=True, eq=False, slots=True)
class _Position:
    """What a report says about where a track is; several hops are reported between two steps."""

    state: tuple[object, ...]  # of the track, by `_position_state`
    direction: Array  # (C,) degrees
    radius_90: float  # degrees
    alternatives: tuple[Alternative, ...]  # the direction first
    lateral_angle: LateralAngle | None

    @classmethod
    def of(cls, track: OnlineTrack, front_end: TrackingFrontEnd) -> _Position:
        """Return the position of a track."""
        columns, state = front_end.sound.space.columns, _position_state(track, front_end)
        direction = track.direction[:columns]
        if not front_end.directional:
            # Identical channels have no direction: the cap has 90 % of the sphere.
            radius_90 = float(np.degrees(np.arccos(-0.8)))
            only = Alternative(direction, 1.0, radius_90)
            return cls(state, direction, radius_90, (only,), None)
        alternatives = tuple(
            replace(one, direction=one.direction[:columns]) for one in track.possible_directions
        )
        return cls(state, direction, track.radius_90, alternatives, _lateral_angle(track))


def _position_state(track: OnlineTrack, front_end: TrackingFrontEnd) -> tuple[object, ...]:
    """Return everything that the position of a track depends on."""
    return (
        track.vector.tobytes(),
        track.velocity.tobytes(),
        track.error_degrees,
        track.coasting_seconds,
        track.posterior,
        front_end.directional,
    )


class StreamOutput:
    """Pending hops of the separated signals, levels of the tracks, and reports."""

    def __init__(self, hop: int, rate: int, latency_samples: int, settings: OutputSettings) -> None:
        """Return samples of `hop` that were rendered `latency_samples` after the input."""
        self._hop, self._settings = hop, settings
        self._decay = float(np.exp(-hop / rate / settings.level_seconds))
        self._next_sample, self._position = hop - latency_samples, 0
        self._pending: deque[tuple[int, dict[int, Array]]] = deque()
        self._powers: dict[int, float] = {}  # smoothed power of the signal, by track id
        # Confirmed tracks, and deleted ones whose last samples are pending, by id
        self._tracks: dict[int, OnlineTrack] = {}
        self._positions: dict[int, _Position] = {}  # last reported, by track id

    def append(self, signals: dict[int, Array]) -> None:
        """Append a hop of signals (2, hop), by track id; samples before 0 are dropped."""
        if self._next_sample + self._hop > 0:
            self._pending.append((self._next_sample, signals))
        self._next_sample += self._hop
        for i, signal in signals.items():
            power = float(np.mean(signal**2))
            self._powers[i] = self._decay * self._powers.get(i, 0.0) + (1 - self._decay) * power

    def register(self, tracks: Iterable[OnlineTrack]) -> None:
        """Register the confirmed tracks after a step: they are reported until they have ended."""
        self._tracks |= {track.id: track for track in tracks}

    def report(
        self,
        until: int,
        time: float,
        now: float,
        front_end: TrackingFrontEnd,
        doubts: tuple[Doubt, ...],
    ) -> LiveReport:
        """Report the tracks of the front end, with their signals up to input sample `until`.

        `time` are the seconds of input, `now` those that are processed, `doubts` concern the input.
        """
        start, signals = self._position, self.take(until)
        tracks = {track.id: track for track in front_end.tracker.tracks}
        ended = {i: track for i, track in self._tracks.items() if i not in tracks}
        pending = {i for _, hop in self._pending for i in hop}
        draining = {i: track for i, track in ended.items() if i in pending}
        n = self._position - start

        def source(track: OnlineTrack) -> LiveSource:
            samples = signals.get(track.id, np.zeros((2, n)))
            return self._source(track, samples, now, front_end)

        report = LiveReport(
            time,
            start,
            tuple(source(track) for _, track in sorted((tracks | draining).items())),
            tuple(source(track) for i, track in ended.items() if i not in draining),
            (*doubts, *front_end.doubts),
            n,
        )
        self._tracks = {i: t for i, t in self._tracks.items() if i in tracks or i in draining}
        self._powers = {i: power for i, power in self._powers.items() if i in self._tracks}
        self._positions = {
            i: position for i, position in self._positions.items() if i in tracks or i in draining
        }
        return report

    def _source(
        self, track: OnlineTrack, samples: Array, now: float, front_end: TrackingFrontEnd
    ) -> LiveSource:
        """Return the report of a track with its samples (2, n)."""
        age = max(now - track.last_hit_at, 0.0)
        doubts = []
        if not track.is_active(now):
            reason = (
                f"no sound from this source for {age:.0f} s. It may have moved; wait until it is "
                "active again."
            )
            doubts.append(Doubt(DoubtKind.SILENT, reason, age))
        power = self._powers.get(track.id, 0.0)
        state = _position_state(track, front_end)
        position = self._positions.get(track.id)
        if position is None or position.state != state:
            position = self._positions[track.id] = _Position.of(track, front_end)
        return LiveSource(
            track.id,
            position.direction,
            position.radius_90,
            track.initiated_at,
            age,
            10 * float(np.log10(power)) if power > 0 else -np.inf,
            track.state is not TrackState.TENTATIVE,
            age <= self._settings.active_seconds,
            track.speed,
            tuple(doubts),
            samples,
            position.alternatives,
            position.lateral_angle,
        )

    def take(self, until: int) -> dict[int, Array]:
        """Return the signals (2, n) of all tracks up to a sample, zero where a track had none."""
        begin, end = self._position, max(until, self._position)
        outputs: dict[int, Array] = {}
        while self._pending and self._pending[0][0] < end:
            start, signals = self._pending[0]
            a, b = max(start, begin), min(start + self._hop, end)
            for i, signal in signals.items():
                output = outputs.setdefault(i, np.zeros((2, end - begin)))
                output[:, a - begin : b - begin] = signal[:, a - start : b - start]
            if b < start + self._hop:
                break
            self._pending.popleft()
        self._position = end
        return outputs


def _lateral_angle(track: OnlineTrack) -> LateralAngle | None:
    """Return the lateral angle of a track, by its posterior; None if it has none."""
    if track.moving or track.posterior is None:
        return None
    found = LateralAngle.of_points(lateral_angles(track.posterior.vectors))
    return replace(found, radius_90=track.radius_with_drift(found.radius_90))


@dataclass(frozen=True, slots=True)
class ResamplerSettings:
    """Windowed sinc of the resampler."""

    zero_crossings: int = 24  # on either side of the sinc; 1.5 ms at 16 kHz
    kaiser_beta: float = 9.0  # Kaiser window with 90 dB stop-band attenuation
    cutoff: float = 0.94  # pass band over half of the lower rate


class Resampler:
    """Converts a stream from one rate to another; the delay is half of the filter length."""

    def __init__(self, rate: int, target_rate: int, settings: ResamplerSettings) -> None:
        common = gcd(rate, target_rate)
        self._up, self._down = target_rate // common, rate // common
        ratio = max(rate / target_rate, 1.0)
        half = int(np.ceil(settings.zero_crossings * ratio))
        self._half = half
        # Phase p: the output sample is p / up after input sample i; tap j is for i + half - j.
        j = np.arange(2 * half + 1) - half
        position = j + np.arange(self._up)[:, None] / self._up
        shape = np.sqrt(np.maximum(1 - (position / (half + 1)) ** 2, 0.0))
        window = np.i0(settings.kaiser_beta * shape) / np.i0(settings.kaiser_beta)
        cutoff = settings.cutoff / ratio
        self._filters = cutoff * np.sinc(cutoff * position) * window  # (up, taps)
        self._filters /= self._filters.sum(axis=1, keepdims=True)
        self._past = np.zeros((2, 2 * half))
        self._n_in = 0  # input samples so far
        self._n_out = 0  # output samples so far

    def push(self, samples: Array) -> Array:
        """Return the output samples (2, m) that input samples (2, n) complete."""
        if self._up == self._down:
            return samples
        x = np.concatenate([self._past, samples], axis=1)
        self._n_in += samples.shape[1]
        last = -(-self._n_in * self._up // self._down)  # first output sample with i >= n_in
        k = np.arange(self._n_out, last)
        self._n_out = last
        i, p = k * self._down // self._up, k * self._down % self._up
        # x begins with input sample n_in - n - 2 half; an output sample needs those up to i.
        end = i - (self._n_in - samples.shape[1]) + 2 * self._half
        taps = np.arange(2 * self._half + 1)
        out: Array = np.einsum("ckj,kj->ck", x[:, end[:, None] - taps], self._filters[p])
        self._past = x[:, x.shape[1] - 2 * self._half :]
        return out
