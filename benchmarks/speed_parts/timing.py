"""CPU time and memory of tasks, in this process and in new ones, and the table of them."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

import numpy as np


@dataclass(frozen=True)
class Row:
    """One task of the table."""

    task: str
    seconds: float  # CPU time
    figure: str = ""  # the same per second of sound, per window …
    result: str = ""  # accuracy, or peak memory


def format_rows(title: str, rows: list[Row], unit: float) -> str:
    """Return a table with the ratio of each CPU time to that of the calibration loop."""
    lines = [
        f"### {title}\n\nCalibration loop: {unit:.2f} CPU s\n",
        "| task | CPU s | ratio to the loop | figure | result |\n|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.task} | {row.seconds:.2f} | {row.seconds / unit:.2f} | {row.figure} | "
        f"{row.result} |"
        for row in rows
    ]
    return "\n".join(lines)


def replace_section(page: str, part: str, text: str) -> str:
    """Return the page with the section of a part replaced, which two comments enclose."""
    begin, end = f"<!-- speed.py {part} -->", f"<!-- end of {part} -->"
    before, found, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise SystemExit(f"the page must contain '{begin}' and '{end}'. Add them.")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def calibration_loop() -> None:
    """Do a fixed amount of work of the kinds that dominate the tasks."""
    x = np.random.default_rng(0).standard_normal((200, 1024))
    for _ in range(300):
        np.fft.rfft(x)
        x[:, :200] @ x[:, :200].T
        np.exp(-(x**2))
    sum(len(str(n)) for n in range(1_000_000))


def cpu_seconds(task: Callable[[], object], repeats: int) -> float:
    """Return the least CPU time of a task, with the processes that it waits for."""
    seconds = []
    for _ in range(repeats):
        start = used_seconds()
        task()
        seconds.append(used_seconds() - start)
    return min(seconds)


def used_seconds() -> float:
    """Return the CPU time of this process and of its ended children."""
    used = [getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def in_new_process(*arguments: object) -> tuple[float, float]:
    """Run Python with these arguments; return CPU seconds and peak memory in MB.

    On Linux the peak is at least the memory of this process when it started the other one. Modules
    are compiled once, as in an installation, even if the environment forbids compiled files.
    """
    call = [sys.executable, *map(str, arguments)]
    environment = {key: os.environ[key] for key in os.environ if key != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        call, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
    )
    assert process.stderr is not None  # because it is a pipe
    message = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode:
        raise SystemExit(f"{' '.join(call)} failed:\n{message.decode(errors='replace')}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def command_line(*arguments: object, repeats: int = 1) -> tuple[float, float]:
    """Run `earatlas` in new processes; return the least CPU seconds and peak memory in MB."""
    runs = [in_new_process("-m", "earatlas", *arguments) for _ in range(repeats)]
    return min(seconds for seconds, _ in runs), min(megabytes for _, megabytes in runs)
