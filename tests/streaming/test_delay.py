"""The delay of a stream: its range and default, and the hops of a delay at any rate."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import earatlas as ea
from earatlas.streaming.delay import (
    DEFAULT_DELAY_SECONDS,
    MAX_DELAY_SECONDS,
    MIN_DELAY_SECONDS,
    check_delay,
)
from earatlas.streaming.renderer import DEFAULT_LATENCY, latency_profile
from earatlas.tracking.settings import TrackSettings

RATES = [8000, 11_025, 16_000, 22_050, 44_100, 48_000, 192_000]


def test_range_is_that_of_the_profiles() -> None:
    """The default is that of a filterbank; a delay ends before a silent track is replaced."""
    assert DEFAULT_LATENCY.latency_seconds == DEFAULT_DELAY_SECONDS
    shortest = latency_profile(MIN_DELAY_SECONDS, 16_000)
    assert (shortest.latency_seconds, shortest.delay_hops) == (MIN_DELAY_SECONDS, 0)
    assert TrackSettings().active_seconds >= MAX_DELAY_SECONDS


def test_range_needs_no_numpy() -> None:
    """The command line has the default without loading NumPy."""
    code = "import sys, earatlas.streaming.delay; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("rate", RATES)
def test_latency_is_the_longest_within_the_delay(rate: int) -> None:
    """Hops are those of the rate; equal latencies have equal profiles."""
    profiles: dict[int, object] = {}
    for delay in [0.024, 0.05, 0.111, 0.112, 0.3, 0.499, 0.5, 0.75, 1.0]:
        profile = latency_profile(delay, rate)
        filterbank = profile.filterbank(rate)
        latency = filterbank.latency_samples / rate
        assert latency <= delay + 1e-9 < latency + filterbank.hop_seconds + 1e-8
        assert profiles.setdefault(filterbank.latency_samples, profile) == profile
        assert (profile.refined_fir_hops > 0) == (latency > 0.484)
    assert latency_profile(DEFAULT_DELAY_SECONDS, rate) == DEFAULT_LATENCY
    assert latency_profile(0.5, rate).refined_fir_hops > 0


@pytest.mark.parametrize("delay", [0.024, 1, np.float32(0.5), np.int64(1)])
def test_numbers_in_the_range_are_delays(delay: Any) -> None:
    """Also those of NumPy."""
    assert check_delay(delay) == delay


@pytest.mark.parametrize("delay", ["x", "0.5", None, True, [0.5], 0.0239, 1.01, 500, -1, np.nan])
def test_other_delays_are_refused(delay: Any) -> None:
    """One sentence says the range and the unit; a Boolean is no number."""
    live = ea.example_atlas().live
    with pytest.raises(ea.InputError, match=r"delay_seconds must be from 0\.024 to 1 s, got"):
        live(delay_seconds=delay)
