"""Localization of one source in recordings, windows and streams; detection of several sources."""
