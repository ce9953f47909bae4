"""Fuzz file formats: `python tests/fuzz [FORMAT ...] [--count N] [--seed N]`; exit 1 on failure."""

import argparse
import sys
import time

from fuzz_formats import FORMATS
from fuzz_guard import fuzz


def main() -> int:
    """Fuzz the given formats, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", default=list(FORMATS), metavar="FORMAT")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    failed = 0
    for name in options.formats:
        start = time.perf_counter()
        outcomes = fuzz(name, options.count, seed=options.seed)
        counts = ", ".join(f"{count} {what}" for what, count in sorted(outcomes.counts.items()))
        sys.stdout.write(
            f"{name:6} {options.count} mutants: {counts}; "
            f"slowest {outcomes.slowest_seconds:.2f} s, {outcomes.largest_bytes / 1e6:.0f} MB; "
            f"{time.perf_counter() - start:.0f} s\n"
        )
        for failure in outcomes.failures[:10]:
            sys.stdout.write(f"  {failure}\n")
        sys.stdout.flush()
        failed += len(outcomes.failures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
