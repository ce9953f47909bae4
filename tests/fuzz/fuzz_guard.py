"""Use mutants in a separate process, which may crash, hang or run out of memory.

A mutant must be used, or rejected by an `InputError` with a printable message, within 10 seconds
of processor time and within 300 MB plus four times its size of memory. The processes are forked
from one that has imported the package.
"""

import multiprocessing
import os
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from fuzz_mutators import Format

from earatlas.errors import InputError, sanitize
from earatlas.hrtf import sofa_subprocess

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
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fuzz_guard", "fuzz_formats", "fuzz_faults"])
    outcomes, first = Outcomes(), 0
    with tempfile.TemporaryDirectory() as folder:
        while first < count:
            rows, sender = context.Pipe(duplex=False)
            process = context.Process(
                target=_use_mutants, args=(module, name, range(first, count), seed, folder, sender)
            )
            process.start()
            sender.close()
            outcome = "crash"
            while rows.poll(_WAIT_SECONDS):
                try:
                    row = rows.recv()
                except EOFError:  # the process has ended
                    break
                if "guard" in row:  # failures of mutants are reported as rows
                    raise RuntimeError(row["guard"])
                outcomes.add(first, row)
                first += 1
            else:
                outcome = "hang"
                process.kill()
            process.join()
            if first < count:
                row = {"outcome": outcome, "details": process.exitcode, "seconds": 0, "bytes": 0}
                outcomes.add(first, row)
                first += 1
    return outcomes


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


def _use_mutants(
    module: str, name: str, numbers: range, seed: int, folder: str, rows: Connection
) -> None:
    """Send the outcome of each mutant, or the error of the guard itself."""
    try:
        warnings.simplefilter("ignore")
        _redirect_output(Path(folder))
        os.chdir(folder)
        _use_numbered(import_module(module).FORMATS[name], numbers, seed, rows)
    except BaseException:
        rows.send({"guard": traceback.format_exc()[-2000:]})


def _redirect_output(folder: Path) -> None:
    """Write what libraries print into files."""
    for descriptor in (1, 2):
        file = os.open(folder / f"output{descriptor}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, descriptor)
        os.close(file)


def _use_numbered(format: Format, numbers: range, seed: int, rows: Connection) -> None:
    bases = format.make(Path())
    path = Path(format.file)
    for blob in bases:  # a rejected base would make all mutants pass
        path.write_bytes(blob)
        format.use(path)
    base_bytes: dict[int | str, int] = {}
    for number in numbers:
        random = np.random.default_rng([seed, number])
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
            elif os.fstat(1).st_size:
                row.update(outcome="prints", details=ascii(Path("output1").read_bytes()[:200]))
                os.truncate("output1", 0)
        rows.send(row)


def _used(use: Callable[[Path], object], path: Path) -> dict[str, object]:
    start = time.process_time()  # hangs are detected by the calling process
    details = ""
    try:
        use(path)
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
