"""Images in folders, a folder for each class, as arrays."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from lamu.data.wording import DataError, listed

__all__ = ["image_folder"]

_TYPES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")


def image_folder(
    path: str | os.PathLike[str], size: tuple[int, int] | None = None, mode: str = "RGB"
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Reads `path/class/image.png` as arrays, classes and images in the order of their names.

    Args:
        path: the folder, which has a folder of images for each class.
        size: height and width to which images are scaled; None where all have one size.
        mode: "RGB", or "L" for grey images.

    Returns:
        Images `[N, height, width, channels]` from 0 to 1, float32; the number of each one's class, `[N]`; and the names
        of the classes.

    Raises:
        DataError: for a path that is no folder of folders of images, an image that cannot be read, or images of several
            sizes where no size is given.

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
        raise DataError(f"{str(path)!r} is no folder; give one that has a folder of images for each class")
    found = {
        folder.name: [file for file in sorted(folder.iterdir()) if file.suffix.lower() in _TYPES]
        for folder in sorted(root.iterdir())
        if folder.is_dir()
    }
    classes = tuple(name for name, files in found.items() if files)
    if not classes:
        raise DataError(
            f"{str(path)!r} has no folders of images ({listed([kind[1:] for kind in _TYPES])}); put the images of each "
            "class in a folder of its name"
        )
    images, labels = [], []
    for number, name in enumerate(classes):
        for file in found[name]:
            try:
                with Image.open(file) as opened:
                    image = opened.convert(mode)
                    image = image if size is None else image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
            except (UnidentifiedImageError, OSError) as error:
                raise DataError(f"{str(file)!r} is no image that can be read; save it again, or take it out") from error
            array = np.asarray(image, np.float32) / 255
            if images and array.shape[:2] != images[0].shape[:2]:
                raise DataError(
                    f"{str(file)!r} has the size {array.shape[:2]}, and images before it {images[0].shape[:2]}; give "
                    "size=(height, width)"
                )
            images.append(array[..., None] if array.ndim == 2 else array)
            labels.append(number)
    return np.stack(images), np.array(labels, np.int32), classes
