"""Demixing: from time-frequency masks to the two-channel signal of every source."""
