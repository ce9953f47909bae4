"""Scenes with known truth: sounds, rooms, and what a head's ears get of them."""
