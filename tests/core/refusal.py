"""How a refusal is looked at."""

import re

import pytest

from purefit.errors import DataError


def refused(function, *arguments, error=DataError):
    with pytest.raises(error) as raised:
        function(*arguments)
    text = str(raised.value)
    assert re.fullmatch(r"Expected (?!.*\.\s+[A-Z]).*got .*; .+\.", text), text
    return text
