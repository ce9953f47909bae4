"""Probabilistic piecewise affine mapping (paper, section 5): the model, EM, its posterior and calibration."""
