"""Parts of the HTML views for notebooks: frame, title, facts, tables and players.

The inputs are texts and sounds, the output is HTML with its own style sheet, whose rules apply only
within the view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from earatlas.features.audio import Audio
from earatlas.plotting.palette import shared_css
from earatlas.report.page import chart_css
from earatlas.report.players import EmbeddedSoundLimits, players

__all__ = ["fact_list", "framed", "heading", "html_table", "sound_players"]

# Evidence: docs/figures/settings/report.md, "notebook".
_SOUND_LIMITS = EmbeddedSoundLimits(seconds=20.0, megabytes=3.0)  # of one view

_CSS = """
& { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .75rem 1rem; max-width: 60rem; font-size: 14px; line-height: 1.4;
  box-sizing: border-box; }
.place { font-size: 1.1rem; margin: 0 0 .35rem; }
.view { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 17.5rem), 1fr));
  gap: .75rem 1.5rem; align-items: start; margin-top: .5rem; }
.compass { max-width: 13rem; width: 100%; margin: 0 auto; display: block; }
audio { display: block; width: 100%; min-width: 12rem; height: 2rem; margin: .25rem 0 0; }
th, td { padding: .25rem .75rem .25rem 0; background: none; color: inherit; }
tbody tr { background: none; }
td:has(.number) { white-space: nowrap; }
"""


def framed(*parts: str) -> str:
    """Return the parts in a frame with their style sheet."""
    shared = shared_css().replace(":root {", "& {").replace("body {", "& {")
    style = f".earatlas-view {{\n{shared}{chart_css()}{_CSS}}}"
    return f'<div class="earatlas-view"><style>{style}</style>{"".join(parts)}</div>'


def heading(text: str) -> str:
    """Return the first line of a view; `text` is plain text."""
    return f'<p class="place">{escape(text)}</p>'


def fact_list(facts: Mapping[str, str]) -> str:
    """Return names and values as a list; both are plain text."""
    rows = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items() if v)
    return f"<dl>{rows}</dl>"


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; columns are text, cells are HTML."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        "</div>"
    )


def sound_players(sounds: Mapping[str, Audio]) -> dict[str, str]:
    """Return the players of sounds with one or two channels, by name."""
    playable = {name: sound for name, sound in sounds.items() if sound.samples.shape[1]}
    return players(playable, {}, Path(), _SOUND_LIMITS)
