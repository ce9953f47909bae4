"""The paper's tables and figures, and rooms, each a module: rows, shown as table or picture.

`earatlas reproduce` is their command line. In Python:

    from earatlas.experiments import EXPERIMENTS, Bench, run
    rows, _ = run(EXPERIMENTS["table1"], Bench(quick=True), Path("table1.jsonl"))
    print(EXPERIMENTS["table1"].section(rows, folder))

`rows` keeps what was measured, `data` says what it is measured on, `page` puts all together.
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
from earatlas.experiments.rows import Experiment, Row, current, read_rows, run

__all__ = ["EXPERIMENTS", "Bench", "Experiment", "Row", "current", "read_rows", "run"]

EXPERIMENTS = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        table1, table2, table3, figure2, figure3, figure4, figure5, figure7, figure8, figure9,
        rooms,
    )
}  # fmt: skip
