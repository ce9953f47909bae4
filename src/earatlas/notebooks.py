"""Results in notebooks: HTML views, and tables for pandas.

Input: a result of any layer. Output: its HTML, which `earatlas.report.notebook` renders, or a
`pandas.DataFrame` of its columns. pandas is optional and imported when a table is requested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from earatlas.errors import missing_extra

if TYPE_CHECKING:
    import pandas

__all__ = ["HtmlView", "data_frame"]


class HtmlView:
    """A result that notebooks show as HTML."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        # The report is a layer above all results, and it is loaded only where HTML is shown.
        html: str = import_module("earatlas.report.notebook").notebook_html(self)
        return html


def data_frame(columns: Mapping[str, Sequence[Any]]) -> pandas.DataFrame:
    """Return columns of equal length as a table.

    Examples
    --------
    >>> data_frame({"time": [0.1, 0.2], "azimuth": [30.0, None]}).shape
    (2, 2)
    """
    try:
        import pandas
    except ImportError as error:
        raise missing_extra("pandas", "pandas") from error
    return pandas.DataFrame(dict(columns))
