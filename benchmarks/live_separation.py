"""Separation by a stream in comparison with `separate`, on the same seconds.

    python benchmarks/live_separation.py [development] [judgement] [--count 10] [--seed 41]
                                         [--delays 0.112 1] [--atlases FOLDER] [--scenes]

Two talkers of 9 s in measured rooms, and in simulated rooms with another head than the learned one;
three talkers in anechoic conditions. The number of sources is given neither to the stream nor to
`separate`. SDR after the first 3 s; each talker is compared with the output that is closest to it.
Printed: medians of both, and the difference, stream minus `separate` (mean over the talkers of a
scene): median and worst tenth; CPU seconds per second of the stream, and the longest block of 50 ms
in CPU milliseconds (median over the scenes), for each of the `--delays`. `--scenes` prints each
scene, to see the reason of a loss: SDR of the stream by second, and for each talker the error of
the nearest confirmed track at the end and the time of the first report with a track within 20
degrees.

Settings are chosen on the rows of `DEVELOPMENT` and judged on those of `JUDGEMENT`.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from protocol import load_head
from room_mixtures import perturbed_head
from streaming import NEAR, RATE, SECONDS, best_sdr, run_stream, sdr_by_second
from streaming_parts.other_heads import ROOMS, Row, load_atlas, measured_room, scenes

import earatlas as ea
from earatlas.geometry.angles import great_circle_error


def _simulated(title: str, atlas: str, heads: Callable[[], Sequence[ea.Head]]) -> list[Row]:
    """Return the rows of simulated rooms."""
    return [
        Row(f"{title}, {place}", atlas, heads, room) for place, room in ROOMS if room is not None
    ]


def _perturbed() -> list[ea.Head]:
    return [perturbed_head(load_head("cipic_021"), seed) for seed in (101, 102)]


# Rows with their number of talkers
DEVELOPMENT = (
    (Row("room A", "hats", lambda: measured_room("room_a")), 2),
    *((row, 2) for row in _simulated("perturbed cipic_021", "cipic_021", _perturbed)),
    (Row("cipic_021, anechoic", "cipic_021", lambda: [load_head("cipic_021")]), 3),
)
JUDGEMENT = (
    (Row("room D", "hats", lambda: measured_room("room_d")), 2),
    *(
        (row, 2)
        for row in _simulated(
            "KEMAR set up again", "leipzig_kemar", lambda: [load_head("leipzig_kemar_reseated")]
        )
    ),
    (Row("ku100, anechoic", "ku100", lambda: [load_head("ku100")]), 3),
)
PARTS = {"development": DEVELOPMENT, "judgement": JUDGEMENT}


def describe(reports: list[ea.LiveReport], scene: ea.SimulatedScene) -> str:
    """Return the error of each talker's nearest track at the end, and when it was first near."""
    cells = []
    for direction in scene.directions:
        first, error = np.nan, np.nan
        for report in reports:
            tracks = [one.direction for one in report.sources if one.confirmed]
            error = min((float(great_circle_error(direction, x)) for x in tracks), default=np.nan)
            if np.isnan(first) and error < NEAR:
                first = report.time
        cells.append(f"{error:.0f}° ({first:.1f} s)")
    counts = [sum(one.confirmed for one in report.sources) for report in reports]
    return f"{', '.join(cells)}; {np.mean(counts[len(counts) // 3 :]):.1f} tracks"


def compare(row: Row, n_sources: int, options: argparse.Namespace) -> list[str]:
    """Return the cells of one row, for each delay."""
    atlas = load_atlas(row.atlas, options.atlases)
    figures: dict[float, list[list[float]]] = {delay: [] for delay in options.delays}
    for scene in scenes(row, options.count, n_sources, options.seed, SECONDS):
        offline = [one.audio.samples for one in atlas.separate(scene.mixture).sources]
        separated = best_sdr(scene.images, offline)
        for delay in options.delays:
            live = TimedStream(atlas.separator, rate=RATE, delay_seconds=delay)
            reports, sounds, cost = run_stream(live, scene.mixture.samples)
            outputs = list(sounds.values())
            streamed = best_sdr(scene.images, outputs)
            figures[delay].append([streamed, separated, cost, live.longest_ms])
            if options.scenes:
                seconds = " ".join(f"{db:.0f}" for db in sdr_by_second(scene.images, outputs))
                print(
                    f"  {delay:g} s: {streamed:.1f}, `separate` {separated:.1f} dB "
                    f"({len(offline)} sources); by second {seconds}; {describe(reports, scene)}",
                    flush=True,
                )
    rows = []
    for delay, of_delay in figures.items():
        stream, separated, cost, longest = np.median(of_delay, axis=0)
        loss = np.array([figure[0] - figure[1] for figure in of_delay])
        rows.append(
            f"{n_sources}: {row.title} | {delay:g} | {len(loss)} | {stream:.1f} | {separated:.1f} "
            f"| {np.median(loss):+.1f} | {np.quantile(loss, 0.1):+.1f} | {cost:.2f} | {longest:.0f}"
        )
    return rows


class TimedStream(ea.Live):
    """A stream that measures its longest block, in CPU time."""

    longest_ms = 0.0

    def push(self, samples: ArrayLike, *, yaw: float | None = None) -> ea.LiveReport:
        """Process a block."""
        start = time.process_time()
        report = super().push(samples, yaw=yaw)
        self.longest_ms = max(self.longest_ms, 1000 * (time.process_time() - start))
        return report


def main() -> None:
    """Print one row per condition."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS), default=["judgement"])
    parser.add_argument("--count", type=int, default=10, help="scenes per row")
    parser.add_argument("--seed", type=int, default=41, help="seed of the scenes")
    parser.add_argument(
        "--delays", type=float, nargs="+", default=[0.112], help="delays of the stream, seconds"
    )
    parser.add_argument("--atlases", type=Path, help="folder in which learned atlases are kept")
    parser.add_argument("--only", default="", help="only rows whose title contains this text")
    parser.add_argument("--scenes", action="store_true", help="print each scene")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ea.EaratlasWarning)
    for part in options.parts:
        print(
            f"\n| {part} | delay s | scenes | stream dB | `separate` dB | difference dB | "
            "worst tenth dB | CPU s per s | longest block, CPU ms |\n|" + "---|" * 9
        )
        for row, n_sources in PARTS[part]:
            if options.only in row.title:
                for cells in compare(row, n_sources, options):
                    print(f"| {cells} |", flush=True)


if __name__ == "__main__":
    main()
