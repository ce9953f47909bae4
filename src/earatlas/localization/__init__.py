"""Where the one sound of a recording, a track or a stream comes from."""
