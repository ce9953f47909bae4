"""How good an answer is, where the truth is known."""
