"""Which program takes which step depends on the settings alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purefit.core.batches import batching
from purefit.loop.programs import pieces

MODES = ("scan", "unroll", "step")


def taken(found):
    """List the batches that pieces take, with the program that takes each."""
    return [(piece.first + i, piece.program) for piece in found for i in range(piece.batches)]


@given(
    st.sampled_from(MODES),
    st.integers(1, 400),
    st.integers(1, 40),
    st.integers(1, 9),
    st.data(),
)
def test_pieces_take_each_batch_once_and_in_order(mode, examples, size, unroll, data):
    batches = batching(examples, size)
    first = data.draw(st.integers(0, batches.steps - 1))
    count = data.draw(st.integers(1, batches.steps - first))
    found = taken(pieces(mode, batches, unroll, first, count))
    assert [batch for batch, _ in found] == list(range(first, first + count))
    for batch, program in found:
        assert (program == "short") == (batch >= batches.full)


@given(st.sampled_from(MODES), st.integers(8, 300), st.integers(1, 9), st.data())
def test_cuts_at_multiples_of_the_unrolling_change_no_program(mode, steps, unroll, data):
    batches = batching(steps * 4, 4)
    whole = taken(pieces(mode, batches, unroll, 0, steps))
    cut = data.draw(st.integers(0, steps // unroll)) * unroll
    halves = [
        *taken(pieces(mode, batches, unroll, 0, cut)),
        *taken(pieces(mode, batches, unroll, cut, steps - cut)),
    ]
    assert halves == whole


@given(st.integers(8, 300), st.integers(2, 9), st.data())
def test_after_a_cut_anywhere_the_blocks_fall_back_into_place(steps, unroll, data):
    batches = batching(steps * 4, 4)
    cut = data.draw(st.integers(0, steps - 1))
    place = -(-cut // unroll) * unroll
    whole = taken(pieces("unroll", batches, unroll, 0, steps))
    after = taken(pieces("unroll", batches, unroll, cut, steps - cut))
    assert after[place - cut :] == whole[place:]


@pytest.mark.parametrize(("mode", "programs"), [("scan", 1), ("unroll", 5), ("step", 12)])
def test_a_segment_takes_few_calls(mode, programs):
    assert len(list(pieces(mode, batching(100, 8), 8, 0, 12))) == programs
