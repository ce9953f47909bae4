"""ROS 2 node for the tracks of earatlas."""
