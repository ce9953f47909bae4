"""Source separation: count the sources of a recording, localize each, and extract its signal."""
