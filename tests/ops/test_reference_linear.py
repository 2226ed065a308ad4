import numpy as np
import pytest

from firstword.ops import reference_linear
from firstword.ops.reference_linear import blas_linear, exact_linear, invariant_product
from tests.ops.builders import normal, same_bits

SHAPES = [(1, 1), (3, 1), (1, 7), (5, 64), (64, 5), (192, 576), (333, 100), (1024, 48), (7, 1536)]


@pytest.mark.parametrize("shape", SHAPES)
def test_exact_is_the_float64_product_rounded_once(shape: tuple[int, int]) -> None:
    weight, x = normal(0, *shape), normal(1, 9, shape[1])
    exact = np.einsum("td,od->to", x.astype(np.float64), weight.astype(np.float64))
    out = exact_linear(x, weight)
    assert out.dtype == np.float32 and out.shape == (9, shape[0])
    # Half a unit in the last place, and what float64 itself loses in the sum.
    bound = np.spacing(np.abs(out)) / 2 + 1e-13 * shape[1]
    assert (np.abs(out - exact) <= bound).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("num_rows", [2, 3, 8, 17, 64])
def test_exact_rows_do_not_depend_on_their_neighbours(
    shape: tuple[int, int], num_rows: int
) -> None:
    """Not even before rounding, which would hide all but one difference in 2^29."""
    weight, x = normal(2, *shape), normal(3, num_rows, shape[1])
    together = invariant_product(x, weight)
    alone = [invariant_product(x[t : t + 1], weight) for t in range(num_rows)]
    np.testing.assert_array_equal(together, np.concatenate(alone))
    np.testing.assert_array_equal(invariant_product(x[::-1], weight)[::-1], together)
    np.testing.assert_array_equal(invariant_product(x[1:], weight), together[1:])


def test_exact_works_panel_by_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, x = normal(4, 100, 16), normal(5, 3, 16)
    whole = exact_linear(x, weight)
    monkeypatch.setattr(reference_linear, "_PANEL_VALUES", 7 * 16)  # 100 = 14 x 7 + 2
    np.testing.assert_allclose(exact_linear(x, weight), whole, rtol=1e-6)
    assert same_bits(exact_linear(x, weight)[1:2], exact_linear(x[1:2], weight))


def test_exact_adds_the_bias_before_rounding() -> None:
    x = np.array([[1.0]], dtype=np.float32)
    weight = np.array([[1.0]], dtype=np.float32) + np.float32(2**-23)
    bias = np.array([2.0**24], dtype=np.float32)
    # 1 + 2^-23 + 2^24 is just above a midpoint; rounding the sum only gives the upper neighbour.
    assert exact_linear(x, weight, bias)[0, 0] == 2.0**24 + 2


@pytest.mark.parametrize("shape", SHAPES)
def test_blas_is_close(shape: tuple[int, int]) -> None:
    weight, x = normal(6, *shape), normal(7, 9, shape[1])
    exact = np.einsum("td,od->to", x.astype(np.float64), weight.astype(np.float64))
    out = blas_linear(x, weight)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, exact, atol=1e-6 * shape[1], rtol=1e-5)


def test_no_rows_give_no_rows() -> None:
    weight, x = normal(8, 4, 3), np.zeros((0, 3), dtype=np.float32)
    assert exact_linear(x, weight).shape == blas_linear(x, weight).shape == (0, 4)
