"""OSC: tracks are sent to a port, and the yaw of a head tracker is received."""

import socket
import sys
import time

import numpy as np
import pytest
from live_reports import live_source

pytest.importorskip("pythonosc", reason="python-osc is an extra")

from pythonosc.osc_bundle_builder import IMMEDIATELY, OscBundleBuilder
from pythonosc.osc_message import OscMessage
from pythonosc.osc_message_builder import OscMessageBuilder
from pythonosc.osc_packet import OscPacket

from earatlas.cli.yaw_feed import OscYawFeed, YawFeed, open_yaw_feed
from earatlas.errors import InputError, MissingExtraError
from earatlas.interchange.osc import OscSink, OscYawReceiver, yaw_of_message
from earatlas.streaming.report import LiveReport


def test_tracks_are_sent() -> None:
    """A receiver gets the count, one message per confirmed source, and the end of a source."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(5.0)
        sink = OscSink("127.0.0.1", receiver.getsockname()[1])
        sources = live_source(3, (30.5,)), live_source(8, confirmed=False)
        sink.send(LiveReport(1.5, 0, sources, (live_source(2),)))
        sink.close()
        found = []
        for _ in range(3):
            (timed,) = OscPacket(receiver.recv(1000)).messages
            found.append((timed.message.address, list(timed.message.params)))
    assert found == [
        ("/earatlas/sources", [1, 1.5]),
        ("/earatlas/source", [3, 30.5, 0.0, 4.0, -20.0, 1]),
        ("/earatlas/ended", [2]),
    ]


def test_nobody_listens() -> None:
    """A port at which no program listens is no error."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    sink = OscSink("127.0.0.1", port)
    for _ in range(3):
        sink.send(LiveReport(0.5, 0, (live_source(1),)))
    sink.close()


@pytest.mark.parametrize("degrees", [-170.0, -30.0, 0.0, 75.0])
def test_quaternions_are_yaws(degrees: float) -> None:
    """A rotation about the vertical axis has its angle as yaw, also if the head is pitched."""
    half, pitch = np.radians(degrees) / 2, np.radians(20.0) / 2
    flat = [np.cos(half), 0.0, 0.0, np.sin(half)]
    tilted = [np.cos(half) * np.cos(pitch), -np.sin(half) * np.sin(pitch),
              np.cos(half) * np.sin(pitch), np.sin(half) * np.cos(pitch)]  # fmt: skip
    for quaternion in (flat, tilted):
        arguments = [float(v) for v in quaternion]
        assert yaw_of_message("/SceneRotator/quaternions", arguments) == pytest.approx(degrees)


@pytest.mark.parametrize(
    ("address", "arguments"),
    [
        ("/yaw", []),
        ("/yaw", ["left"]),
        ("/ypr", [1.0]),
        ("/yaw", [float("nan")]),
        ("/x", [1.0]),
        ("/quaternion", [0.0, 0.0, 0.0, 1.0]),
    ],
)
def test_other_messages_have_no_yaw(address: str, arguments: list[object]) -> None:
    """Other addresses, and arguments that are no angles, are ignored."""
    assert yaw_of_message(address, arguments) is None


def send(port: int, *packets: bytes) -> None:
    """Send packets to a port of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        for packet in packets:
            client.sendto(packet, ("127.0.0.1", port))


def message(address: str, *arguments: float) -> OscMessage:
    """Return an OSC message."""
    builder = OscMessageBuilder(address)
    for argument in arguments:
        builder.add_arg(argument)
    return builder.build()


def wait_for(receiver: OscYawReceiver, count: int) -> list[float | None]:
    """Return at least `count` yaws, as they arrive."""
    found: list[float | None] = []
    for _ in range(6000):
        found += receiver.receive()
        if len(found) >= count:
            break
        time.sleep(0.01)
    return found


def test_yaw_is_received() -> None:
    """Messages, bundles and damaged packets are received in order, without blocking."""
    receiver = OscYawReceiver("127.0.0.1", 0, clockwise=True)
    assert receiver.receive() == []
    bundle = OscBundleBuilder(IMMEDIATELY)
    bundle.add_content(message("/head/yaw", -20.0))
    rotation = message("/SceneRotator/ypr", 10.0, 1.0, 2.0)
    packets = rotation.dgram, message("/volume", 1.0).dgram, bundle.build().dgram, b"no OSC"
    send(receiver.port, *packets)
    assert wait_for(receiver, 3) == [-10.0, 20.0, None]
    receiver.close()


def test_yaw_feed_of_a_head_tracker() -> None:
    """`--yaw-stream osc:PORT` follows the tracker and counts what is not OSC."""
    feed = open_yaw_feed("osc:127.0.0.1:0,clockwise")
    assert isinstance(feed, OscYawFeed)
    assert feed.at(0.0) == 0.0
    send(feed.port, message("/yaw", -4.0).dgram, b"no OSC")
    for step in range(1, 500):
        yaw = feed.at(0.05 * step)
        if feed.skipped:
            break
        time.sleep(0.01)
    assert (yaw, feed.skipped) == (4.0, 1)
    feed.close()


def test_invalid_addresses() -> None:
    """Ports that do not exist or are taken are refused; JSON streams are opened as before."""
    for address in ("osc:x", "osc:70000", "osc:9000,left"):
        with pytest.raises(InputError, match="osc"):
            open_yaw_feed(address)
    taken = OscYawReceiver("127.0.0.1", 0)
    with pytest.raises(InputError, match="free UDP port"):
        OscYawReceiver("127.0.0.1", taken.port)
    taken.close()
    with pytest.raises(InputError, match="osc must be HOST:PORT"):
        OscSink("no.such.host.invalid", 9000)
    for name in ("a..b", 64 * "a" + ".org"):
        with pytest.raises(InputError, match="osc must be HOST:PORT of a machine that exists"):
            OscSink(name, 9000)
    with pytest.raises(InputError, match="fd:NUMBER"):
        YawFeed("no such file")


def test_needs_python_osc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without python-osc the error names the extra."""
    monkeypatch.setitem(sys.modules, "pythonosc.osc_message_builder", None)
    with pytest.raises(MissingExtraError, match=r"earatlas\[osc\]"):
        OscSink("127.0.0.1", 9000)
