"""Every method has every property."""

import pytest

from onpro.methods import method, methods, settings_for
from onpro.training.check import PROPERTIES, Property


@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda p: p.__name__)
@pytest.mark.parametrize("name", sorted(methods()))
def test_every_method_has_every_property(name: str, holds: Property) -> None:
    holds(method(name), settings_for(name, "tiny"))
