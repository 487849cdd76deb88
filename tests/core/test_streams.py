"""Streams: one for each use, none disturbed by another."""

import jax
import numpy as np

from purefit.core.streams import Stream, stream


def bits(key):
    return np.asarray(jax.random.key_data(key)).tolist()


def test_uses_and_indices_have_streams_of_their_own():
    key = jax.random.key(7)
    seen = {tuple(bits(stream(key, use, index))) for use in Stream for index in range(50)}
    assert len(seen) == 50 * len(Stream)


def test_the_numbers_of_the_uses_never_change():
    # Saved runs rely on them: changing one changes every bit of a resumed run.
    assert {use.name: use.value for use in Stream} == {"INIT": 0, "ORDER": 1, "MODEL": 2}


def test_a_stream_is_two_folds_by_number():
    key = jax.random.key(3)
    expected = jax.random.fold_in(jax.random.fold_in(key, 1), 5)
    assert bits(stream(key, Stream.ORDER, 5)) == bits(expected)


def test_a_traced_index_gives_the_same_key():
    key = jax.random.key(0)
    traced = jax.jit(lambda index: stream(key, Stream.MODEL, index))(np.int32(9))
    assert bits(traced) == bits(stream(key, Stream.MODEL, 9))
