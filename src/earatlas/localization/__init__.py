"""Direction-of-arrival (DOA) estimation: one source over time, and detection of several."""
