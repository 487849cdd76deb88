"""Examples to predict on, from images and arrays, and what is refused."""

import re
import sys

import numpy as np
import pytest
from jax.numpy import bfloat16

from purefit.errors import DataError, MissingExtraError, PurefitWarning
from purefit.io.images import read_examples

Image = pytest.importorskip("PIL.Image")

GREY = np.random.default_rng(0).integers(0, 256, (6, 4), dtype=np.uint8)
COLOUR = np.random.default_rng(1).integers(0, 256, (6, 4, 3), dtype=np.uint8)
HALF = np.linspace(0, 1, 24, dtype=np.float32).reshape(6, 4)


def sentence(raised):
    text = str(raised.value)
    assert re.fullmatch(r"Expected (?!.*\.\s+[A-Z]).*got .*; .+\.", text), text
    return text


def image(path, pixels, **options):
    Image.fromarray(pixels).save(path, **options)
    return path


def array(path, values):
    np.save(path, values)
    return path


def refused(paths, like_shape=(6, 4), dtype="uint8", **options):
    with pytest.raises(DataError) as raised:
        read_examples(paths if isinstance(paths, list) else [paths], like_shape, dtype, **options)
    return sentence(raised)


def test_a_grey_png_keeps_its_bytes(tmp_path):
    names, read = read_examples([image(tmp_path / "seven.png", GREY)], (6, 4), "uint8")
    assert names == ["seven.png"]
    assert read.dtype == np.uint8
    assert np.array_equal(read, GREY[None])


def test_a_grey_png_for_one_channel(tmp_path):
    _, read = read_examples([image(tmp_path / "a.PNG", GREY)], (6, 4, 1), "uint8")
    assert np.array_equal(read, GREY[None, :, :, None])


def test_a_colour_png(tmp_path):
    _, read = read_examples([str(image(tmp_path / "a.png", COLOUR))], (6, 4, 3), "uint8")
    assert np.array_equal(read, COLOUR[None])


def test_a_colour_png_for_a_grey_model(tmp_path):
    _, read = read_examples([image(tmp_path / "a.png", COLOUR)], (6, 4), "uint8")
    luma = COLOUR @ np.array([0.299, 0.587, 0.114])
    assert np.abs(read[0] - luma).max() <= 1


def test_a_grey_png_for_a_colour_model(tmp_path):
    _, read = read_examples([image(tmp_path / "a.png", GREY)], (6, 4, 3), "uint8")
    assert np.array_equal(read[0], np.repeat(GREY[:, :, None], 3, axis=2))


@pytest.mark.parametrize("suffix", ["jpg", "jpeg"])
def test_a_jpeg(tmp_path, suffix):
    flat = np.full((6, 4), 77, np.uint8)
    _, read = read_examples([image(tmp_path / f"a.{suffix}", flat)], (6, 4), "uint8")
    assert np.abs(read[0].astype(int) - 77).max() <= 1


def test_a_jpeg_is_turned_upright(tmp_path):
    lying = np.zeros((16, 32), np.uint8)
    lying[:, :16] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # turn a quarter clockwise to see it upright
    path = image(tmp_path / "a.jpg", lying, exif=exif, quality=95)
    _, read = read_examples([path], (32, 16), "uint8")
    assert read[0, :14].mean() > 250
    assert read[0, -14:].mean() < 5


def test_an_opaque_alpha_channel_is_dropped(tmp_path):
    pixels = np.dstack([COLOUR, np.full((6, 4), 255, np.uint8)])
    _, read = read_examples([image(tmp_path / "a.png", pixels)], (6, 4, 3), "uint8")
    assert np.array_equal(read[0], COLOUR)


@pytest.mark.parametrize("dtype", ["float32", "float16", bfloat16])
def test_an_image_for_data_of_floats_is_scaled(tmp_path, dtype):
    _, read = read_examples([image(tmp_path / "a.png", GREY)], (6, 4), dtype)
    assert read.dtype == np.dtype(dtype)
    assert np.array_equal(read[0], (GREY / np.float32(255)).astype(dtype))


def test_an_image_for_data_of_integers_keeps_its_values(tmp_path):
    _, read = read_examples([image(tmp_path / "a.png", GREY)], (6, 4), "int32")
    assert read.dtype == np.int32
    assert np.array_equal(read[0], GREY)


def test_images_and_arrays_stack_in_order(tmp_path):
    stack = np.stack([GREY, 255 - GREY])
    np.savez(tmp_path / "c.npz", x=stack, y=np.ones(2))
    paths = [
        image(tmp_path / "a.png", GREY),
        array(tmp_path / "b.npy", stack),
        tmp_path / "c.npz",
        array(tmp_path / "d.npy", GREY),
    ]
    names, read = read_examples(paths, (6, 4), "uint8")
    assert names == ["a.png", "b.npy[0]", "b.npy[1]", "c.npz[0]", "c.npz[1]", "d.npy"]
    assert np.array_equal(read, np.stack([GREY, *stack, *stack, GREY]))


def test_an_array_of_any_shape(tmp_path):
    rows = np.arange(10, dtype=np.float64).reshape(2, 5)
    names, read = read_examples([array(tmp_path / "a.npy", rows)], (5,), "float32")
    assert names == ["a.npy[0]", "a.npy[1]"]
    assert read.dtype == np.float32
    assert np.array_equal(read, rows)
    _, one = read_examples([array(tmp_path / "b.npy", rows[0])], (5,), "float32")
    assert np.array_equal(one, rows[:1])


def test_an_array_of_numbers_without_axes(tmp_path):
    names, read = read_examples([array(tmp_path / "a.npy", np.arange(3.0))], (), "float32")
    assert names == ["a.npy[0]", "a.npy[1]", "a.npy[2]"]
    assert read.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [(GREY.astype(np.int64), "uint8"), (GREY.astype(np.int16), "float32"), (GREY > 9, "bool")],
    ids=["int64 to uint8", "int16 to float32", "bool"],
)
def test_array_values_that_the_dtype_holds(tmp_path, values, dtype):
    _, read = read_examples([array(tmp_path / "a.npy", values)], (6, 4), dtype)
    assert read.dtype == dtype
    assert np.array_equal(read[0], values)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (HALF, "uint8"),
        (GREY.astype(np.float32), "uint8"),
        (GREY.astype(np.int64) + 200, "uint8"),
        (GREY.astype(np.int64) - 200, "uint8"),
        (GREY, "float32"),
        (GREY > 9, "uint8"),
        (GREY > 9, "float32"),
        (GREY, "bool"),
        (HALF, "int32"),
        (HALF.astype(np.complex64), "float32"),
        (np.full((6, 4), "7"), "float32"),
        (np.full((6, 4), np.nan, np.float32), "float32"),
        (np.full((6, 4), np.inf, np.float32), "float32"),
        (np.full((6, 4), 1e300), "float32"),
        (np.full((6, 4), 1e6), "float16"),
    ],
    ids=[
        "floats in [0, 1] to uint8",
        "floats to uint8",
        "beyond uint8",
        "below uint8",
        "uint8 to floats",
        "bool to uint8",
        "bool to floats",
        "uint8 to bool",
        "floats to int32",
        "complex",
        "text",
        "NaN",
        "infinity",
        "beyond float32",
        "beyond float16",
    ],
)
def test_array_values_that_do_not_fit(tmp_path, values, dtype):
    text = refused(array(tmp_path / "a.npy", values), dtype=dtype)
    assert "a.npy" in text
    assert dtype in text


@pytest.mark.parametrize(
    "shape", [(4, 6), (6, 4, 1), (2, 4, 6), (2, 2, 6, 4), (24,), (), (0, 6, 4)]
)
def test_an_array_of_another_shape(tmp_path, shape):
    text = refused(array(tmp_path / "a.npy", np.zeros(shape, np.uint8)))
    assert "(6, 4)" in text
    assert f"got shape {shape}" in text


def test_another_size_is_refused_with_both_sizes(tmp_path):
    text = refused(image(tmp_path / "a.png", GREY), (28, 28))
    assert "28 x 28" in text
    assert "4 x 6" in text
    assert "resize=True" in text


def test_another_size_is_resampled_when_asked_for(tmp_path):
    big = np.repeat(np.repeat(GREY, 8, axis=0), 8, axis=1)
    _, read = read_examples([image(tmp_path / "a.png", big)], (6, 4), "uint8", resize=True)
    assert read.shape == (1, 6, 4)
    assert np.corrcoef(read.ravel(), GREY.ravel())[0, 1] > 0.9
    _, same = read_examples([image(tmp_path / "b.png", GREY)], (6, 4), "uint8", resize=True)
    assert np.array_equal(same[0], GREY)


@pytest.mark.parametrize("like_shape", [(784,), (), (6, 4, 2), (6, 4, 4), (2, 6, 4, 3)])
def test_an_image_for_a_model_of_something_else(tmp_path, like_shape):
    text = refused(image(tmp_path / "a.png", GREY), like_shape)
    assert str(like_shape) in text
    assert ".npy" in text


def test_sixteen_bits_are_refused(tmp_path):
    deep = GREY.astype(np.uint16) * 257
    assert "8 bits" in refused(image(tmp_path / "a.png", deep))


@pytest.mark.parametrize("like_shape", [(6, 4), (6, 4, 3)])
def test_transparent_pixels_are_refused(tmp_path, like_shape):
    pixels = np.dstack([COLOUR, GREY])
    assert "opaque" in refused(image(tmp_path / "a.png", pixels), like_shape)


def test_a_missing_file(tmp_path):
    for name in ("a.png", "a.npy", "a.npz"):
        assert f"{name}, got nothing there" in refused(tmp_path / name)


def test_a_folder(tmp_path):
    for name in ("a.png", "a.npy", "a.npz"):
        (tmp_path / name).mkdir()
        assert f"{name}, got a folder" in refused(tmp_path / name)
    assert ".png" in refused(tmp_path)


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.npy", "a.npz"])
@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x89PNG\r\n\x1a\n", b"\x93NUMPY\x01\x00"])
def test_a_file_of_another_kind(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert name in refused(tmp_path / name)


def test_an_image_of_another_format(tmp_path):
    image(tmp_path / "a.gif", GREY)
    (tmp_path / "a.gif").rename(tmp_path / "a.png")
    assert "GIF" in refused(tmp_path / "a.png")


@pytest.mark.parametrize("name", ["a.png", "a.jpg"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.8])
def test_a_truncated_image(tmp_path, name, share):
    pixels = np.random.default_rng(2).integers(0, 256, (64, 64), dtype=np.uint8)
    whole = image(tmp_path / name, pixels).read_bytes()
    (tmp_path / name).write_bytes(whole[: int(len(whole) * share)])
    assert name in refused(tmp_path / name, (64, 64))


def test_a_picture_larger_than_any_screen_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    assert "a.png" in refused(image(tmp_path / "a.png", GREY))


def test_a_truncated_array(tmp_path):
    whole = array(tmp_path / "a.npy", GREY).read_bytes()
    (tmp_path / "a.npy").write_bytes(whole[:-3])
    assert "whole .npy file" in refused(tmp_path / "a.npy")


def test_an_array_of_objects(tmp_path):
    np.save(tmp_path / "a.npy", np.array([None] * 24, dtype=object).reshape(6, 4))
    assert "Python objects" in refused(tmp_path / "a.npy")


def test_an_archive_by_the_name_of_an_array(tmp_path):
    np.savez(tmp_path / "a.npz", x=GREY)
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    assert "archive" in refused(tmp_path / "a.npy")


def test_an_archive_without_x(tmp_path):
    np.savez(tmp_path / "a.npz", images=GREY)
    assert "got images" in refused(tmp_path / "a.npz")


def test_another_ending(tmp_path):
    (tmp_path / "a.txt").write_text("7")
    assert ".png, .jpg, .jpeg, .npy, .npz" in refused(tmp_path / "a.txt")


def test_no_files():
    assert "got none" in refused([])


def test_inverting_bytes_and_floats(tmp_path):
    picture = image(tmp_path / "a.png", GREY)
    _, read = read_examples([picture], (6, 4), "uint8", invert=True)
    assert np.array_equal(read[0], 255 - GREY)
    _, read = read_examples([picture], (6, 4), "float32", invert=True)
    assert np.array_equal(read[0], (255 - GREY) / np.float32(255))
    _, read = read_examples([array(tmp_path / "b.npy", HALF)], (6, 4), "float32", invert=True)
    assert np.array_equal(read[0], 1 - HALF)


@pytest.mark.parametrize("values", [HALF * 2, HALF - 1, GREY.astype(np.int32)])
def test_inverting_what_has_no_scale(tmp_path, values):
    text = refused(array(tmp_path / "a.npy", values), dtype="float32", invert=True)
    assert "invert" in text


WHITE = np.full((6, 4), 250, np.uint8)


def test_bright_examples_for_a_dark_model_warn(tmp_path):
    path = image(tmp_path / "paper.png", WHITE)
    with pytest.warns(PurefitWarning, match=r"paper\.png; give .*--invert") as caught:
        read_examples([path], (6, 4), "uint8", dark=True)
    assert len(caught) == 1


def test_several_bright_examples_warn_once(tmp_path):
    path = array(tmp_path / "a.npy", np.stack([WHITE, 255 - WHITE, WHITE]) / np.float32(255))
    with pytest.warns(PurefitWarning, match=r"a\.npy\[0\] and 1 more") as caught:
        read_examples([path], (6, 4), "float32", dark=True)
    assert len(caught) == 1


def test_an_inversion_too_many_warns(tmp_path):
    path = image(tmp_path / "a.png", 255 - WHITE)
    with pytest.warns(PurefitWarning, match="leave out invert=True"):
        read_examples([path], (6, 4), "uint8", dark=True, invert=True)


def test_no_warning_where_nothing_is_wrong(tmp_path):
    bright = image(tmp_path / "a.png", WHITE)
    read_examples([bright], (6, 4), "uint8")
    read_examples([bright], (6, 4), "uint8", dark=True, invert=True)
    read_examples([image(tmp_path / "b.png", 255 - WHITE)], (6, 4), "uint8", dark=True)


def test_without_pillow(tmp_path, monkeypatch):
    path = image(tmp_path / "a.png", GREY)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError) as raised:
        read_examples([path], (6, 4), "uint8")
    assert "pip install 'purefit[data]'" in sentence(raised)
