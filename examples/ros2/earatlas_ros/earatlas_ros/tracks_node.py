"""ROS 2 node: publishes the tracks of `earatlas listen --separate --socket HOST:PORT`.

Topics:
    tracks        odas_ros_msgs/OdasSstArrayStamped, the type of the tracks of odas_ros
    tracks_json   std_msgs/String, the whole report with 90 % radii, levels and doubts

Parameters of the node:
    host, port    of the socket; 127.0.0.1 and 9000
    frame_id      frame of the directions, with x to the front of the head; "head"
"""

from __future__ import annotations

import socket

import rclpy
from odas_ros_msgs.msg import OdasSst, OdasSstArrayStamped
from rclpy.node import Node
from std_msgs.msg import String

from earatlas_ros.mapping import LineBuffer, TracksMessage, stamp, tracks_message

_POLL_SECONDS = 0.01  # the socket is read without blocking
_RETRY_SECONDS = 1.0  # pause before a lost connection is opened again


class TracksNode(Node):  # type: ignore[misc]
    """Reads the socket and publishes what it says."""

    def __init__(self) -> None:
        super().__init__("earatlas_tracks")
        self.declare_parameter("host", "127.0.0.1")
        self.declare_parameter("port", 9000)
        self.declare_parameter("frame_id", "head")
        self._tracks = self.create_publisher(OdasSstArrayStamped, "tracks", 10)
        self._json = self.create_publisher(String, "tracks_json", 10)
        self._socket: socket.socket | None = None
        self._lines = LineBuffer()
        self._start_nanoseconds: int | None = None
        self.create_timer(_POLL_SECONDS, self._poll)
        self.create_timer(_RETRY_SECONDS, self._connect)

    def _connect(self) -> None:
        """Open the connection, unless it is open."""
        if self._socket is not None:
            return
        address = self.get_parameter("host").value, self.get_parameter("port").value
        try:
            self._socket = socket.create_connection(address, timeout=0.5)
        except OSError as error:
            self.get_logger().warning(f"no earatlas at {address}: {error}", once=True)
            return
        self._socket.setblocking(False)
        self._lines, self._start_nanoseconds = LineBuffer(), None
        self.get_logger().info(f"connected to {address}")

    def _poll(self) -> None:
        """Publish what has arrived."""
        if self._socket is None:
            return
        try:
            data = self._socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._socket.close()
            self._socket = None
            return
        for line in self._lines.add(data):
            message = tracks_message(line)
            if message is not None:
                self._publish(message)

    def _publish(self, found: TracksMessage) -> None:
        """Publish one report on both topics."""
        now = self.get_clock().now().nanoseconds
        if self._start_nanoseconds is None:
            self._start_nanoseconds = now - round(found.seconds * 1e9)
        message = OdasSstArrayStamped()
        seconds, nanoseconds = stamp(found.seconds, self._start_nanoseconds)
        message.header.stamp.sec, message.header.stamp.nanosec = seconds, nanoseconds
        message.header.frame_id = self.get_parameter("frame_id").value
        for track in found.sources:
            source = OdasSst()
            source.id, source.activity = track.id, track.activity
            source.x, source.y, source.z = track.x, track.y, track.z
            message.sources.append(source)
        self._tracks.publish(message)
        text = String()
        text.data = found.json
        self._json.publish(text)


def main() -> None:
    """Run the node until it is interrupted."""
    rclpy.init()
    node = TracksNode()
    try:
        rclpy.spin(node)
    except KeyboardInterrupt:
        pass
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
