"""Opens tables as frames of named columns: CSV, Parquet, Arrow and .npz files and bundled sets."""

from __future__ import annotations

import csv
import errno
import gzip
import io
import math
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from lamu.data.stream import column_names
from lamu.data.wording import DataError, listed, nearest, plural, quoted
from lamu.data.written_numbers import is_code, is_number
from lamu.typing import Data, Options

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MISSING", "Source", "arrays_of", "columns", "image_folder", "load", "names", "open_source"]


# For each name: the factor that scales x, and the dtype of y (integers are classes).
_SETS: dict[str, tuple[float, type[np.generic]]] = {
    "breast_cancer": (1.0, np.int32),
    "diabetes": (1.0, np.float32),
    "digits": (1.0 / 16.0, np.int32),  # pixels are 0 to 16
    "fashion_mnist": (1.0 / 255.0, np.int32),
    "iris": (1.0, np.int32),
    "wine": (1.0, np.int32),
}


def names() -> tuple[str, ...]:
    """Returns the names of the bundled data sets, for `load`.

    Examples:
        >>> from lamu import data
        >>> data.names()
        ('breast_cancer', 'diabetes', 'digits', 'fashion_mnist', 'iris', 'wine')
    """
    return tuple(_SETS)


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns a bundled real data set.

    | name | rows | columns | target |
    |---|---|---|---|
    | `"breast_cancer"` | 569 | 30 | binary: 0 malignant, 1 benign |
    | `"diabetes"` | 442 | 10 | regression: progression after a year |
    | `"digits"` | 1797 | 64 | ten classes; x are 8 by 8 pixels in [0, 1] |
    | `"fashion_mnist"` | 6000 | 784 | ten classes of clothes; x are 28 by 28 pixels in [0, 1] |
    | `"iris"` | 150 | 4 | three classes |
    | `"wine"` | 178 | 13 | three classes |

    Args:
        name: one of `names()`.

    Returns:
        x, float32 `[rows, columns]`, and y, `[rows]`: int32 for classes and binary targets, float32 for regression.

    Raises:
        ValueError: for an unknown name; the message suggests the nearest one.

    Examples:
        >>> from lamu import data
        >>> x, y = data.load("digits")
        >>> x.shape, x.dtype, float(x.max()), y.dtype
        ((1797, 64), dtype('float32'), 1.0, dtype('int32'))
    """
    content, factor, dtype = _read(name)
    return (np.asarray(content["data"]) * factor).astype(np.float32), np.asarray(content["target"]).astype(dtype)


def columns(name: str) -> tuple[str, ...]:
    """Returns the column names of a bundled set's x."""
    return tuple(str(column) for column in _read(name)[0]["feature_names"])


def _read(name: str) -> tuple[Mapping[str, Any], float, type[np.generic]]:
    if name not in _SETS:
        raise ValueError(f"there is no bundled data set {name!r}; {nearest(name, _SETS)}")
    # Copies, since importing scikit-learn, which has all but Fashion-MNIST, takes longer than importing JAX.
    with np.load(Path(__file__).parent / "bundled" / f"{name}.npz", allow_pickle=False) as archive:
        content = dict(archive)
    side = math.isqrt(content["x"].shape[1])
    pixels = [f"pixel_{row}_{column}" for row in range(side) for column in range(side)]
    named = {"data": content["x"], "target": content["y"], "feature_names": content.get("feature_names", pixels)}
    return named, *_SETS[name]


_TYPES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")


def image_folder(
    path: str | os.PathLike[str], size: tuple[int, int] | None = None, mode: str = "RGB"
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Reads `path/class/image.png` as arrays, classes and images in the order of their names.

    Args:
        path: the folder, with a folder of images for each class.
        size: height and width to which images are scaled; None if all have one size.
        mode: "RGB", or "L" for grey images.

    Returns:
        Images `[N, height, width, channels]` from 0 to 1, float32; the number of each one's class, `[N]`; and the names
        of the classes.

    Raises:
        DataError: for a path that is not a folder of folders of images, an image that cannot be read, or images of
            several sizes without `size`.

    Examples:
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> from PIL import Image
        >>> from lamu.data import image_folder
        >>> root = pathlib.Path(tempfile.mkdtemp())
        >>> for name, grey in (("dark", 0), ("light", 255)):
        ...     (root / name).mkdir()
        ...     Image.fromarray(np.full((4, 6), grey, np.uint8)).save(root / name / "0.png")
        >>> x, y, classes = image_folder(root, mode="L")
        >>> x.shape, y.tolist(), classes
        ((2, 4, 6, 1), [0, 1], ('dark', 'light'))
    """
    from PIL import Image, UnidentifiedImageError

    root = Path(path)
    if not root.is_dir():
        raise DataError(f"{str(path)!r} is not a folder; give one that has a folder of images for each class")
    files_by_class = {
        folder.name: [file for file in sorted(folder.iterdir()) if file.suffix.lower() in _TYPES]
        for folder in sorted(root.iterdir())
        if folder.is_dir()
    }
    classes = tuple(name for name, files in files_by_class.items() if files)
    if not classes:
        raise DataError(
            f"{str(path)!r} has no folders of images ({listed([kind[1:] for kind in _TYPES])}); put the images of each "
            "class in a folder of its name"
        )
    images, labels = [], []
    for number, name in enumerate(classes):
        for file in files_by_class[name]:
            try:
                with Image.open(file) as opened:
                    image = opened.convert(mode)
                    image = image if size is None else image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
            except (UnidentifiedImageError, OSError) as error:
                raise DataError(f"{str(file)!r} is not a readable image; save it again, or take it out") from error
            array = np.asarray(image, np.float32) / 255
            if images and array.shape[:2] != images[0].shape[:2]:
                raise DataError(
                    f"{str(file)!r} has the size {array.shape[:2]}, and images before it {images[0].shape[:2]}; give "
                    "size=(height, width)"
                )
            images.append(array[..., None] if array.ndim == 2 else array)
            labels.append(number)
    return np.stack(images), np.array(labels, np.int32), classes


# The words for a missing value. "None" is not among them: it is a level of many questionnaires.
MISSING = ("", "NA", "N/A", "n/a", "<NA>", "nan", "NaN", "NAN", "-nan", "-NaN", "null", "NULL", "Null")
TYPES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".arrow", ".feather", ".npz")
SEPARATORS = ",;\t|"  # detected automatically
_UNUSUAL = ":^~/ "
_File: TypeAlias = gzip.GzipFile | io.BufferedReader  # opened; every pass rewinds it
_BLOCK = 2**22  # bytes that are scanned at a time
_LARGE, _CHUNK = 2**25, 50_000  # bytes of a file that is read in chunks, and their rows
_SPELLED = {"tab": "\t", "\\t": "\t"}
KNOWN = "a .csv, .tsv, .parquet, .arrow, .feather or .npz file"


@dataclass(frozen=True)
class Source:
    """An opened table, before its columns are interpreted."""

    name: str  # its name in messages
    frame: pd.DataFrame  # a pandas DataFrame; text is stripped of blanks, and the words of `MISSING` are missing values
    target: str | None  # the target's column, if the kind of source has one
    notes: tuple[str, ...] = ()  # on omissions
    # By column, marks of missing values besides the words of `MISSING`.
    marked: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> pd.Series:
        column: Any = self.frame[name]
        return column

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.frame.columns)


def open_source(data: Data, text: Collection[str] = (), separator: str | None = None) -> Source:
    """Opens a table."""
    # `text`: the columns of a CSV file that are always read as text, since `"01"` is not 1 there.
    if column_names(data) is not None:
        frame = data if hasattr(data, "iloc") else data.to_pandas()
        return Source("the frame", _cleaned(frame.reset_index(drop=True)), None)
    if not isinstance(data, str | os.PathLike):
        raise DataError(f"{quoted(data)} is not a table; give {KNOWN}, a frame of pandas or polars, or a bundled set")
    if str(data) in names():
        return _bundled(str(data))
    path = Path(data)
    try:
        os.stat(path)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise DataError(f"{quoted(str(path))} is too long for a file name; give {KNOWN}") from error
    except ValueError:  # a null character
        pass
    if path.is_dir():
        raise DataError(f"{str(path)!r} is a folder; give {KNOWN}, or the name of a bundled set")
    if not path.exists():
        if path.suffix or len(path.parts) > 1:
            raise DataError(f"there is no file {str(path)!r}; check the path")
        raise DataError(f"there is no file and no bundled set {str(path)!r}; {nearest(str(path), names())}")
    kind = next((kind for kind in TYPES if path.name.lower().endswith(kind)), None)
    if kind is None:
        raise DataError(f"{str(path)!r} has the unknown type {path.suffix!r}; give {KNOWN}")
    try:
        if path.stat().st_size == 0:
            raise DataError(f"{str(path)!r} is empty; give a file with a header and rows")
        readers = {".npz": _npz, ".parquet": _columnar, ".arrow": _columnar, ".feather": _columnar}
        source = readers[kind](path) if kind in readers else _csv(path, text, separator)
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be read ({error.strerror or error}); check its permissions") from error
    return replace(source, frame=_cleaned(source.frame))


def _bundled(name: str) -> Source:
    import pandas as pd

    x, y = load(name)
    frame = pd.DataFrame(x, columns=list(columns(name)))
    frame["target"] = y
    return Source(f"the bundled set {name!r}", frame, "target")


def _csv(path: Path, text: Collection[str], separator: str | None) -> Source:
    import pandas as pd

    name = repr(str(path))
    # One handle that every pass rewinds, so that the file cannot change between two passes.
    with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb") as file:
        try:
            with _texts(file) as lines:
                first, second = lines.readline(), lines.readline()
            separator = max(SEPARATORS, key=first.count) if separator is None else _separator(separator)
            header = next(csv.reader([first], delimiter=separator, skipinitialspace=True), [])
            header = [column.strip() for column in header]
            if not any(header):
                raise DataError(f"{name} has an empty first line; put the names of the columns there")
            if all(is_number(column) for column in header):
                raise DataError(
                    f"{name} has no header but begins with {first.strip()[:60]!r}; add a line of column names"
                )
            _refuse_repeated_columns(name, header)
            _refuse_other_separator(name, header, second)
            options: Options = {
                "sep": separator,
                "encoding": "utf-8-sig",
                "skipinitialspace": True,
                "keep_default_na": False,
                "na_values": list(MISSING),
                "dtype": dict.fromkeys((header.index(column) for column in text if column in header), str),
                "low_memory": False,
            }
            frame = _in_chunks(file, options) if path.stat().st_size > _LARGE else None
            frame = _parsed(file, options) if frame is None else frame
            frame = _with_codes(frame, file, options)
            if not isinstance(frame.index, pd.RangeIndex) or len(frame.columns) != len(header):
                raise DataError(
                    f"{name} has rows of more fields than its header's {len(header)}; give all rows the same"
                )
            if len(header) > 1 and bool(frame.iloc[:, -1].isna().any()):
                _refuse_short_rows(name, file, separator, len(header))
        except UnicodeDecodeError as error:
            raise DataError(f"{name} is not text in UTF-8 (byte {error.start}); save it as UTF-8") from error
        except EOFError as error:
            raise DataError(f"{name} is a compressed file that ends too early; copy it again") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{name} is a damaged compressed file ({error}); copy it again") from error
        except (pd.errors.ParserError, pd.errors.EmptyDataError, csv.Error) as error:
            raise DataError(
                f"{name} is not a regular table ({' '.join(str(error).split())}); give all rows the same fields"
            ) from error
    frame.columns = header
    nameless = header.count("")
    if nameless:
        notes = (f"left out {nameless} {plural('column', nameless)} without a name",)
        return Source(name, frame.loc[:, [bool(column) for column in header]], None, notes)
    return Source(name, frame, None)


@contextmanager
def _texts(file: _File) -> Iterator[io.TextIOWrapper]:
    """Yields the lines of a file from its start."""
    file.seek(0)
    lines = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    try:
        yield lines
    finally:
        lines.detach()  # leaves the file open


def _parsed(file: _File, options: Options) -> Any:
    """Returns pandas' result for a file from its start: a frame, or chunks of one."""
    import pandas as pd

    file.seek(0)
    return pd.read_csv(file, **options)


def _in_chunks(file: _File, options: Mapping[str, object]) -> pd.DataFrame | None:
    """Returns a frame read in chunks of rows, column by column; None if the chunks differ in kind."""
    # A column with numbers in one chunk and words in another must be read in one piece, to decide which of the two.
    import pandas as pd

    chunks = list(_parsed(file, {**options, "chunksize": _CHUNK}))
    kinds = [{chunk.dtypes.iloc[index].kind for chunk in chunks} for index in range(len(chunks[0].columns))]
    if not all(len(kind) == 1 or kind == {"i", "f"} for kind in kinds):
        return None
    names, rows = chunks[0].columns, sum(map(len, chunks))
    regular = isinstance(chunks[0].index, pd.RangeIndex)
    columns = {name: pd.concat([chunk.pop(name) for chunk in chunks], ignore_index=regular) for name in names}
    index = pd.RangeIndex(rows) if regular else next(iter(columns.values())).index
    return pd.DataFrame(columns, index=index, copy=False)


def _with_codes(frame: pd.DataFrame, file: _File, options: Options) -> pd.DataFrame:
    """Returns the frame with numeric columns as text if they hold codes with leading zeros, such as 02139."""
    import pandas as pd

    numbers = [index for index, dtype in enumerate(frame.dtypes) if dtype.kind in "iuf"]
    if not numbers or not isinstance(frame.index, pd.RangeIndex) or not _has_codes(file, options["sep"]):
        return frame
    texts = _parsed(file, {**options, "usecols": numbers, "dtype": str})
    codes = {}
    for index, column in enumerate(texts.columns):
        levels = texts[column].dropna().str.strip().unique().tolist()
        if is_code(tuple(levels)) and all(level.isdigit() for level in levels):
            codes[frame.columns[numbers[index]]] = texts[column]
    return frame.assign(**codes) if codes else frame


def _has_codes(file: _File, separator: str) -> bool:
    """Returns whether any field of a CSV file is a zero followed by other digits."""
    ends = separator.encode() + b'\r\n" '
    field = re.compile(rb"(?:^|[%b])0[0-9]+(?:[%b]|$)" % (re.escape(ends), re.escape(ends)))
    is_end = np.isin(np.arange(256), np.frombuffer(ends, np.uint8))
    file.seek(0)
    rest = b""
    while block := file.read(_BLOCK):
        block = rest + block
        values = np.frombuffer(block, np.uint8)
        begun = (values[1:-1] == ord("0")) & (values[2:] - ord("0") < 10) & is_end[values[:-2]]
        if begun.any() and field.search(block):
            return True
        rest = block[-64:]
    return False


def _separator(given: str) -> str:
    """Returns a given separator, validated."""
    separator = _SPELLED.get(given, given)
    if len(separator) != 1 or separator.isalnum() or separator in "\"'.-+\r\n":
        raise DataError(f"the separator is {given!r}; give one character, for instance ';', or tab")
    return separator


def _refuse_other_separator(name: str, header: list[str], second: str) -> None:
    """Raises a DataError for a file of one column if another separator occurs equally often in its first two lines."""
    if len(header) > 1:
        return
    sign = max(_UNUSUAL, key=header[0].count)
    if header[0].count(sign) and header[0].count(sign) == second.strip().count(sign):
        raise DataError(
            f"{name} has the one column {quoted(header[0])}, and {sign!r} seems to stand between its fields; say so "
            f"with --separator {sign!r}, or save it with commas"
        )


def _refuse_short_rows(name: str, file: _File, separator: str, width: int) -> None:
    """Raises a DataError for a row that ends before the last column, whose fields pandas would read as missing."""
    with _texts(file) as lines:
        for line, fields in enumerate(csv.reader(lines, delimiter=separator, skipinitialspace=True)):
            if fields and any(fields) and len(fields) < width:
                raise DataError(
                    f"{name} has {len(fields)} {plural('field', fields)} in row {line - 1} (the first is 0) where its "
                    f"header has {width}; give all rows the same fields"
                )


def _columnar(path: Path) -> Source:
    """Reads a Parquet file, or a file or stream of Arrow's IPC format, which includes Feather's second version."""
    name, parquet = repr(str(path)), path.suffix.lower() == ".parquet"
    if find_spec("pyarrow") is None:
        raise DataError(
            f'{name} needs pyarrow, which is not installed; run pip install "lamu[arrow]", or write the table as .csv'
        )
    import pyarrow
    import pyarrow.parquet

    try:
        if parquet:  # only this file determines the columns, no folder above it
            with pyarrow.parquet.ParquetFile(path) as file:
                content = lambda column: _parquet_column(file, column)
                return _of_arrow(name, file.schema_arrow, file.metadata.num_rows, content)
        with pyarrow.OSFile(str(path)) as file:
            try:
                table = pyarrow.ipc.open_file(file).read_all()
            except pyarrow.ArrowInvalid:  # no footer: a stream
                file.seek(0)
                table = pyarrow.ipc.open_stream(file).read_all()
            return _of_arrow(name, table.schema, table.num_rows, table.column)
    except DataError:
        raise
    except (pyarrow.ArrowException, ValueError) as error:
        why = " ".join(str(error).split()).rstrip(".")[:120]
        kind, remedy = ("Parquet", "") if parquet else ("Arrow", ", for instance with to_feather")
        raise DataError(f"{name} is not a whole {kind} file ({why}); write it again{remedy}") from error


def _of_arrow(name: str, schema: Any, rows: int, content: Callable[[str], Any]) -> Source:
    """Returns Arrow columns as a table."""
    # Of pandas' metadata only the categories count: without the rest, an index is an ordinary column and
    # integers that may be missing are floats. One column at a time is in memory besides the frame.
    import pandas as pd

    header = [str(column) for column in schema.names]
    _refuse_repeated_columns(name, header)
    described = (schema.pandas_metadata or {}).get("columns", ())
    categories = {column["field_name"] for column in described if column.get("pandas_type") == "categorical"}
    columns = {}
    for column in header:
        if column and not column.startswith("__index_level_"):
            values = content(column).to_pandas()
            columns[column] = values.astype("category") if column in categories else values
    return Source(name, pd.DataFrame(columns, index=pd.RangeIndex(rows), copy=False), None)


def _parquet_column(file: Any, column: str) -> Any:
    """Returns one column, reading its row groups one after the other."""
    import pyarrow

    groups = [file.read_row_group(group, columns=[column]) for group in range(file.num_row_groups)]
    content = pyarrow.concat_tables(groups) if groups else file.schema_arrow.empty_table().select([column])
    return content.column(column)


def arrays_of(path: Path, names: Collection[str]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Returns an .npz file's arrays of some names, and the names of all of its arrays."""
    try:
        # Opened here, because NumPy leaves a file open that is not an archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            keys = list(archive.files) if isinstance(archive, np.lib.npyio.NpzFile) else []
            return {key: archive[key] for key in keys if key in names}, keys
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{str(path)!r} is not an .npz file of plain arrays ({error}); write it with numpy.savez"
        ) from error


def _npz(path: Path) -> Source:
    import pandas as pd

    name = repr(str(path))
    arrays, keys = arrays_of(path, ("X", "x", "Y", "y"))
    x = arrays.get("X", arrays.get("x"))
    y = arrays.get("y", arrays.get("Y"))
    if x is None:
        raise DataError(f"{name} has the arrays {listed(keys)} and no 'X'; name the features X and the target y")
    if x.ndim == 1:
        x = x[:, None]
    if x.ndim != 2:
        raise DataError(f"X in {name} has the shape {x.shape}; a table needs [rows, columns]")
    frame = pd.DataFrame(x, columns=[f"x{index}" for index in range(x.shape[1])])
    if y is not None:
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        if y.shape != x.shape[:1]:
            raise DataError(f"X and y in {name} have the shapes {x.shape} and {y.shape}; give one target a row")
        frame["y"] = y
    others = [key for key in keys if key not in ("X", "x", "Y", "y")]
    notes = (f"ignored the {plural('array', others)} {listed(others)}",) if others else ()
    return Source(name, frame, None if y is None else "y", notes)


def _cleaned(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the frame with stripped text, and the words for a missing value replaced by missing values."""
    import pandas as pd
    from pandas.api.types import infer_dtype

    cleaned = {}
    for name in frame.columns:
        values = frame[name]
        if infer_dtype(values, skipna=True) == "string" and not isinstance(values.dtype, pd.CategoricalDtype):
            stripped = values.str.strip()
            cleaned[name] = stripped.mask(stripped.isin(MISSING))
    return frame.assign(**cleaned) if cleaned else frame


def _refuse_repeated_columns(name: str, header: list[str]) -> None:
    twice = sorted({column for column in header if column and header.count(column) > 1})
    if twice:
        raise DataError(f"{name} has more than one column {twice[0]!r}; give every column its own name")
