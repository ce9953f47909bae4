"""The surface that a head's cues lie on (paper, section 4)."""
