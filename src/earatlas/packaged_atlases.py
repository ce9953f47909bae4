"""The atlases that are part of the package: their files, and the names by which users call them."""

from pathlib import Path

__all__ = ["EXAMPLE_ATLAS", "PACKAGED_ATLASES", "PEOPLE", "PEOPLE_ATLAS"]

PEOPLE = "people"
PEOPLE_ATLAS = Path(__file__).with_name("data") / "people.atlas"
EXAMPLE_ATLAS = Path(__file__).with_name("data") / "simulated.atlas"  # of the simulated head
# Names of the packaged atlases wherever an atlas is expected, unless a file has the same name.
PACKAGED_ATLASES = {PEOPLE: PEOPLE_ATLAS, "simulated": EXAMPLE_ATLAS}
