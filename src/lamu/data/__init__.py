"""Data: batches with masks, arrays and tables, and the bundled real sets."""

from typing import TYPE_CHECKING

from lamu.base.lazy_imports import lazy_names

if TYPE_CHECKING:
    from lamu.data.arrays import Arrays, FewRows, Incomplete, UnfamiliarRows, UnscaledRows, UnscaledWeights
    from lamu.data.batch import Batch
    from lamu.data.encoding import Encoding
    from lamu.data.sources import image_folder, load, names
    from lamu.data.splits import split
    from lamu.data.stream import Stream
    from lamu.data.table import Table
    from lamu.data.wording import DataError
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)

__all__ = [
    "Arrays",
    "Batch",
    "DataError",
    "Encoding",
    "FewRows",
    "Incomplete",
    "Stream",
    "Table",
    "UnfamiliarRows",
    "UnscaledRows",
    "UnscaledWeights",
    "image_folder",
    "load",
    "names",
    "split",
]
