"""What every refusal of the user's input must be: an InputError of one line that says what is wrong."""

from collections.abc import Callable
from typing import Any

import pytest

from marginflow._core.errors import InputError


def refusal(make: Callable[[], Any], says: str) -> str:
    """The line with which `make` refuses; it holds `says`."""
    with pytest.raises(InputError) as caught:
        make()
    line = str(caught.value)
    assert says in line
    assert "\n" not in line
    return line
