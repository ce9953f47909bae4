"""Many recordings or heads: what is done is kept, what is left can be gone on with."""
