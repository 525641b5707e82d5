"""Variants of a test, of which CI runs those that differ most; `make test-thorough` runs all."""

from collections.abc import Iterable
from typing import Any

import pytest


def some(values: Iterable[Any], *, quick: Iterable[Any], unpack: bool = False) -> list[Any]:
    """What `parametrize` takes: of the values, all but the `quick` ones for --thorough only.

    With `unpack` each value is a tuple that gives several arguments.
    """
    kept = list(quick)
    longer = (lambda value: value) if unpack else (lambda value: (value,))
    given = [value if value in kept else pytest.param(*longer(value), marks=pytest.mark.thorough) for value in values]
    assert any(value in kept for value in given), "none is quick"
    return given
