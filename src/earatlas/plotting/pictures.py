"""Posteriors of positions in an image, drawn over a picture of the camera.

The inputs are posteriors on a plane in pixels and the file of a picture of the same size. The
output is a figure.

    H, W   height and width of the picture in pixels
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.image import imread
from numpy.typing import ArrayLike

from earatlas.errors import InputError, existing_file
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Plane, Space
from earatlas.plotting.posterior_panels import draw_posteriors, label_axes
from earatlas.plotting.style import add_title, new_figure
from earatlas.types import Array

__all__ = ["plot_on_picture", "read_picture"]


def read_picture(path: str | Path, space: Space) -> Array:
    """Read a picture of the camera with which an atlas was labelled.

    Parameters
    ----------
    path : str or Path
        A .png or .jpg file.
    space : Space
        Space of the atlas: an image in pixels.

    Returns
    -------
    ndarray of shape (H, W) or (H, W, channels)
        The picture.

    Raises
    ------
    InputError
        If the space is not an image, or the picture cannot be read or has another size.
    """
    if not (isinstance(space, Plane) and space.unit == "pixels"):
        raise InputError(
            "picture must be used with an atlas of positions in pixels, got one of directions. "
            "Learn a table with the columns x and y."
        )
    try:
        picture: Array = imread(existing_file(path, "picture"))
    except (OSError, ValueError, SyntaxError) as error:  # as raised by Pillow
        raise InputError(
            f"picture must be a readable .png or .jpg file, got '{path}' ({error}). Convert it."
        ) from error
    (left, right), (top, bottom) = space.bounds
    height, width = picture.shape[:2]
    if (width, height) != (round(right - left), round(bottom - top)):
        raise InputError(
            f"picture must have the {right - left:g} x {bottom - top:g} pixels of the atlas, got "
            f"{width} x {height} in '{path}'. Use a picture of the same camera, or learn the atlas "
            "with the size of its image."
        )
    return picture


def plot_on_picture(
    posteriors: Sequence[DirectionPosterior],
    picture: str | Path,
    *,
    title: str = "",
    truth: ArrayLike | None = None,
) -> Figure:
    """Plot the credible regions of sources over a picture of the camera.

    Parameters
    ----------
    posteriors : sequence of DirectionPosterior
        Posteriors of positions in pixels, one per source.
    picture : str or Path
        A .png or .jpg file of the size of the image.
    title : str, default: ""
        Title of the figure.
    truth : array-like of shape (M, 2), optional
        True positions in pixels.

    Returns
    -------
    matplotlib.figure.Figure
        The figure; `earatlas.plotting.style.save` writes it.

    Raises
    ------
    InputError
        If there is no posterior, or the picture does not fit the posteriors.
    """
    if not len(posteriors):
        raise InputError("posteriors must contain at least one, got none. Pass those of a result.")
    space = posteriors[0].space
    image = read_picture(picture, space)
    height, width = image.shape[:2]
    figure = new_figure(7.5, 7.5 * height / width + 0.8)
    axes = figure.add_subplot()
    draw_posteriors(axes, posteriors, directions=None if truth is None else np.asarray(truth))
    axes.imshow(image, extent=(0, width, height, 0), zorder=0, cmap="gray")
    axes.grid(visible=False)
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.set_aspect("equal")
    label_axes(axes, space, "Positions")
    return add_title(figure, title)
