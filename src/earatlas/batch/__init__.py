"""Batch processing of many recordings or heads, with resumable results and worker processes."""
