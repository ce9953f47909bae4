"""Manifolds of binaural cues (paper, section 4): embedding, evaluation and unlabelled learning."""
