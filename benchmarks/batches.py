"""Batches: recordings a minute with one process, with two, and on a Dask cluster of two; resuming.

Recordings of a second with two murmurs, the simulated head on a ring. Ratios are of this run, and
of CPU seconds too: on a machine that has other things to do, two processes have no two cores. The
cluster is measured where dask.distributed is installed.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import earatlas as ea


def recordings(folder: Path, head: ea.Head, count: int) -> Path:
    """A folder of so many."""
    folder.mkdir()
    for n in range(count):
        voices = [ea.synthetic_speech(1.0, seed=2 * n), ea.synthetic_speech(1.0, seed=2 * n + 1)]
        places = [(60.0 - 5 * (n % 5), 0.0), (-30.0 - 5 * (n % 7), 0.0)]
        ea.render_scene(head, voices, places).mixture.write(folder / f"{n:03d}.wav")
    return folder


def timed(atlas: ea.Atlas, files: Path | list[Path], out: Path, **how: Any) -> float:
    """Seconds that a batch takes, start of its processes and all."""
    start = time.perf_counter()
    for outcome in ea.map_recordings(atlas, files, out, **how):
        assert outcome.status != "failed", outcome.error
    return time.perf_counter() - start


def overhead(atlas: ea.Atlas, files: Path, out: Path) -> float:
    """Seconds a recording beside the work itself: hashes, sidecar, and what is kept of it."""
    start = time.perf_counter()
    answers = [outcome.answer or {} for outcome in ea.map_recordings(atlas, files, out)]
    spent = sum(float(answer["seconds"]) for answer in answers)
    return (time.perf_counter() - start - spent) / len(answers)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _tell(who: str, count: int, seconds: float, cpu: float) -> None:
    print(f"{who}: {60 * count / seconds:.0f} recordings a minute, {cpu / count:.2f} CPU s each")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40, help="recordings that are separated")
    count = parser.parse_args().count
    head = ea.simulated_head(np.column_stack([np.arange(-180.0, 180.0, 5.0), np.zeros(72)]))
    atlas = ea.learn(head, rooms=False)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = recordings(folder / "r", head, count)
        how: dict[str, Any] = {"task": "separate", "settings": {"n_sources": 2}}
        begin = time.process_time()
        one = timed(atlas, files, folder / "one", **how)
        _tell("one process", count, one, one_cpu := time.process_time() - begin)
        few = sorted(files.iterdir())[: max(count // 4, 2)]
        begin = _cpu_of_children()
        timed(atlas, few, folder / "few", jobs=2, **how)
        few_cpu, begin = _cpu_of_children() - begin, _cpu_of_children()
        two = timed(atlas, files, folder / "two", jobs=2, **how)
        _tell("two", count, two, two_cpu := _cpu_of_children() - begin)
        each = (two_cpu - few_cpu) / (count - len(few))
        start = two_cpu - count * each
        print(f"two over one: {one / two:.2f}; the start takes {start:.1f} CPU s of both, then")
        print(f"a recording {each:.2f}: {2 * one_cpu / count / each:.2f} of one, on two free cores")
        try:
            from distributed import Client, LocalCluster
        except ImportError:
            print("no cluster: dask.distributed is not installed")
        else:
            with (
                LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
                Client(cluster) as client,
            ):
                before = sum(client.run(time.process_time).values())
                dask = timed(atlas, files, folder / "dask", client=client, **how)
                cpu = sum(client.run(time.process_time).values()) - before
            _tell("Dask on two", count, dask, cpu)
            print(f"Dask over two here: {two / dask:.2f}, by CPU seconds {two_cpu / cpu:.2f}")
        many = recordings(folder / "many", head, 500)
        print(f"overhead: {1000 * overhead(atlas, many, folder / 'many-out'):.1f} ms a recording")
        (folder / "many-out" / "250.json").unlink()
        left = timed(atlas, many, folder / "many-out")
        print(f"resume of 500 of which 499 are done: {left:.2f} s")


if __name__ == "__main__":
    main()
