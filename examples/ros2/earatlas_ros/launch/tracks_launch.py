"""Start earatlas on a microphone pair, and the node that publishes its tracks.

ros2 launch earatlas_ros tracks_launch.py atlas:=ku100.atlas device:=hw:1
"""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, ExecuteProcess
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue


def generate_launch_description() -> LaunchDescription:
    """Return both processes; the atlas of people is the default."""
    atlas, device, port = (LaunchConfiguration(name) for name in ("atlas", "device", "port"))
    listen = ["earatlas", "listen", atlas, "--separate", "--json", "--every", "0.1"]
    return LaunchDescription(
        [
            DeclareLaunchArgument("atlas", default_value="people"),
            DeclareLaunchArgument("device", default_value="default"),
            DeclareLaunchArgument("port", default_value="9000"),
            ExecuteProcess(cmd=[*listen, "--device", device, "--socket", port]),
            Node(
                package="earatlas_ros",
                executable="tracks_node",
                parameters=[{"port": ParameterValue(port, value_type=int)}],
                output="screen",
            ),
        ]
    )
