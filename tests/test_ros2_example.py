"""The ROS 2 example: fields of messages from the socket, and the node with stand-ins for ROS."""

import importlib
import json
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from earatlas.streaming.report import LiveReport, LiveSource
from earatlas.streaming.sockets import LiveServer, odas_tracks

PACKAGE = Path(__file__).parents[1] / "examples" / "ros2" / "earatlas_ros"
HEAD_START_NANOSECONDS = 5_000_000_000_000  # the clock of the stand-in for ROS


@pytest.fixture
def mapping(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module that maps lines to messages."""
    monkeypatch.syspath_prepend(str(PACKAGE))
    for name in ("earatlas_ros", "earatlas_ros.mapping", "earatlas_ros.tracks_node"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("earatlas_ros.mapping")


def report(time: float = 1.5) -> LiveReport:
    """Return a report with a source on the left, one above that is silent, and a tentative one."""
    left = LiveSource(3, np.array([90.0, 0.0]), 4.0, 0.5, 0.1, -20.0, True, True, 0.0)
    above = LiveSource(4, np.array([0.0, 90.0]), 9.0, 0.5, 2.0, -40.0, True, False, 0.0)
    tentative = LiveSource(5, np.array([0.0, 0.0]), 9.0, 0.5, 2.0, -40.0, False, True, 0.0)
    return LiveReport(time, 0, (left, above, tentative))


def test_fields_of_a_report(mapping: Any) -> None:
    """Directions are unit vectors with x to the front, y to the left and z up."""
    line = json.dumps(odas_tracks(report(), 1))
    message = mapping.tracks_message(line)
    assert (message.seconds, message.json) == (1.5, line)
    assert message.sources == (
        mapping.Track(3, 0.0, 1.0, 0.0, 1.0),
        mapping.Track(4, 0.0, 0.0, 1.0, 0.0),
    )


@pytest.mark.parametrize(
    "line",
    ["", "no JSON", "[]", "{}", '{"src": [{"id": 1}], "time": 0}', '{"src": 3, "time": 0}',
     '{"time": 0, "src": [{"id": 1, "x": NaN, "y": 0, "z": 0, "activity": 1}]}'],
)  # fmt: skip
def test_other_lines_are_ignored(mapping: Any, line: str) -> None:
    """A line that is not a report gives no message."""
    assert mapping.tracks_message(line) is None


def test_lines_in_pieces(mapping: Any) -> None:
    """Lines are complete, however the bytes arrive; a line without an end is dropped."""
    lines = mapping.LineBuffer(max_bytes=50)
    found = []
    for byte in '{"a": "ü"}\n\n{"b": 2}\n{"c"'.encode():
        found += lines.add(bytes([byte]))
    assert found == ['{"a": "ü"}', '{"b": 2}']
    assert lines.add(b"x" * 100) == []
    assert lines.add(b'\n{"d": 4}\n') == ['{"d": 4}']


def test_time_stamps(mapping: Any) -> None:
    """Seconds of the stream are added to its beginning, without a loss of nanoseconds."""
    assert mapping.stamp(1.5, 2_600_000_001) == (4, 100_000_001)


class Publisher:
    """Stand-in for a publisher, which keeps the messages."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def publish(self, message: Any) -> None:
        """Keep a message."""
        self.messages.append(message)


class Node:
    """Stand-in for rclpy.node.Node."""

    def __init__(self, name: str) -> None:
        self.parameters: dict[str, Any] = {}
        self.publishers: dict[str, Publisher] = {}

    def declare_parameter(self, name: str, default: Any) -> None:
        """Keep the default of a parameter."""
        self.parameters[name] = default

    def get_parameter(self, name: str) -> Any:
        """Return a parameter."""
        return SimpleNamespace(value=self.parameters[name])

    def create_publisher(self, kind: Any, topic: str, depth: int) -> Publisher:
        """Return a new publisher."""
        return self.publishers.setdefault(topic, Publisher())

    def create_timer(self, seconds: float, callback: Any) -> None:
        """Ignore timers: the test calls their functions."""

    def get_clock(self) -> Any:
        """Return a clock that stands still."""
        return SimpleNamespace(now=lambda: SimpleNamespace(nanoseconds=HEAD_START_NANOSECONDS))

    def get_logger(self) -> Any:
        """Return a logger that writes nothing."""
        return SimpleNamespace(info=lambda *_, **__: None, warning=lambda *_, **__: None)


def fake_modules() -> dict[str, ModuleType]:
    """Return stand-ins for the modules of ROS."""

    def array() -> Any:
        header = SimpleNamespace(stamp=SimpleNamespace(sec=0, nanosec=0), frame_id="")
        return SimpleNamespace(header=header, sources=[])

    contents: dict[str, dict[str, Any]] = {
        "rclpy": {},
        "rclpy.node": {"Node": Node},
        "std_msgs": {},
        "std_msgs.msg": {"String": SimpleNamespace},
        "odas_ros_msgs": {},
        "odas_ros_msgs.msg": {"OdasSst": SimpleNamespace, "OdasSstArrayStamped": array},
    }
    modules = {}
    for name, values in contents.items():
        modules[name] = ModuleType(name)
        vars(modules[name]).update(values)
    return modules


def test_node_publishes_what_the_socket_sends(
    mapping: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node connects, publishes each report on both topics, and survives a lost connection."""
    for name, module in fake_modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    node = importlib.import_module("earatlas_ros.tracks_node").TracksNode()
    server = LiveServer("127.0.0.1", 0, 16_000)
    node.parameters["port"] = server.tracks.port
    node._poll()  # not connected yet
    node._connect()
    published = node.publishers["tracks"].messages
    for step in range(500):
        server.send_tracks(report(1.5 + 0.1 * step))
        node._poll()
        if len(published) >= 2:
            break
        time.sleep(0.01)
    first = published[0]
    assert first.header.frame_id == "head"
    assert (first.header.stamp.sec, first.header.stamp.nanosec) == (5000, 0)
    assert [source.id for source in first.sources] == [3, 4]
    assert (first.sources[0].y, first.sources[0].activity) == (1.0, 1.0)
    assert published[1].header.stamp.nanosec == pytest.approx(1e8, abs=1e6)
    assert json.loads(node.publishers["tracks_json"].messages[0].data)["src"][0]["radius_90"] == 4.0
    server.close()
    for _ in range(500):
        node._poll()
        if node._socket is None:
            break
        time.sleep(0.01)
    node._connect()  # nobody is there: no error
    assert node._socket is None


def test_package_is_consistent() -> None:
    """The files that the set-up names exist, and the node needs what the package declares."""
    declared = {
        element.text for element in ElementTree.parse(PACKAGE / "package.xml").iter("exec_depend")
    }
    assert {"rclpy", "std_msgs", "odas_ros_msgs"} <= declared
    setup = (PACKAGE / "setup.py").read_text()
    for file in ("resource/earatlas_ros", "launch/tracks_launch.py", "package.xml"):
        assert f'"{file}"' in setup
        assert (PACKAGE / file).exists()
    assert (PACKAGE / "earatlas_ros" / "tracks_node.py").exists()
    compile((PACKAGE / "launch" / "tracks_launch.py").read_text(), "launch", "exec")
