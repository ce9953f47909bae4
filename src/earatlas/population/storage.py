"""The contents of the file of a population: conversion to and from JSON values and arrays.

The arrays of a population are float16 (`Population.rounded`), so that an atlas of thirty people has
less than 8 MB. The model of the listener is not stored: it follows from the population.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.geometry.spaces import Sphere
from earatlas.localization.learned_head import Accuracy
from earatlas.localization.reverberant_localizer import ReverberantLocalizer
from earatlas.population.chart_regression import SharedCharts
from earatlas.population.learned_population import LearnedPopulation
from earatlas.population.listener_templates import expected_localizer, listener_localizer
from earatlas.population.membership import HeadProblem, Membership
from earatlas.population.population import Listener, Population
from earatlas.ppam.calibration import Calibration
from earatlas.ppam.cue_bands import CueBands
from earatlas.types import Array

__all__ = ["from_population_contents", "to_population_contents"]

_ARRAYS = ("mean", "loadings", "residual", "equalization")


def to_population_contents(
    learned: LearnedPopulation, listener: Listener | None
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the JSON values and the arrays of a file."""
    population, calibration = learned.population, learned.calibration
    arrays = {f"population.{name}": getattr(population, name) for name in _ARRAYS}
    arrays["population.centres"] = population.charts.centres
    if calibration.frame_noise is not None:
        arrays["frame_noise"] = calibration.frame_noise
    if listener is not None:
        arrays["listener.mean"], arrays["listener.covariance"] = listener.mean, listener.covariance
    localizer = learned.reverberant_localizer
    if localizer is not None:
        localizer = expected_localizer(localizer)
        arrays |= localizer.to_arrays()
    own = asdict(calibration)
    del own["frame_noise"]
    about = {
        "layout": learned.layout.to_dict(),
        "accuracy": None if learned.accuracy is None else asdict(learned.accuracy),
        "calibration": own,
        "about": learned.about,
        "rooms": None if localizer is None else localizer.to_dict(),
        "population": {
            "shared": population.shared,
            "width_degrees": population.charts.width_degrees,
            "members": [asdict(member) for member in learned.members],
        },
    }
    return about, arrays


def from_population_contents(
    about: dict[str, Any], arrays: dict[str, Array]
) -> tuple[LearnedPopulation, Listener | None]:
    """Invert `to_population_contents`; raise a LookupError or ValueError for other contents."""
    layout, own = CueLayout.from_dict(about["layout"]), about["population"]
    charts = SharedCharts(arrays["population.centres"], float(own["width_degrees"]))
    parts = {name: arrays[f"population.{name}"] for name in _ARRAYS}
    bands = CueBands.of(layout)
    K, H, _ = parts["loadings"].shape
    if (
        len(charts) != K
        or len(bands) != H
        or parts["mean"].shape != (K, 3, layout.n_cues)
        or parts["residual"].shape != (K, layout.n_cues)
        or parts["equalization"].shape != (H, parts["equalization"].shape[-1])
        or not 0 < float(own["shared"]) < 1
        or not all(np.isfinite(array).all() for array in arrays.values())
        or parts["residual"].min() <= 0
    ):
        raise ValueError("its arrays of the population do not fit each other")
    population = Population(charts, bands, shared=float(own["shared"]), **parts)
    listener = None
    if "listener.mean" in arrays:
        listener = Listener(arrays["listener.mean"], arrays["listener.covariance"])
        J = population.n_coordinates
        if listener.mean.shape != (J,) or listener.covariance.shape != (J, J):
            raise ValueError("its listener does not fit its population")
    fields = {**about["calibration"], "frame_noise": arrays.get("frame_noise")}
    for name in ("kernel_widths", "kernel_weights"):
        fields[name] = tuple(map(float, fields[name]))
    members = tuple(
        Membership(m["name"], m["distance"], m["problem"] and HeadProblem(m["problem"]))
        for m in own["members"]
    )
    localizer = None
    if about["rooms"] is not None:
        localizer = listener_localizer(
            ReverberantLocalizer.from_arrays(Sphere(), arrays, about["rooms"]),
            population, layout, listener,
        )  # fmt: skip
    accuracy = None if about["accuracy"] is None else Accuracy(**about["accuracy"])
    learned = LearnedPopulation(
        model=population.model(listener), layout=layout, calibration=Calibration(**fields),
        accuracy=accuracy, about=about["about"], reverberant_localizer=localizer,
        population=population, members=members,
    )  # fmt: skip
    return learned, listener
