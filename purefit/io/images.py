"""Examples from files to predict on: PNG and JPEG images, and NumPy arrays."""

import warnings
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from purefit.errors import DataError, MissingExtraError, PurefitWarning
from purefit.io.datasets import read_npz, readable

__all__ = ["read_examples"]

_IMAGES = (".png", ".jpg", ".jpeg")
_KINDS = (*_IMAGES, ".npy", ".npz")
_MODES = ("1", "L", "P", "RGB", "LA", "PA", "RGBA", "CMYK", "YCbCr")


def read_examples(
    paths: Sequence[str | PathLike[str]],
    like_shape: tuple[int, ...],
    dtype: Any,
    *,
    invert: bool = False,
    resize: bool = False,
    dark: bool = False,
) -> tuple[list[str], np.ndarray]:
    """Read files as examples in the form of a model's training data.

    Images are turned upright as their EXIF data say and converted to grey or colour as
    `like_shape` asks. For integer data they keep values from 0 to 255; for data of floats these
    are divided by 255. Arrays must already be on the scale of the training data.

    Args:
        paths: Images (`.png`, `.jpg`, `.jpeg`), arrays (`.npy`) or archives with an array named
            `x` (`.npz`). An array is one example, or several along its first axis.
        like_shape: Shape of one training example: `(height, width)` or `(height, width, 1)` for
            grey images, `(height, width, 3)` for colour; anything for arrays.
        dtype: Its dtype.
        invert: Swap dark and bright; for images, bytes and floats in [0, 1].
        resize: Resample images of another size (bilinear, without keeping proportions).
        dark: Whether the training images are mostly dark; a mostly bright example then warns.

    Returns:
        A name for each example, the file's and for several in a file `[i]` after it, and the
        examples as one array `[n, *like_shape]` of the dtype asked for.

    Raises:
        DataError: A file is missing, unreadable or does not fit.
        MissingExtraError: An image was given and Pillow is not installed.

    Warns:
        PurefitWarning: Examples are bright and the training images were dark.
    """
    if not paths:
        raise DataError(
            f"Expected at least one file to read, got none; name files ending in "
            f"{', '.join(_KINDS)}."
        )
    names: list[str] = []
    parts: list[np.ndarray] = []
    bright: list[str] = []
    for path in map(Path, paths):
        stack, one, scale = _read(path, tuple(like_shape), np.dtype(dtype), resize)
        stack = _inverted(stack, path) if invert else stack
        here = [path.name] if one else [f"{path.name}[{i}]" for i in range(len(stack))]
        bright += [name for name, example in zip(here, stack, strict=True) if _is_bright(example)]
        names += here
        parts.append(_cast(stack, np.dtype(dtype), scale))
    if dark and bright:
        _warn_of_bright(bright, invert)
    return names, np.concatenate(parts)


def _read(
    path: Path, like_shape: tuple[int, ...], dtype: np.dtype, resize: bool
) -> tuple[np.ndarray, bool, bool]:
    """Give the examples of a file, whether it is just one, and whether floats are to be scaled."""
    if path.suffix.lower() in _IMAGES:
        return _pixels(path, like_shape, resize)[None], True, True
    stack, one = _stack(path, like_shape)
    _check_values(stack, dtype, path)
    return stack, one, False


def _pixels(path: Path, like_shape: tuple[int, ...], resize: bool) -> np.ndarray:
    """Decode an image into uint8 of the shape asked for."""
    pillow, upright = _pillow()
    mode = _mode(like_shape, path)
    height, width = like_shape[:2]
    with readable(path, "PNG or JPEG", "an image editor"), pillow.open(path) as opened:
        if opened.format not in ("PNG", "JPEG"):
            raise ValueError(f"an image of format {opened.format}")
        _check_pixels(opened, path)
        image = upright(opened)
        if image.size != (width, height) and not resize:
            raise DataError(
                f"Expected {path.name} to be {width} x {height} pixels like the training images, "
                f"got {image.width} x {image.height}; resize it, or ask for resize=True "
                "(--resize)."
            )
        image = image.convert(mode)
        if image.size != (width, height):
            image = image.resize((width, height), pillow.Resampling.BILINEAR)
        return np.asarray(image, np.uint8).reshape(like_shape)


def _pillow() -> tuple[Any, Any]:
    try:
        from PIL import Image, ImageOps  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError(
            "Expected Pillow for reading images, got no such package; do "
            "pip install 'purefit[data]'."
        ) from error
    return Image, ImageOps.exif_transpose


def _mode(like_shape: tuple[int, ...], path: Path) -> str:
    if len(like_shape) == 2 or like_shape[2:] == (1,):
        return "L"
    if like_shape[2:] == (3,):
        return "RGB"
    raise DataError(
        f"Expected a model of images, grey or of 3 colours, to read {path.name}, got one of "
        f"examples of shape {like_shape}; give arrays of that shape as .npy."
    )


def _check_pixels(image: Any, path: Path) -> None:
    if image.mode not in _MODES:
        raise DataError(
            f"Expected {path.name} to have 8 bits for each colour, got mode {image.mode}; save it "
            "with 8."
        )
    if image.has_transparency_data and image.convert("RGBA").getextrema()[3][0] < 255:
        raise DataError(
            f"Expected {path.name} to be opaque, got transparent pixels, whose colour is anyone's "
            "guess; save it on a background."
        )


def _stack(path: Path, like_shape: tuple[int, ...]) -> tuple[np.ndarray, bool]:
    """Read the examples of an array file, and say whether it is just one without an axis for it."""
    array = _array(path)
    if array.shape == like_shape:
        return array[None], True
    if array.shape[1:] != like_shape or not array.size:
        raise DataError(
            f"Expected {path.name} to hold one example of shape {like_shape} or several along a "
            f"first axis, got shape {array.shape}; prepare it like the training data."
        )
    return array, False


def _array(path: Path) -> np.ndarray:
    if path.suffix.lower() == ".npz":
        arrays, found = read_npz(path, ["x"])
        if "x" not in arrays:
            raise DataError(
                f"Expected {path.name} to hold an array named x, got "
                f"{', '.join(found) or 'no arrays'}; name it x."
            )
        return arrays["x"]
    if path.suffix.lower() != ".npy":
        raise DataError(
            f"Expected files ending in {', '.join(_KINDS)}, got {path.name}; convert it to one of "
            "these."
        )
    with readable(path, ".npy", "numpy.save"), path.open("rb") as file:
        array = np.load(file, allow_pickle=False)
        if not isinstance(array, np.ndarray):
            array.close()
            raise ValueError("an archive of arrays")
        return array


def _check_values(array: np.ndarray, dtype: np.dtype, path: Path) -> None:
    """Refuse values that the training data's dtype does not hold, or holds on another scale."""
    floats, whole = array.dtype.kind == "f", array.dtype.kind in "iu"
    if _is_float(dtype):
        fits = floats or array.dtype == dtype or (whole and array.dtype != np.uint8)
    elif dtype == np.bool_:
        fits = array.dtype == np.bool_
    else:
        limits = np.iinfo(dtype)
        fits = whole and array.min() >= limits.min and array.max() <= limits.max
    if not fits:
        got = str(array.dtype)
        if whole and not _is_float(dtype) and dtype != np.bool_:
            got += f" from {array.min()} to {array.max()}"
        raise DataError(
            f"Expected {path.name} to hold {dtype} on the scale of the training data, got {got}; "
            "convert the values as those were."
        )
    with np.errstate(over="ignore"):
        finite = not _is_float(dtype) or np.all(np.isfinite(array.astype(dtype)))
    if not finite:
        raise DataError(
            f"Expected {path.name} to hold finite {dtype} values, got NaN, infinity or a number "
            "beyond its range; replace them."
        )


def _inverted(array: np.ndarray, path: Path) -> np.ndarray:
    if array.dtype == np.uint8:
        return 255 - array
    if _is_float(array.dtype) and np.all((array >= 0) & (array <= 1)):
        return 1 - array
    raise DataError(
        f"Expected bytes or floats between 0 and 1 to invert in {path.name}, got {array.dtype} "
        f"from {array.min()} to {array.max()}; invert it before, or leave invert out."
    )


def _is_bright(example: np.ndarray) -> bool:
    full = 255 if example.dtype.kind in "iu" else 1
    return bool(np.mean(example, dtype=np.float64) > full / 2)


def _cast(stack: np.ndarray, dtype: np.dtype, scale: bool) -> np.ndarray:
    if scale and _is_float(dtype):
        return (stack.astype(np.float32) / np.float32(255)).astype(dtype)
    return stack.astype(dtype)


def _is_float(dtype: np.dtype) -> bool:
    return dtype.kind == "f" or dtype.name == "bfloat16"


def _warn_of_bright(bright: list[str], invert: bool) -> None:
    change = "leave out" if invert else "give"
    more = f" and {len(bright) - 1} more" if len(bright) > 1 else ""
    warnings.warn(
        f"Expected mostly dark images like the training images, got mostly bright {bright[0]}{more}"
        f"; {change} invert=True (--invert) if dark and bright are swapped.",
        PurefitWarning,
        stacklevel=3,
    )
