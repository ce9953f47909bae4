"""HTML report of a separated scene: directions, uncertainty, spectrograms, and players.

The input is a `SceneSummary` and optionally the ground truth, the output one self-contained HTML
file: it needs no network, no other file and no library. Sounds are embedded as FLAC, images as PNG
and SVG. Of long recordings it embeds the beginning and links to the files.
"""

from earatlas.report.page import report_page, write_report

__all__ = ["report_page", "write_report"]
