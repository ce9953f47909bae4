"""A talker walks past: a track of a recording, and the same answers live, block by block."""

import numpy as np

import earatlas as ea

ring = np.column_stack([np.arange(-180.0, 180.0, 5.0), np.zeros(72)])  # one elevation: a circle
head = ea.simulated_head(ring)
atlas = ea.learn(head)
print(atlas)

# From 60 degrees on the left to 60 on the right in 5 s, half a second at each place.
voice, step = ea.synthetic_speech(5.0, seed=3), 8_000
places = np.linspace(60, -60, 10)
pieces = [
    ea.render_scene(head, [voice[i * step : (i + 1) * step]], [[place, 0]]).mixture.samples
    for i, place in enumerate(places)
]
walk = ea.Audio(np.concatenate([piece[:, :step] for piece in pieces], axis=1), 16_000)

track = atlas.localize_frames(walk, window_seconds=0.5, hop_seconds=0.5)
for time, window in zip(track.times, track.windows, strict=True):
    true = places[min(int(time / 0.5), len(places) - 1)]
    heard = f"{window.direction[0]:6.1f}" if window.observed_share > 0 else "silent"
    print(f"{time:4.1f} s: true {true:6.1f}, found {heard} ± {window.radius_90:.0f} degrees")

# Live: push what the microphones give, ask whenever you like; older sound fades.
localizer = atlas.localizer(rate=walk.rate, memory_seconds=0.3)
for start in range(0, walk.samples.shape[1], 1024):
    localizer.push(walk.samples[:, start : start + 1024])
print(f"live, at the end: {localizer.where().direction[0]:.1f} degrees")
