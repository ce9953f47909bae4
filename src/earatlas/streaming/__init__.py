"""Sound as it comes: who is where now, and each by itself, with a known delay."""
