"""Use mutants in a separate process, which may crash, hang or run out of memory.

A mutant must be used, or rejected by an `InputError` with a printable message, within 10 seconds
of processor time and within 300 MB plus four times its size of memory.

    python tests/fuzz/fuzz_guard.py MODULE FORMAT FIRST LAST SEED FOLDER    prints a JSON line each
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

MAX_SECONDS = 10.0  # per mutant
MAX_BYTES, MAX_BYTES_PER_BYTE = 300 << 20, 4  # memory: constant, and per byte of the mutant
_WAIT_SECONDS = 60.0  # per mutant, on a busy machine
_MAX_MESSAGE_LENGTH = 1000


@dataclass
class Outcomes:
    """Outcomes of the mutants of one format."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)  # number and description of each
    slowest_seconds: float = 0.0
    largest_bytes: int = 0

    def add(self, number: int, row: dict[str, object]) -> None:
        """Add the result of a mutant."""
        self.slowest_seconds = max(self.slowest_seconds, float(str(row["seconds"])))
        self.largest_bytes = max(self.largest_bytes, int(str(row["bytes"])))
        self.counts[str(row["outcome"])] += 1
        if row["outcome"] not in ("used", "refused"):
            self.failures.append(f"{number}: {row['outcome']}: {row['details']}")


def fuzz(name: str, count: int, *, seed: int = 0, module: str = "fuzz_formats") -> Outcomes:
    """Use `count` mutants of a format of the given module."""
    outcomes, first = Outcomes(), 0
    with tempfile.TemporaryDirectory() as folder:
        while first < count:
            numbers = map(str, (first, count, seed))
            command = [sys.executable, __file__, module, name, *numbers, folder]
            first = _run(command, first, count, outcomes)
    return outcomes


def _run(command: list[str], first: int, last: int, outcomes: Outcomes) -> int:
    """Use mutants from `first` on until the process ends; return the number of the next one."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, env=environment
        ) as process,
    ):
        assert process.stdout is not None
        buffer = b""
        while True:
            ready, _, _ = select.select([process.stdout], [], [], _WAIT_SECONDS)
            data = os.read(process.stdout.fileno(), 65536) if ready else b""
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                outcomes.add(first, json.loads(line))
                first += 1
            if not data:
                break
        if not ready:
            process.kill()
        code = process.wait()
        if code == 1:  # an error of the guard itself: failures of mutants are reported as rows
            errors.seek(0)
            raise RuntimeError(errors.read().decode(errors="replace")[-2000:])
    if first < last:
        outcome = "hang" if not ready else "crash"
        outcomes.add(first, {"outcome": outcome, "details": code, "seconds": 0, "bytes": 0})
    return first + 1


# --- in the process ------------------------------------------------------------------------------


def _peak_bytes(pid: int | str) -> int:
    """Return the peak memory of a process since the last reset; 0 if not on Linux."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(found[0].split()[1]) << 10 if found else 0


def _reset_peak(pid: int | str) -> None:
    """Reset the peak memory of a process."""
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
    for blob in bases:  # a rejected base would make all mutants pass
        path.write_bytes(blob)
        format.use(path)
    base_bytes: dict[int | str, int] = {}
    for number in range(int(first), int(last)):
        random = np.random.default_rng([int(seed), number])
        path.write_bytes(format.mutate(bases[int(random.integers(len(bases)))], random))
        reader = sofa_subprocess.SERVER.process
        pids: list[int | str] = ["self"] + ([reader.pid] if reader else [])
        for pid in pids:
            _reset_peak(pid)
            base_bytes.setdefault(pid, _peak_bytes(pid))
        row = _used(format.use, path)
        grown = sum(max(_peak_bytes(pid) - base_bytes[pid], 0) for pid in pids)
        row["bytes"] = grown
        if row["outcome"] in ("used", "refused"):
            if float(str(row["seconds"])) > MAX_SECONDS:
                row.update(outcome="slow", details=f"{row['seconds']} s")
            elif grown > MAX_BYTES + MAX_BYTES_PER_BYTE * path.stat().st_size:
                row.update(outcome="large", details=f"{grown >> 20} MB")
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()


def _used(use: object, path: Path) -> dict[str, object]:
    from earatlas.errors import InputError, sanitize

    start = time.process_time()  # hangs are detected by the calling process
    details = ""
    try:
        use(path)  # type: ignore[operator]
        outcome = "used"
    except InputError as error:
        message = str(error)
        valid = len(message) <= _MAX_MESSAGE_LENGTH and sanitize(message) == message
        outcome, details = ("refused", "") if valid else ("message", message[:2000])
    except BaseException:
        outcome, details = "traceback", traceback.format_exc()[-1500:]
    return {
        "outcome": outcome,
        "details": details,
        "seconds": round(time.process_time() - start, 3),
    }


if __name__ == "__main__":
    _main(*sys.argv[1:])
