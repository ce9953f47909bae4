"""Pictures of the documentation: their drawing code, fingerprints, and marks of stale ones."""

import re
import runpy
from pathlib import Path

import pytest

from earatlas import code_hash

ROOT = Path(__file__).parents[1]
PICTURES = runpy.run_path(str(ROOT / "docs" / "pictures.py"))


def test_every_picture_is_known_and_used() -> None:
    """Each picture has a rule, each stored fingerprint a picture, and each picture a page.

    A stale picture does not fail: `python docs/pictures.py` lists it, and the site marks it.
    """
    names = PICTURES["pictures"]()
    assert len(names) > 30
    assert all(re.fullmatch("[0-9a-f]{12}", PICTURES["fingerprint"](name)) for name in names)
    assert set(PICTURES["stored"]()) <= set(names)
    assert set(PICTURES["stale"]()) <= set(names)
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert [name for name in names if Path(name).name not in text] == []


@pytest.mark.parametrize(
    ("unit", "changed"),
    [
        ("earatlas.plotting.heads.plot_head", True),
        ("earatlas.plotting.style.style_axes", True),
        ("earatlas.features.layout.CueLayout", False),
        ("earatlas.plotting.tracks.draw_levels", False),
    ],
)
def test_drawing_code_changes_the_fingerprint(
    unit: str, changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that draws a picture counts; code that computes its data or draws others does not."""
    before = PICTURES["fingerprint"]("gallery/head.png")
    reach = code_hash._reach

    def edited(module: str, name: str) -> dict[str, str]:
        units = dict(reach(module, name))
        return {one: text + ("#" if one == unit else "") for one, text in units.items()}

    monkeypatch.setattr(code_hash, "_reach", edited)
    assert (PICTURES["fingerprint"]("gallery/head.png") != before) is changed


def test_stale_pictures_are_marked() -> None:
    """A mark follows each stale picture of a page, and no other."""
    text = "![a](gallery/head.png)\n\n![b](gallery/cues.png)\n"
    marked = PICTURES["marked"](text, "", ["gallery/cues.png"])
    assert marked == f"![a](gallery/head.png)\n\n![b](gallery/cues.png) {PICTURES['MARK']}\n"
    below = PICTURES["marked"]("![c](../images/studio.png)", "guide", ["images/studio.png"])
    assert below.endswith(PICTURES["MARK"])
