"""Pictures of heads, cues, beliefs, scenes and manifolds, in one style."""
