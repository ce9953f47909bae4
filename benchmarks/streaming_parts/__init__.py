"""Parts of `streaming.py`."""
