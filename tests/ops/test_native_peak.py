from __future__ import annotations

import pytest

from firstword.errors import ConfigError
from firstword.ops.native import usable_isas
from firstword.ops.native_peak import MacRates, mac_rates


def test_time_is_that_of_both_kinds() -> None:
    assert MacRates(narrow=4.0, wide=2.0).seconds(20.0, 8.0) == pytest.approx(8 / 4 + 12 / 2)


@pytest.mark.parametrize("isa", usable_isas())
def test_vector_units_have_rates(isa: str) -> None:
    rates = mac_rates(1, isa)
    if isa == "generic":
        assert rates is None
    else:
        assert rates is not None
        assert rates.narrow > 1e9 and rates.wide > 1e9


def test_an_unknown_instruction_set_is_refused() -> None:
    with pytest.raises(ConfigError, match="sse9"):
        mac_rates(1, "sse9")
