"""A separated scene as one page: what was heard, where, how sure, and each source to listen to.

In: a `FoundScene`, and what is known of the truth. Out: one HTML file that needs nothing else: no
network, no other file, no library. Sounds are FLAC, pictures PNG and SVG, all inside it; of long
recordings the openings, with links to the files that hold the whole.
"""

from earatlas.report.page import report_page, write_report

__all__ = ["report_page", "write_report"]
