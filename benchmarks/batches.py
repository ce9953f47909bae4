"""Throughput of batches: one process, two processes, a Dask cluster of two; and resuming.

Recordings of one second with two sources of synthetic speech, the simulated head on a ring. Ratios
are within this run, and of CPU time as well: on a busy machine two processes do not have two cores
for themselves. The cluster is measured if dask.distributed is installed.
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
    """Write `count` recordings to a folder and return it."""
    folder.mkdir()
    for n in range(count):
        signals = [ea.synthetic_speech(1.0, seed=2 * n), ea.synthetic_speech(1.0, seed=2 * n + 1)]
        directions = [(60.0 - 5 * (n % 5), 0.0), (-30.0 - 5 * (n % 7), 0.0)]
        ea.render_scene(head, signals, directions).mixture.write(folder / f"{n:03d}.wav")
    return folder


def batch_seconds(atlas: ea.Atlas, files: Path | list[Path], out: Path, **options: Any) -> float:
    """Return the seconds that a batch takes, including the start of its processes."""
    start = time.perf_counter()
    for outcome in ea.map_recordings(atlas, files, out, **options):
        assert outcome.status != "failed", outcome.error
    return time.perf_counter() - start


def overhead(atlas: ea.Atlas, files: Path, out: Path) -> float:
    """Return the seconds per recording without the processing: hashes, sidecar and result."""
    start = time.perf_counter()
    results = [outcome.answer or {} for outcome in ea.map_recordings(atlas, files, out)]
    spent = sum(float(result["seconds"]) for result in results)
    return (time.perf_counter() - start - spent) / len(results)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _print_throughput(name: str, count: int, seconds: float, cpu: float) -> None:
    print(
        f"{name}: {60 * count / seconds:.0f} recordings per minute, "
        f"{cpu / count:.2f} CPU s per recording"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40, help="number of recordings to separate")
    count = parser.parse_args().count
    head = ea.simulated_head(np.column_stack([np.arange(-180.0, 180.0, 5.0), np.zeros(72)]))
    atlas = ea.learn(head, rooms=False)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = recordings(folder / "r", head, count)
        options: dict[str, Any] = {"task": "separate", "settings": {"n_sources": 2}}
        cpu_before = time.process_time()
        one = batch_seconds(atlas, files, folder / "one", **options)
        _print_throughput("one process", count, one, one_cpu := time.process_time() - cpu_before)
        few = sorted(files.iterdir())[: max(count // 4, 2)]
        cpu_before = _cpu_of_children()
        batch_seconds(atlas, few, folder / "few", jobs=2, **options)
        few_cpu, cpu_before = _cpu_of_children() - cpu_before, _cpu_of_children()
        two = batch_seconds(atlas, files, folder / "two", jobs=2, **options)
        _print_throughput("two processes", count, two, two_cpu := _cpu_of_children() - cpu_before)
        cpu_per_recording = (two_cpu - few_cpu) / (count - len(few))
        start = two_cpu - count * cpu_per_recording
        print(
            f"speed-up of two processes: {one / two:.2f}; their start takes {start:.1f} CPU s, then"
        )
        print(
            f"{cpu_per_recording:.2f} CPU s per recording: on two idle cores "
            f"{2 * one_cpu / count / cpu_per_recording:.2f} times as fast as one process"
        )
        try:
            from distributed import Client, LocalCluster
        except ImportError:
            print("no Dask cluster: dask.distributed is not installed")
        else:
            with (
                LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
                Client(cluster) as client,
            ):
                before = sum(client.run(time.process_time).values())
                dask = batch_seconds(atlas, files, folder / "dask", client=client, **options)
                cpu = sum(client.run(time.process_time).values()) - before
            _print_throughput("Dask, two workers", count, dask, cpu)
            print(
                f"Dask relative to two processes: {two / dask:.2f}, by CPU time {two_cpu / cpu:.2f}"
            )
        many = recordings(folder / "many", head, 500)
        print(f"overhead: {1000 * overhead(atlas, many, folder / 'many-out'):.1f} ms per recording")
        (folder / "many-out" / "250.json").unlink()
        resume_seconds = batch_seconds(atlas, many, folder / "many-out")
        print(f"resuming a batch of 500 with 499 done: {resume_seconds:.2f} s")


if __name__ == "__main__":
    main()
