"""Many heads in one model: populations, adaptation to a listener, and comparison of heads."""
