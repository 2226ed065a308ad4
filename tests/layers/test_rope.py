from __future__ import annotations

import math

import pytest

from firstword.config import RopeScaling
from firstword.layers.rope import rope_spec


def test_plain_frequencies_are_a_geometric_series() -> None:
    spec = rope_spec(8, 10000.0)
    assert spec.inv_freq == pytest.approx((1.0, 0.1, 0.01, 0.001))
    assert spec.head_dim == 8
    assert spec.attention_factor == 1.0


def test_linear_scaling_divides_all() -> None:
    plain = rope_spec(8, 10000.0).inv_freq
    scaled = rope_spec(8, 10000.0, RopeScaling("linear", factor=4.0)).inv_freq
    assert scaled == pytest.approx([f / 4 for f in plain])


def test_llama3_keeps_short_wavelengths_and_stretches_long_ones() -> None:
    scaling = RopeScaling(
        "llama3",
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=8192,
    )
    plain = rope_spec(128, 500000.0).inv_freq
    scaled = rope_spec(128, 500000.0, scaling).inv_freq
    for f, g in zip(plain, scaled, strict=True):
        wavelength = 2 * math.pi / f
        if wavelength < 8192 / 4:
            assert g == pytest.approx(f)
        elif wavelength > 8192:
            assert g == pytest.approx(f / 8)
        else:
            assert f / 8 < g < f
    assert any(f / 8 * 1.001 < g < f * 0.999 for f, g in zip(plain, scaled, strict=True))


def test_yarn_keeps_fast_dimensions_stretches_slow_ones_and_scales_attention() -> None:
    scaling = RopeScaling("yarn", factor=4.0, original_max_position_embeddings=4096)
    plain = rope_spec(64, 10000.0).inv_freq
    spec = rope_spec(64, 10000.0, scaling)
    assert spec.inv_freq[0] == pytest.approx(plain[0])
    assert spec.inv_freq[-1] == pytest.approx(plain[-1] / 4)
    assert spec.attention_factor == pytest.approx(0.1 * math.log(4.0) + 1)


def test_yarn_takes_a_given_attention_factor() -> None:
    scaling = RopeScaling("yarn", factor=4.0, attention_factor=1.5)
    assert rope_spec(64, 10000.0, scaling).attention_factor == 1.5


def test_factors_of_a_checkpoint_divide() -> None:
    spec = rope_spec(4, 100.0, freq_factors=[1.0, 2.0])
    assert spec.inv_freq == pytest.approx((1.0, 0.05))


def test_the_frequencies_are_those_recorded() -> None:
    """To the last bit, on every processor; within one of them of the library's power."""
    inv_freq = rope_spec(128, 500000.0).inv_freq
    assert [inv_freq[i].hex() for i in (0, 1, 31, 63)] == [
        "0x1.0000000000000p+0",
        "0x1.a115829457fbep-1",
        "0x1.c7181f3d9f60bp-10",
        "0x1.4985fec80a8cbp-19",
    ]
    for i, frequency in enumerate(inv_freq):
        assert frequency == pytest.approx(500000.0 ** (-2 * i / 128), rel=2**-51)
