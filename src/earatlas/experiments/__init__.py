"""Experiments: the tables and figures of the paper, and reverberant rooms, one module each.

`earatlas reproduce` is the command-line interface. In Python:

    from earatlas.experiments import EXPERIMENTS, Bench, run_experiment
    rows, _ = run_experiment(EXPERIMENTS["table1"], Bench(quick=True), Path("table1.jsonl"))
    print(EXPERIMENTS["table1"].section(rows, folder))

`rows` stores the measurements, `bench` provides heads and training sets, `page` writes the page.
"""

from earatlas.experiments import (
    figure2,
    figure3,
    figure4,
    figure5,
    figure7,
    figure8,
    figure9,
    rooms,
    table1,
    table2,
    table3,
)
from earatlas.experiments.bench import Bench
from earatlas.experiments.rows import Experiment, Row, current_rows, read_rows, run_experiment

__all__ = [
    "EXPERIMENTS",
    "Bench",
    "Experiment",
    "Row",
    "current_rows",
    "read_rows",
    "run_experiment",
]

EXPERIMENTS = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        table1, table2, table3, figure2, figure3, figure4, figure5, figure7, figure8, figure9,
        rooms,
    )
}  # fmt: skip
