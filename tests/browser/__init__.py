"""Tests of the studio in a real browser."""
