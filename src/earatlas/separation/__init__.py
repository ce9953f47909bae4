"""Several sounds at once: how many, where each is, and each by itself."""
