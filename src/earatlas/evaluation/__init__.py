"""Evaluation of localization and separation against ground truth."""
