"""Count the files and functions of the package that one call visits.

    python benchmarks/data_flow.py [--list]

The calls are `Atlas.localize`, `Atlas.separate` and `Live.push` with 3 s of two synthetic talkers
and the shipped atlas of the simulated head. Imports, the bodies of classes that they run, and the
creation of the separator are not counted; comprehensions and lambda functions are not functions
here. `--list` also prints the files.
"""

import argparse
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import earatlas as ea

PACKAGE = str(Path(ea.__file__).parent)


def visited(call: Callable[[], object]) -> tuple[set[str], set[tuple[str, str]]]:
    """Return the files of the package, and (file, function), that a call visits."""
    functions: set[tuple[str, str]] = set()

    def profile(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED and code.co_name[0] != "<"
        if event == "call" and is_function and code.co_filename.startswith(PACKAGE):
            file = str(Path(code.co_filename).relative_to(PACKAGE))
            functions.add((file, code.co_qualname))

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return {file for file, _ in functions}, functions


def main() -> None:
    """Print one row per call."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the visited files as well")
    options = parser.parse_args()
    atlas = ea.example_atlas()
    directions = [[40, 0], [-60, 20]]
    sounds = [ea.synthetic_speech(3.0, seed=seed) for seed in (1, 2)]
    mixture = ea.render_scene(ea.simulated_head(directions), sounds, directions).mixture
    live = atlas.live(rate=mixture.rate)
    _ = atlas.separator

    def stream() -> None:
        for start in range(0, mixture.samples.shape[1], 1000):
            live.push(mixture.samples[:, start : start + 1000])

    calls = {
        "localize": lambda: atlas.localize(mixture),
        "separate": lambda: atlas.separate(mixture),
        "Live.push": stream,
    }
    print("| call | files | functions |\n|---|---|---|")
    for name, call in calls.items():
        files, functions = visited(call)
        print(f"| {name} | {len(files)} | {len(functions)} |", flush=True)
        if options.list:
            print("\n".join(f"    {file}" for file in sorted(files)))


if __name__ == "__main__":
    main()
