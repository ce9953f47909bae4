"""Site hook: mark the rows of the results page that were measured by other code than the present.

The marks of the page in the repository are those of the day on which it was drawn.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from earatlas.experiments import EXPERIMENTS
from earatlas.experiments.page import mark_stale_rows


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Return the results page with present marks, and other pages unchanged."""
    if page.file.src_uri != "results.md":
        return markdown
    return mark_stale_rows(markdown, EXPERIMENTS, Path(config["docs_dir"]) / "results")
