"""Rows of the figures: their recorded code, and marks of those that were measured by other code."""

import re
import runpy
from pathlib import Path

import pytest

from earatlas import code_hash

ROOT = Path(__file__).parents[1]
ROWS = runpy.run_path(str(ROOT / "docs" / "figure_rows.py"))
PRINTED = "experiments.vessl_as_published:separate_as_published"
PAGE = """# Page

## First

<!-- rows "VESSL": {digest} {functions} -->

| rows | dB |
|---|---|
| VESSL, soft | 1.0 |
| VESSL, binary † | 2.0 |
| ours | 3.0 |

## Second

| VESSL, soft | 4.0 |
"""


def test_recorded_rows_exist() -> None:
    """Each comment names functions of the package and rows of its section.

    Rows of earlier code do not fail: the command lists them, and the site marks them.
    """
    comments = 0
    for page in (ROOT / "docs" / "figures").glob("*.md"):
        for section in ROWS["_SECTION"].split(page.read_text(encoding="utf-8")):
            for start, _, functions in ROWS["_COMMENT"].findall(section):
                comments += 1
                assert re.fullmatch("[0-9a-f]{12}", ROWS["fingerprint"](functions))
                assert f"\n| {start}" in section
    assert comments >= 1


def test_rows_of_other_code_are_marked() -> None:
    """Marks are behind the names of rows of the section, once, and behind no other."""
    stale = ROWS["marked"](PAGE.format(digest="0" * 12, functions=PRINTED))
    assert [line for line in stale.splitlines() if "†" in line] == [
        "| VESSL, soft † | 1.0 |",
        "| VESSL, binary † | 2.0 |",
    ]
    fresh = PAGE.format(digest=ROWS["fingerprint"](PRINTED), functions=PRINTED)
    assert ROWS["marked"](fresh) == fresh


@pytest.mark.parametrize(
    ("unit", "changed"),
    [("earatlas.separation.vessl.VESSL.step", True), ("earatlas.baselines.messl.separate", False)],
)
def test_code_of_the_measurement_changes_the_fingerprint(
    unit: str, changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that the functions reach counts; other methods do not."""
    before = ROWS["fingerprint"](PRINTED)
    reach = code_hash._reach

    def edited(*arguments: str) -> dict[str, str]:
        units = dict(reach(*arguments))
        return {one: text + ("#" if one == unit else "") for one, text in units.items()}

    code_hash._code_hash.cache_clear()
    monkeypatch.setattr(code_hash, "_reach", edited)
    try:
        assert (ROWS["fingerprint"](PRINTED) != before) is changed
    finally:
        code_hash._code_hash.cache_clear()
