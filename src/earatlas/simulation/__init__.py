"""Simulated binaural scenes with known ground truth: speech, rooms and moving sources."""
