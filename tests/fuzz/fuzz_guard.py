"""Mutants are used in a process of their own, which may crash, hang or swell: that is counted.

A mutant must be used, or refused by one `InputError` of harmless words, within 10 seconds and four
times its own size and 300 MB of memory.

    python tests/fuzz/fuzz_guard.py MODULE FORMAT FIRST LAST SEED FOLDER    a line of JSON a mutant
"""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

__all__ = ["Outcomes", "fuzz"]

MOST_SECONDS = 10.0
MOST_BYTES, MOST_TIMES = 300 << 20, 4
_WAIT_SECONDS = 60.0  # for a mutant, on a machine that has other work
_LONGEST_MESSAGE = 1000


@dataclass
class Outcomes:
    """What became of the mutants of one format."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)  # each with its number and what happened
    slowest_seconds: float = 0.0
    largest_bytes: int = 0

    def add(self, number: int, row: dict[str, object]) -> None:
        """What a process told of a mutant."""
        self.slowest_seconds = max(self.slowest_seconds, float(str(row["seconds"])))
        self.largest_bytes = max(self.largest_bytes, int(str(row["bytes"])))
        self.counts[str(row["outcome"])] += 1
        if row["outcome"] not in ("used", "refused"):
            self.failures.append(f"{number}: {row['outcome']}: {row['told']}")


def fuzz(name: str, count: int, *, seed: int = 0, module: str = "fuzz_formats") -> Outcomes:
    """Use so many mutants of a format of that module."""
    outcomes, first = Outcomes(), 0
    with tempfile.TemporaryDirectory() as folder:
        while first < count:
            numbers = map(str, (first, count, seed))
            command = [sys.executable, __file__, module, name, *numbers, folder]
            first = _run(command, first, count, outcomes)
    return outcomes


def _run(command: list[str], first: int, last: int, outcomes: Outcomes) -> int:
    """Mutants from `first` on, until the process ends; the number of the next one."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, env=environment
        ) as process,
    ):
        assert process.stdout is not None
        told = b""
        while True:
            ready, _, _ = select.select([process.stdout], [], [], _WAIT_SECONDS)
            data = os.read(process.stdout.fileno(), 65536) if ready else b""
            *lines, told = (told + data).split(b"\n")
            for line in lines:
                outcomes.add(first, json.loads(line))
                first += 1
            if not data:
                break
        if not ready:
            process.kill()
        code = process.wait()
        if code == 1:  # of Python, not of a mutant: that process tells of all that it meets
            errors.seek(0)
            raise RuntimeError(errors.read().decode(errors="replace")[-2000:])
    if first < last:
        what = "hang" if not ready else "crash"
        outcomes.add(first, {"outcome": what, "told": code, "seconds": 0, "bytes": 0})
    return first + 1


# --- in the process ------------------------------------------------------------------------------


def _peak_bytes(pid: int | str) -> int:
    """The most memory that a process had since it was last asked to forget it; 0 off Linux."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(found[0].split()[1]) << 10 if found else 0


def _forget_peak(pid: int | str) -> None:
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        return


def _main(module: str, name: str, first: str, last: str, seed: str, folder: str) -> None:
    import numpy as np

    from earatlas.hrtf import sofa_subprocess

    warnings.simplefilter("ignore")
    format = import_module(module).FORMATS[name]
    os.chdir(folder)
    bases = format.make(Path(folder))
    path = Path(folder, format.file)
    for blob in bases:  # a base that is refused would make all mutants pass
        path.write_bytes(blob)
        format.use(path)
    at_rest: dict[int | str, int] = {}
    for number in range(int(first), int(last)):
        random = np.random.default_rng([int(seed), number])
        path.write_bytes(format.mutate(bases[int(random.integers(len(bases)))], random))
        reader = sofa_subprocess._reader._process
        pids: list[int | str] = ["self"] + ([reader.pid] if reader else [])
        for pid in pids:
            _forget_peak(pid)
            at_rest.setdefault(pid, _peak_bytes(pid))
        row = _used(format.use, path)
        grown = sum(max(_peak_bytes(pid) - at_rest[pid], 0) for pid in pids)
        row["bytes"] = grown
        if row["outcome"] in ("used", "refused"):
            if float(str(row["seconds"])) > MOST_SECONDS:
                row.update(outcome="slow", told=f"{row['seconds']} s")
            elif grown > MOST_BYTES + MOST_TIMES * path.stat().st_size:
                row.update(outcome="large", told=f"{grown >> 20} MB")
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()


def _used(use: object, path: Path) -> dict[str, object]:
    from earatlas.errors import InputError, harmless

    start = time.perf_counter()
    told = ""
    try:
        use(path)  # type: ignore[operator]
        outcome = "used"
    except InputError as error:
        message = str(error)
        good = len(message) <= _LONGEST_MESSAGE and harmless(message) == message
        outcome, told = ("refused", "") if good else ("message", message[:2000])
    except BaseException:
        outcome, told = "traceback", traceback.format_exc()[-1500:]
    return {"outcome": outcome, "told": told, "seconds": round(time.perf_counter() - start, 3)}


if __name__ == "__main__":
    _main(*sys.argv[1:])
