"""Heads: measured or simulated head-related impulse responses of both ears."""
