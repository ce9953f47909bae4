"""Probabilistic piecewise affine mapping (paper, section 5): model, EM, posterior, calibration."""
