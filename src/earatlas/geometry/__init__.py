"""Where a sound can be: directions, their charts, and posteriors about them."""
