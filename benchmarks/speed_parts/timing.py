"""CPU time and memory of tasks, in this process and in new ones, and the table of them."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

import numpy as np

# Runs a command without its output; prints its CPU seconds and its peak memory in MB.
LAUNCHER = """
import os, sys
silent = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
process = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[silent])
_, status, usage = os.wait4(process, 0)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
sys.exit(os.waitstatus_to_exitcode(status))
"""


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


def calibration_seconds() -> float:
    """Return the least CPU time of three calibration loops, in a new process.

    In this process they would reuse memory of earlier tasks, and take as little as a third.
    """
    code = (
        "from speed_parts.timing import calibration_loop, cpu_seconds; "
        "print(cpu_seconds(calibration_loop, 3))"
    )
    call = [sys.executable, "-c", code]
    folder = Path(__file__).parents[1]
    result = subprocess.run(call, cwd=folder, capture_output=True, text=True, check=True)
    return float(result.stdout)


def in_new_process(*arguments: object) -> tuple[float, float]:
    """Run Python with these arguments; return CPU seconds and peak memory in MB.

    Linux counts the memory of the process that starts another one, so that a small one does it.
    Modules are compiled once, as in an installation, even if the environment forbids compiled
    files.
    """
    environment = {key: os.environ[key] for key in os.environ if key != "PYTHONDONTWRITEBYTECODE"}
    call = [sys.executable, *map(str, arguments)]
    launcher = [sys.executable, "-S", "-c", LAUNCHER, *call]
    result = subprocess.run(launcher, capture_output=True, text=True, env=environment)
    if result.returncode:
        raise SystemExit(f"{' '.join(call)} failed:\n{result.stderr}")
    seconds, megabytes = map(float, result.stdout.split())
    return seconds, megabytes


def command_line(*arguments: object, repeats: int = 1) -> tuple[float, float]:
    """Run `earatlas` in new processes; return the least CPU seconds and peak memory in MB."""
    runs = [in_new_process("-m", "earatlas", *arguments) for _ in range(repeats)]
    return min(seconds for seconds, _ in runs), min(megabytes for _, megabytes in runs)
