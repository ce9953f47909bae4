"""Which pictures of the documentation were made by earlier drawing code: `python docs/pictures.py`.

A picture that a benchmark has just made is registered by its path: `python docs/pictures.py
images/reliability.png`.

docs/pictures.json has, for each picture, a fingerprint of the code that drew it: the definitions of
the drawing packages that its functions reach (`earatlas.code_hash`), and the style
sheets and scripts of pages. Code that computes the data does not count: rows of results have hashes
of their own, and the pictures of the gallery show the method, not figures that anybody compares.

A picture whose fingerprint differs is stale. It is listed by this command and marked on the site
(this module is a hook of mkdocs) if the package is installed there, and no test fails for it:
`python docs/gallery.py` makes all pictures again that need no measured data.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatch
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
FINGERPRINTS = DOCS / "pictures.json"
PACKAGES = (
    "earatlas.plotting.",
    "earatlas.report.",
    "earatlas.experiments.",
    "earatlas.studio.views",
)
MARK = "*Made by earlier drawing code; `python docs/pictures.py` lists such pictures.*"

# Functions that draw the pictures of a pattern, and other files on which their look depends.
DRAWN_BY: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "gallery/head.png": (("plotting.heads:plot_head",), ()),
    "gallery/cues.png": (("plotting.cues:plot_cues",), ()),
    "gallery/posterior*.png": (("plotting.posteriors:plot_posterior",), ()),
    "gallery/*.png": (("plotting.scenes:plot_scene",), ()),
    "images/demo.png": (
        ("report.page:write_report",),
        ("report/*.css", "report/*.html", "plotting/*.css"),
    ),
    "images/studio.png": (
        ("studio.views:scene_view", "studio.views:spectrogram_images"),
        ("studio/static/*", "plotting/*.css"),
    ),
    "images/reliability.png": (("plotting.posteriors:plot_reliability",), ()),
    **{
        f"results/{name}*.png": ((f"experiments.{name}:section",), ())
        for name in ("figure2", "figure3", "figure4", "figure5", "figure7", "figure8", "figure9")
    },
    "results/rooms*.png": (("experiments.rooms:section",), ()),
}


def pictures() -> list[str]:
    """Return the paths of all pictures below docs."""
    folders = ("gallery", "images", "results")
    return sorted(
        file.relative_to(DOCS).as_posix()
        for name in folders
        for file in (DOCS / name).glob("*.png")
    )


def fingerprint(picture: str) -> str:
    """Return the fingerprint of the present code that draws a picture."""
    import earatlas
    from earatlas.code_hash import drawing_hash

    names, patterns = next(rule for pattern, rule in DRAWN_BY.items() if fnmatch(picture, pattern))
    root = Path(earatlas.__file__).parent
    digest = hashlib.sha256(drawing_hash(map(_function, names), PACKAGES).encode())
    for file in sorted(file for pattern in patterns for file in root.glob(pattern)):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def _function(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"earatlas.{module}"), function)
    return found


def stored() -> dict[str, str]:
    """Return the fingerprints of the code that made the pictures."""
    values: dict[str, str] = json.loads(FINGERPRINTS.read_text(encoding="utf-8"))
    return values


def record(made: Iterable[str]) -> None:
    """Store the fingerprints of pictures that were made just now."""
    before = stored() if FINGERPRINTS.is_file() else {}
    values = {**before, **{picture: fingerprint(picture) for picture in made}}
    kept = {picture: values[picture] for picture in sorted(values) if picture in pictures()}
    FINGERPRINTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def stale() -> list[str]:
    """Return the pictures that were made by other code than the present one."""
    known = stored()
    return [picture for picture in pictures() if known.get(picture) != fingerprint(picture)]


def marked(markdown: str, folder: str, outdated: Iterable[str]) -> str:
    """Return a page in a folder of docs ("" is docs itself), with marks behind stale pictures."""
    old = set(outdated)

    def mark(match: re.Match[str]) -> str:
        target = (DOCS / folder / match[1]).resolve()
        inside = target.is_relative_to(DOCS.resolve())
        name = target.relative_to(DOCS.resolve()).as_posix() if inside else ""
        return f"{match[0]} {MARK}" if name in old else match[0]

    return re.sub(r"!\[[^\]]*\]\(([^)\s]+)\)(?:\{[^}]*\})?", mark, markdown)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Mark stale pictures on a page of the site, if the package is installed where it is made."""
    if find_spec("earatlas") is None:
        return markdown
    return marked(markdown, str(Path(page.file.src_uri).parent), stale())


def main(made: Sequence[str]) -> int:
    """Register pictures that were made, and print the stale ones; return 1 if there are any."""
    if unknown := set(made) - set(pictures()):
        print(f"no picture of docs: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    if made:
        record(made)
    outdated = stale()
    for picture in outdated:
        print(f"stale: docs/{picture}")
    print(f"{len(outdated)} of {len(pictures())} pictures were made by earlier drawing code")
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
