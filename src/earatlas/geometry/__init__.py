"""Where a sound can be: directions, their charts, and beliefs about them."""
