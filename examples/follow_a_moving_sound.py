"""Track a moving talker: directions over time of a recording, and the same in a stream."""

import numpy as np

import earatlas as ea

ring = np.column_stack([np.arange(-180.0, 180.0, 5.0), np.zeros(72)])  # one elevation: a circle
head = ea.simulated_head(ring)
atlas = ea.learn(head)
print(atlas)

# The talker moves from 60 degrees left to 60 degrees right in 5 s.
trajectory = ea.Trajectory(seconds=(0, 5), directions=((60, 0), (-60, 0)))
recording = ea.render_scene(head, [ea.synthetic_speech(5.0, seed=3)], [trajectory]).mixture

track = atlas.localize_frames(recording, window_seconds=0.5, hop_seconds=0.5)
for time, window in zip(track.times, track.windows, strict=True):
    true = trajectory.at([time])[0, 0]
    found = f"{window.direction[0]:6.1f}" if window.observed_share > 0 else "silent"
    print(f"{time:4.1f} s: true {true:6.1f}, estimated {found} ± {window.radius_90:.0f} degrees")

# Streaming: push blocks of samples and ask at any time; older samples are forgotten gradually.
localizer = atlas.localizer(rate=recording.rate, memory_seconds=0.3)
for start in range(0, recording.samples.shape[1], 1024):
    localizer.push(recording.samples[:, start : start + 1024])
print(f"stream, at the end: {localizer.where().direction[0]:.1f} degrees")
