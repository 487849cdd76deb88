"""Tables from OpenML, fetched, encoded and split by scikit-learn."""

import math
import warnings
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from purefit.core.types import Data
from purefit.errors import DataError, MissingExtraError, PurefitWarning
from purefit.io.datasets import Dataset, reason

__all__ = ["openml"]

_PUBLISHED_SPLIT = {"mnist_784": 60_000, "fashion-mnist": 60_000}
_IMAGES = ("mnist", "fashion-mnist")
_FEWEST_PIXELS = 64


def openml(name: str) -> Dataset:
    """Fetch a data set from openml.org, or from scikit-learn's cache of it.

    Columns of numbers become float32, missing values the median of the training rows. Columns of
    categories become one column for each category among the training rows. Where there are at
    least 64 columns, all of whole numbers from 0 to 255, they are taken for brightness and stay
    uint8; for MNIST and Fashion-MNIST, `[n, 28, 28]`. Nothing is standardised.

    Args:
        name: Its name there, such as `"adult"`, or name and version, `"adult:2"`.

    Returns:
        For `mnist_784` and `Fashion-MNIST` the first 60,000 rows to train on and the last 10,000
        to test on; for others 80 % and 20 %, drawn with seed 0 and, for classes, in equal
        proportions. Classes are `int32[n]`, other targets `float32[n, k]`.

    Raises:
        DataError: There is no such data set, no network, or the table is of an unsupported kind.
        MissingExtraError: scikit-learn is not installed.
    """
    sklearn = _sklearn()
    name, version = _parse(name)
    table = _fetch(sklearn, name, version)
    targets, classes = _targets(table.target, name)
    train, test = _split(sklearn, name, targets, classes)
    columns = _encode(sklearn, table, name, train)
    data = [Data(columns[rows], targets[rows]) for rows in (train, test)]
    for leaf in (leaf for part in data for leaf in part):
        leaf.setflags(write=False)
    return Dataset(name, data[0], data[1], classes)


def _sklearn() -> ModuleType:
    try:
        import sklearn  # noqa: PLC0415
        import sklearn.compose  # noqa: PLC0415
        import sklearn.datasets  # noqa: PLC0415
        import sklearn.impute  # noqa: PLC0415
        import sklearn.model_selection  # noqa: PLC0415
        import sklearn.preprocessing  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError(
            "Expected scikit-learn for data sets from OpenML, got no such package; do "
            "pip install 'purefit[data]'."
        ) from error
    return sklearn


def _parse(name: str) -> tuple[str, int | str]:
    bare, colon, version = name.partition(":")
    if not bare or (colon and not (version.isdecimal() and int(version) > 0)):
        raise DataError(
            f"Expected a name on OpenML as in 'adult', or with its version as in 'adult:2', got "
            f"{name!r}; write it like that."
        )
    return bare, int(version) if version else "active"


def _fetch(sklearn: Any, name: str, version: int | str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="A network error|Invalid cache")
            # This parser is slower than pandas' but does without pandas.
            table = sklearn.datasets.fetch_openml(
                name, version=version, as_frame=False, parser="liac-arff", n_retries=1
            )
    except OSError as error:
        raise DataError(
            f"Expected openml.org, or a copy in the cache, to give {name!r}, got {reason(error)}; "
            "go online for the first time, or load the data from an .npz file."
        ) from error
    except Exception as error:  # The fetcher's parsers raise exceptions of their own.
        raise DataError(
            f"Expected a table of numbers and categories named {name!r} on OpenML, got "
            f"{reason(error)}; choose its name and version on openml.org."
        ) from error
    if not isinstance(table.data, np.ndarray):
        raise DataError(
            f"Expected a dense table from OpenML, got {name!r}, which is sparse; fetch it with "
            "scikit-learn and give the result of toarray()."
        )
    return table


def _targets(target: Any, name: str) -> tuple[np.ndarray, tuple[str, ...] | None]:
    if target is None or (target.dtype.kind not in "fiu" and target.ndim != 1):
        got = "none" if target is None else f"{target.shape[1]} columns of categories"
        raise DataError(
            f"Expected {name!r} on OpenML to have one column of classes or columns of numbers as "
            f"its target, got {got}; choose another table, or prepare an .npz file."
        )
    if target.dtype.kind in "fiu":
        return target.reshape(target.shape[0], -1).astype(np.float32), None
    names, numbers = np.unique(target.astype(str), return_inverse=True)
    order = list(range(len(names)))
    if all(label.isdecimal() for label in names):
        order.sort(key=lambda i: int(names[i]))
    place = np.argsort(order)
    return place[numbers].astype(np.int32), tuple(str(names[i]) for i in order)


def _split(
    sklearn: Any, name: str, targets: np.ndarray, classes: Sequence[str] | None
) -> tuple[np.ndarray, np.ndarray]:
    rows = np.arange(len(targets))
    first = _PUBLISHED_SPLIT.get(name.lower())
    if first is not None and len(rows) == first + 10_000:
        return rows[:first], rows[first:]
    split = sklearn.model_selection.train_test_split
    try:
        return split(rows, test_size=0.2, random_state=0, stratify=targets if classes else None)
    except ValueError as error:
        if not classes or len(rows) < 2:
            raise DataError(
                f"Expected {name!r} on OpenML to have rows enough to split, got {len(rows)}; "
                "choose another table."
            ) from error
        warnings.warn(
            f"Expected every class of {name!r} to be large enough for equal proportions in both "
            f"parts, got {reason(error)}; the parts are drawn without regard to classes.",
            PurefitWarning,
            stacklevel=3,
        )
        return split(rows, test_size=0.2, random_state=0)


def _encode(sklearn: Any, table: Any, name: str, train: np.ndarray) -> np.ndarray:
    categories: Mapping[str, Any] = table.categories or {}
    values = table.data
    if not categories and _is_bytes(values):
        side = math.isqrt(values.shape[1])
        image = name.lower().startswith(_IMAGES) and side * side == values.shape[1]
        return values.reshape(-1, side, side).astype(np.uint8) if image else values.astype(np.uint8)
    nominal = [i for i, column in enumerate(table.feature_names) if column in categories]
    numeric = [i for i in range(values.shape[1]) if i not in set(nominal)]
    median = sklearn.impute.SimpleImputer(strategy="median", keep_empty_features=True)
    encoder = sklearn.compose.ColumnTransformer(
        [
            ("numeric", median, numeric),
            ("nominal", sklearn.preprocessing.OneHotEncoder(handle_unknown="ignore"), nominal),
        ],
        sparse_threshold=0,
    )
    return np.asarray(encoder.fit(values[train]).transform(values), np.float32)


def _is_bytes(values: np.ndarray) -> bool:
    if values.shape[1] < _FEWEST_PIXELS:
        return False
    return bool(np.all((values >= 0) & (values <= 255) & (values == np.floor(values))))
