"""From sound to interaural cues: files, spectra, cues, and what of them was heard."""
