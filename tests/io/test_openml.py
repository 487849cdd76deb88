"""Tables from OpenML: a fetcher in place of the real one, and the real one without its network."""

import gzip
import hashlib
import io
import json
import re
import sys
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest

from purefit.errors import DataError, MissingExtraError, PurefitWarning
from purefit.io.openml import openml

sklearn_datasets = pytest.importorskip("sklearn.datasets")


def sentence(raised):
    text = str(raised.value)
    assert re.fullmatch(r"Expected (?!.*\.\s+[A-Z]).*got .*; .+\.", text), text
    return text


@pytest.fixture
def serve(monkeypatch):
    """Let `fetch_openml` give a table, or raise; what it was asked for is kept in `asked`."""

    def serve(data=None, target=None, categories=None, raises=None):
        def fetch(name, **options):
            serve.asked = {"name": name, **options}
            if raises is not None:
                raise raises
            names = [f"c{i}" for i in range(data.shape[1])]
            return SimpleNamespace(
                data=data, target=target, categories=categories or {}, feature_names=names
            )

        monkeypatch.setattr(sklearn_datasets, "fetch_openml", fetch)

    return serve


def labels(*values):
    return np.array(values, dtype=object)


def test_numbers_become_float32(serve):
    values = np.linspace(-1, 1, 80).reshape(20, 4)
    serve(values, labels(*"ab" * 10))
    made = openml("small")
    assert made.name == "small"
    assert made.classes == ("a", "b")
    assert made.train.x.shape == (16, 4)
    assert made.test.x.shape == (4, 4)
    assert made.train.x.dtype == np.float32
    assert made.train.y.dtype == np.int32
    rows = np.concatenate([made.train.x, made.test.x])
    assert np.array_equal(np.sort(rows[:, 0]), values[:, 0].astype(np.float32))


def test_every_row_keeps_its_target(serve):
    serve(np.arange(50.0)[:, None], labels(*["even", "odd"] * 25))
    made = openml("small")
    for part in (made.train, made.test):
        assert np.array_equal(part.x[:, 0] % 2, part.y)


def test_the_split_is_stratified_and_the_same_each_time(serve):
    serve(np.arange(100.0)[:, None], labels(*["rare"] * 10 + ["usual"] * 90))
    first, second = openml("small"), openml("small")
    assert np.bincount(first.train.y).tolist() == [8, 72]
    assert np.bincount(first.test.y).tolist() == [2, 18]
    assert np.array_equal(first.train.x, second.train.x)


def test_the_arrays_are_read_only(serve):
    serve(np.arange(10.0)[:, None], labels(*"ab" * 5))
    assert not any(leaf.flags.writeable for leaf in openml("small").train)


def test_pandas_is_never_asked_for(serve):
    serve(np.arange(10.0)[:, None], labels(*"ab" * 5))
    openml("small")
    assert serve.asked["as_frame"] is False
    assert serve.asked["parser"] == "liac-arff"


def test_a_version_is_handed_on(serve):
    serve(np.arange(10.0)[:, None], labels(*"ab" * 5))
    assert openml("adult:2").name == "adult"
    assert (serve.asked["name"], serve.asked["version"]) == ("adult", 2)
    openml("adult")
    assert (serve.asked["name"], serve.asked["version"]) == ("adult", "active")


@pytest.mark.parametrize("name", ["", ":2", "adult:", "adult:two", "adult:0", "adult:-1", "a:1:2"])
def test_a_name_written_wrongly(serve, name):
    with pytest.raises(DataError) as raised:
        openml(name)
    assert repr(name) in sentence(raised)


def test_missing_numbers_become_the_median_of_the_training_rows(serve):
    values = np.arange(100.0) ** 2
    values[:41] = np.nan
    place = np.arange(100.0)
    serve(np.stack([place, values], axis=1), labels(*"ab" * 50))
    made = openml("small")
    train = values[made.train.x[:, 0].astype(int)]
    median = np.float32(np.nanmedian(train))
    assert median != np.float32(np.nanmedian(values))
    for part in (made.train, made.test):
        was = values[part.x[:, 0].astype(int)]
        assert np.array_equal(part.x[:, 1], np.where(np.isnan(was), median, was))


def test_a_column_with_no_value_at_all_becomes_zero(serve):
    serve(np.full((10, 1), np.nan), labels(*"ab" * 5))
    assert not openml("small").train.x.any()


def test_categories_become_columns_of_the_training_rows(serve):
    codes = np.array([0.0, 1.0, 2.0, np.nan] * 5)
    serve(np.stack([np.arange(20.0), codes], axis=1), np.arange(20.0), {"c1": ["a", "b", "c"]})
    made = openml("small")
    assert made.train.x.shape == (16, 5)
    assert made.train.x.dtype == np.float32
    for part in (made.train, made.test):
        assert np.array_equal(part.x[:, 1:].argmax(1), part.x[:, 0].astype(int) % 4)
        assert (part.x[:, 1:].sum(1) == 1).all()


def test_a_category_only_among_the_test_rows_has_no_column(serve):
    number = np.arange(20.0)
    serve(number[:, None], number)
    alone = openml("small").test.x[0, 0]
    serve(np.stack([number, number == alone], axis=1), number, {"c1": ["no", "yes"]})
    made = openml("small")
    assert made.train.x.shape == (16, 2)
    assert made.test.x[made.test.x[:, 0] == alone, 1] == 0


def test_number_targets_become_float32_columns(serve):
    serve(np.arange(20.0)[:, None], np.arange(20.0))
    made = openml("small")
    assert made.classes is None
    assert made.train.y.shape == (16, 1)
    assert made.train.y.dtype == np.float32
    assert np.array_equal(made.train.x, made.train.y)


def test_several_number_targets(serve):
    serve(np.arange(20.0)[:, None], np.ones((20, 3)))
    assert openml("small").test.y.shape == (4, 3)


def test_classes_that_are_numbers_keep_their_order(serve):
    serve(np.arange(24.0)[:, None], labels(*["10", "2", "1"] * 8))
    made = openml("small")
    assert made.classes == ("1", "2", "10")
    assert np.array_equal(made.train.y, np.array([2, 1, 0])[made.train.x[:, 0].astype(int) % 3])


def images(rows, columns):
    return np.random.default_rng(0).integers(0, 256, (rows, columns)).astype(np.float64)


def test_brightness_stays_bytes(serve):
    values = images(10, 64)
    serve(values, labels(*"ab" * 5))
    made = openml("optdigits")
    assert made.train.x.shape == (8, 64)
    assert made.train.x.dtype == np.uint8
    rows = np.concatenate([made.train.x, made.test.x])
    assert sorted(map(tuple, rows)) == sorted(map(tuple, values))


@pytest.mark.parametrize("name", ["mnist_784", "Fashion-MNIST", "mnist_rotated"])
def test_brightness_of_mnist_is_square(serve, name):
    values = images(10, 784)
    serve(values, labels(*"01" * 5))
    rows = np.concatenate([openml(name).train.x, openml(name).test.x])
    assert rows.shape == (10, 28, 28)
    assert rows.dtype == np.uint8
    assert sorted(map(tuple, rows.reshape(10, -1))) == sorted(map(tuple, values))


@pytest.mark.parametrize("case", ["few", "fraction", "negative", "large", "missing"])
def test_other_numbers_are_no_brightness(serve, case):
    values = images(10, 63 if case == "few" else 64)
    bad = {"fraction": 0.5, "negative": -1.0, "large": 256.0, "missing": np.nan}
    values[3, 4] = bad.get(case, 7.0)
    serve(values, labels(*"ab" * 5))
    assert openml("small").train.x.dtype == np.float32


@pytest.mark.parametrize("name", ["mnist_784", "Fashion-MNIST"])
def test_the_published_split(serve, name):
    values = np.zeros((70_000, 64))
    values[:, 0], values[:, 1] = np.divmod(np.arange(70_000), 256)
    values[:, 0] %= 256
    serve(values, labels(*["0", "1"] * 35_000))
    made = openml(name)
    assert len(made.train.x) == 60_000
    assert len(made.test.x) == 10_000
    every = np.concatenate([made.train.x, made.test.x]).reshape(-1, 64)
    assert np.array_equal(every, values)


def test_a_class_of_one_row_warns_and_splits(serve):
    serve(np.arange(20.0)[:, None], labels(*["a"] * 19 + ["b"]))
    with pytest.warns(PurefitWarning, match="drawn without regard to classes"):
        made = openml("small")
    assert len(made.train.x) == 16
    assert made.classes == ("a", "b")


@pytest.mark.parametrize("target", [labels("a"), np.ones(1)], ids=["class", "number"])
def test_a_single_row_is_refused(serve, target):
    serve(np.ones((1, 2)), target)
    with pytest.raises(DataError) as raised:
        openml("small")
    assert "got 1" in sentence(raised)


def test_no_target_is_refused(serve):
    serve(np.ones((10, 2)), None)
    with pytest.raises(DataError) as raised:
        openml("small")
    assert "got none" in sentence(raised)


def test_several_class_targets_are_refused(serve):
    serve(np.ones((10, 2)), np.full((10, 6), "yes", dtype=object))
    with pytest.raises(DataError) as raised:
        openml("small")
    assert "6 columns of categories" in sentence(raised)


def test_a_sparse_table_is_refused(serve):
    sparse = pytest.importorskip("scipy.sparse")
    serve(sparse.csr_matrix(np.eye(4)), np.ones(4))
    with pytest.raises(DataError) as raised:
        openml("dexter")
    assert "sparse" in sentence(raised)
    assert "toarray" in str(raised.value)


@pytest.mark.parametrize(
    "error",
    [URLError("no route"), TimeoutError("timed out"), ConnectionResetError(), OSError("disk full")],
    ids=lambda error: type(error).__name__,
)
def test_no_network(serve, error):
    serve(raises=error)
    with pytest.raises(DataError) as raised:
        openml("adult")
    assert "'adult'" in sentence(raised)
    assert "go online" in str(raised.value)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("No active dataset nope found."),
        ValueError("STRING attributes are not supported. Try as_frame=True"),
        KeyError("data"),
        Exception("Bad @DATA at line 7."),
    ],
    ids=["unknown", "strings", "answer", "parser"],
)
def test_an_unknown_or_unreadable_table(serve, error):
    serve(raises=error)
    with pytest.raises(DataError) as raised:
        openml("nope:7")
    assert "'nope'" in sentence(raised)
    assert "openml.org" in str(raised.value)


@pytest.mark.parametrize("missing", ["sklearn", "sklearn.datasets"])
def test_without_scikit_learn(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtraError) as raised:
        openml("adult")
    assert "pip install 'purefit[data]'" in sentence(raised)


ARFF = b"""@RELATION weather
@ATTRIBUTE outlook {sunny,overcast,rainy}
@ATTRIBUTE temperature NUMERIC
@ATTRIBUTE play {yes,no}
@DATA
""" + b"".join(b"sunny,%d,no\nrainy,?,yes\n?,%d,yes\n" % (i, i) for i in range(20))


def answers(url):
    """Give what openml.org would, for a table of 60 rows, two columns and a target."""
    kinds = [("outlook", "nominal"), ("temperature", "numeric"), ("play", "nominal")]
    features = [
        {
            "index": str(i),
            "name": name,
            "data_type": kind,
            "is_target": str(name == "play").lower(),
            "is_ignore": "false",
            "is_row_identifier": "false",
            "number_of_missing_values": "0",
        }
        for i, (name, kind) in enumerate(kinds)
    ]
    description = {
        "id": "7",
        "name": "weather",
        "version": "1",
        "format": "ARFF",
        "status": "active",
        "url": "https://api.openml.org/data/v1/download/7/weather.arff",
        "file_id": "7",
        "md5_checksum": hashlib.md5(ARFF).hexdigest(),
        "description": "Weather.",
    }
    listing = [{"did": 7, "name": "weather", "version": 1, "status": "active"}]
    if "/data/list/" in url:
        return {"data": {"dataset": listing}}
    if "/data/features/" in url:
        return {"data_features": {"feature": features}}
    if "/data/qualities/" in url:
        return {"data_qualities": {"quality": [{"name": "NumberOfInstances", "value": "60"}]}}
    return {"data_set_description": description}


def test_the_real_fetcher_on_answers_like_openml(monkeypatch, tmp_path):
    def urlopen(request, *_, **__):
        url = request.full_url
        body = ARFF if url.endswith(".arff") else json.dumps(answers(url)).encode()
        reply = io.BytesIO(gzip.compress(body))
        reply.info = lambda: {"Content-Encoding": "gzip"}
        return reply

    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    monkeypatch.setattr("sklearn.datasets._openml.urlopen", urlopen)
    made = openml("weather")
    assert made.classes == ("no", "yes")
    rows = np.concatenate([made.train.x, made.test.x])
    assert rows.shape == (60, 4)
    assert rows[:, 1:].sum(axis=0).tolist() == [20, 20, 20]
    assert np.array_equal(made.train.y == 0, made.train.x[:, 1] == 1)


def test_the_real_fetcher_without_a_network(monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise URLError("Name or service not known")

    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    monkeypatch.setattr("sklearn.datasets._openml.urlopen", refuse)
    monkeypatch.setattr("sklearn.datasets._openml.time.sleep", lambda seconds: None)
    with pytest.raises(DataError) as raised:
        openml("adult:2")
    assert "Name or service not known" in sentence(raised)
    assert "go online" in str(raised.value)
