"""Data: batches with masks, arrays and tables, and the bundled real sets."""

from lamu.data.arrays import Arrays, split
from lamu.data.batch import Batch
from lamu.data.bundled import load, names
from lamu.data.encoding import Encoding
from lamu.data.image_files import image_folder
from lamu.data.incomplete import Incomplete
from lamu.data.row_weights import UnscaledWeights
from lamu.data.stream import Stream
from lamu.data.table import Table
from lamu.data.wording import DataError

__all__ = [
    "Arrays",
    "Batch",
    "DataError",
    "Encoding",
    "Incomplete",
    "Stream",
    "Table",
    "UnscaledWeights",
    "image_folder",
    "load",
    "names",
    "split",
]
