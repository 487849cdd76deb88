"""The tally of an epoch does not depend on how the epoch was cut."""

import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from purefit.core.metrics import Mean
from purefit.loop.record import Tally, as_columns


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40), st.data())
def test_cuts_and_interruptions_change_no_bit(totals, data):
    rows = Mean(np.float32(totals), np.full(len(totals), 3))
    whole = Tally()
    whole.add({"loss": rows})
    cut = data.draw(st.integers(0, len(totals)))
    first = Tally()
    first.add({"loss": Mean(rows.total[:cut], rows.count[:cut])})
    again = Tally(first.sums)
    again.add({"loss": Mean(rows.total[cut:], rows.count[cut:])})
    assert again.means("train_") == whole.means("train_")


def test_only_the_filled_rows_count():
    tally = Tally()
    tally.add({"loss": Mean(jnp.array([1.0, 2.0, 99.0]), jnp.array([1, 1, 1]))}, rows=2)
    assert tally.means("") == {"loss": 1.5}


def test_the_loss_comes_first():
    one = Mean(jnp.array(1.0), jnp.array(1))
    tally = Tally()
    tally.add({"accuracy": one, "loss": one, "a": one})
    assert list(tally.means("")) == ["loss", "a", "accuracy"]


def test_rows_become_columns():
    columns = as_columns([{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}])
    assert columns["epoch"].tolist() == [1, 2]
    assert columns["loss"].tolist() == [0.5, 0.25]
    assert as_columns([]) == {}
