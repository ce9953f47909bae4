"""Heads: what reaches two ears from many directions, measured or simulated."""
