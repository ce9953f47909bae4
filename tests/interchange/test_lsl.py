"""Lab Streaming Layer: places of sources, time stamps, and an inlet that reads both streams."""

import sys

import numpy as np
import pytest
from live_reports import live_source

from earatlas.errors import InputError, MissingExtraError
from earatlas.interchange.lsl import CHANNELS, LslSettings, LslSink, StreamTimestamps, TrackSlots
from earatlas.streaming.report import LiveReport


def test_sources_keep_their_places() -> None:
    """A source keeps its place until it ends; further sources wait for a free one."""
    slots = TrackSlots(2)

    def update(*ids: int) -> tuple[list[int | None], list[int], list[int]]:
        sources = tuple(live_source(i) for i in ids)
        places, began, ended = slots.update(LiveReport(0.0, 0, sources))
        return [None if source is None else source.id for source in places], began, ended

    assert update(1, 2, 3) == ([1, 2], [1, 2], [])
    assert update(2, 3) == ([3, 2], [3], [1])
    assert update(3) == ([3, None], [], [2])
    tentative = LiveReport(0.0, 0, (live_source(3), live_source(9, confirmed=False)))
    assert slots.update(tentative)[1:] == ([], [])


def test_time_stamps_follow_the_least_delay() -> None:
    """Jitter of the processing does not shift stamps, and a drift of the clocks is followed."""
    stamps = StreamTimestamps(30.0)
    rng = np.random.default_rng(0)
    drift, found = 1 + 1e-4, []
    for step in range(4000):
        seconds = 0.05 * step
        arrival = 1000.0 + drift * seconds
        found.append(stamps.at(seconds, arrival + rng.exponential(0.02)) - arrival)
    assert np.abs(found[500:]).max() < 0.005
    assert found[0] > 0


def test_inlet_reads_tracks_and_markers() -> None:
    """An LSL inlet finds both streams, with names, units and time stamps."""
    pylsl = pytest.importorskip("pylsl", reason="pylsl is an extra")
    name = "earatlas-test"
    sink = LslSink(name, LslSettings(slots=2))
    found = {
        info.name(): info
        for one in (name, f"{name}-markers")
        for info in pylsl.resolve_byprop("name", one, timeout=5.0)
    }
    if len(found) < 2:
        sink.close()
        pytest.skip("this machine does not pass on the multicast messages of LSL")
    tracks, markers = (pylsl.StreamInlet(found[one]) for one in (name, f"{name}-markers"))
    for inlet in (tracks, markers):
        inlet.open_stream(timeout=60.0)
    before = pylsl.local_clock()
    sink.send(LiveReport(1.0, 0, (live_source(5, (30.0, -5.0)),)))
    sink.send(LiveReport(1.5, 0, ()))
    samples = [tracks.pull_sample(timeout=60.0) for _ in range(2)]
    words = [markers.pull_sample(timeout=60.0) for _ in range(2)]
    np.testing.assert_allclose(samples[0][0][:6], [5, 30, -5, 4, -20, 1])
    assert np.isnan(samples[0][0][6:]).all()
    assert np.isnan(samples[1][0]).all()
    assert [word[0] for word in words] == [["track 5 began"], ["track 5 ended"]]
    assert samples[0][1] == words[0][1]
    assert samples[0][1] == pytest.approx(before, abs=1.0)
    channel = tracks.info().desc().child("channels").child("channel")
    labels = []
    while not channel.empty():
        labels.append(channel.child_value("label"))
        channel = channel.next_sibling()
    assert labels == [f"{label}_{slot}" for slot in (1, 2) for label in CHANNELS]
    sink.close()


def test_needs_pylsl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pylsl the error names the extra."""
    monkeypatch.setitem(sys.modules, "pylsl", None)
    with pytest.raises(MissingExtraError, match=r"earatlas\[lsl\]"):
        LslSink()


def test_needs_a_name() -> None:
    """Streams without a name, which LSL cannot describe, are refused."""
    with pytest.raises(InputError, match="lsl must be the name of the streams, got ' '"):
        LslSink(" ")
