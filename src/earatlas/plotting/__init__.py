"""Figures of heads, cues, posteriors, scenes and manifolds, in one style."""
