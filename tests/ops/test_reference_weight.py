import numpy as np
import pytest

from firstword.errors import UnsupportedModelError
from firstword.ops.reference_weight import ReferenceWeight, prepare_weight
from firstword.quant import (
    DEQUANTIZABLE,
    GGMLType,
    IntegerBlocks,
    RawTensor,
    dequantize,
)
from tests.ops.builders import float_tensor, normal, random_tensor


@pytest.mark.parametrize("ggml_type", sorted(DEQUANTIZABLE))
def test_dense_and_rows_are_the_values_of_the_file(ggml_type: GGMLType) -> None:
    tensor = random_tensor(ggml_type, (12, 256))
    weight = prepare_weight("linear", [tensor])
    np.testing.assert_array_equal(weight.dense, dequantize(tensor))
    ids = np.array([11, 0, 3, 3], dtype=np.int32)
    np.testing.assert_array_equal(weight.rows(ids), dequantize(tensor)[ids])


def test_several_tensors_are_stacked_whatever_their_types() -> None:
    parts = [random_tensor(t, (o, 64)) for t, o in [(GGMLType.Q4_1, 5), (GGMLType.Q8_0, 3)]]
    weight = prepare_weight("linear", parts)
    assert weight.shape == (8, 64)
    np.testing.assert_array_equal(weight.dense, np.concatenate([dequantize(p) for p in parts]))


def test_several_vectors_are_joined() -> None:
    parts = [float_tensor(normal(0, 3)), float_tensor(normal(1, 2), GGMLType.F16)]
    weight = prepare_weight("vector", parts)
    assert weight.shape == (5,)
    np.testing.assert_array_equal(weight.dense, np.concatenate([dequantize(p) for p in parts]))


def test_a_tied_matrix_is_unpacked_once_and_only_for_a_product() -> None:
    weight = prepare_weight("embedding", [random_tensor(GGMLType.Q8_0, (6, 32))])
    weight.rows(np.array([1], dtype=np.int32))
    assert "dense" not in vars(weight)
    assert weight.dense is weight.dense


def test_a_vector_is_unpacked_at_once() -> None:
    weight = prepare_weight("vector", [float_tensor(normal(0, 5))])
    assert "dense" in vars(weight)
    assert weight.shape == (5,)
    np.testing.assert_array_equal(weight.dense, normal(0, 5))


def test_integers_where_the_type_has_them() -> None:
    parts = [random_tensor(GGMLType.Q4_K, (4, 256)), random_tensor(GGMLType.BF16, (4, 256))]
    integers = ReferenceWeight(parts).integers
    assert isinstance(integers[0], IntegerBlocks)
    assert isinstance(integers[1], np.ndarray)
    np.testing.assert_array_equal(integers[1], dequantize(parts[1]))


def test_a_type_that_is_not_built_is_refused_by_name() -> None:
    tensor = RawTensor("blk.0.ffn_up.weight", (2, 256), GGMLType.IQ2_XS, np.zeros(0, np.uint8))
    with pytest.raises(UnsupportedModelError, match=r"blk\.0\.ffn_up\.weight.*IQ2_XS.*Q4_K"):
        prepare_weight("linear", [tensor])


def test_stacked_tensors_must_share_their_inputs() -> None:
    with pytest.raises(AssertionError, match="differ in D"):
        ReferenceWeight([float_tensor(normal(0, 2, 3)), float_tensor(normal(0, 2, 4))])
