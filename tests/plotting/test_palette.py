"""Colours of sources: contrast to light and dark pages."""

import re

import numpy as np
import pytest

from earatlas.plotting.palette import COLOURS, TRUTH_COLOUR, shared_css

pytestmark = pytest.mark.usefixtures("arranged_pictures")


def luminance(colour: str) -> float:
    """Return the relative luminance of #rrggbb (WCAG 2.2)."""
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("colour", COLOURS)
def test_contrast_of_sources(colour: str) -> None:
    """Lines and regions have a contrast of at least 3 to 1 to the cards of both colour schemes."""
    cards = re.findall(r"--card: (#\w{6})", shared_css())
    assert len(cards) == 2
    for card in cards:
        low, high = sorted((luminance(colour), luminance(card)))
        assert (high + 0.05) / (low + 0.05) >= 3.0
    assert colour != TRUTH_COLOUR
