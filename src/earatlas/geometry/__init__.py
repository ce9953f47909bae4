"""Geometry of directions: spaces, charts, posterior densities and credible regions."""
