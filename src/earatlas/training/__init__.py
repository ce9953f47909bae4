"""Learning an atlas from a head: models, calibration, and training on simulated scenes."""
