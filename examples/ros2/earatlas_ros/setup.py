"""Installation of the ROS 2 package, which `colcon build` calls."""

from setuptools import setup

setup(
    name="earatlas_ros",
    version="0.1.0",
    packages=["earatlas_ros"],
    data_files=[
        ("share/ament_index/resource_index/packages", ["resource/earatlas_ros"]),
        ("share/earatlas_ros", ["package.xml"]),
        ("share/earatlas_ros/launch", ["launch/tracks_launch.py"]),
    ],
    install_requires=["setuptools"],
    license="MIT",
    entry_points={"console_scripts": ["tracks_node = earatlas_ros.tracks_node:main"]},
)
