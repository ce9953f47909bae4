"""Audio input and output, spectra, interaural cues, cue statistics and onset detection."""
