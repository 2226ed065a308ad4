import gguf
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES

from firstword.quant import GGMLType, RawTensor


def test_type_ids_are_those_of_the_gguf_package() -> None:
    for theirs in gguf.GGMLQuantizationType:
        assert GGMLType(theirs.value).name == theirs.name


@pytest.mark.parametrize(
    "ggml_type", [t for t in GGMLType if t.has_known_size], ids=lambda t: t.name
)
def test_block_sizes_are_those_of_the_gguf_package(ggml_type: GGMLType) -> None:
    theirs = GGML_QUANT_SIZES[gguf.GGMLQuantizationType(ggml_type.value)]
    assert (ggml_type.block_size, ggml_type.type_size) == theirs


@pytest.mark.parametrize("ggml_type", [GGMLType.Q4_2, GGMLType.Q8_1, GGMLType.Q4_0_8_8])
def test_types_without_a_layout_refuse_to_be_measured(ggml_type: GGMLType) -> None:
    assert not ggml_type.has_known_size
    with pytest.raises(ValueError, match=ggml_type.name):
        _ = ggml_type.block_size


def test_raw_tensor_measures_itself() -> None:
    data = np.zeros(3 * 2 * 18, dtype=np.uint8)
    tensor = RawTensor("w", (3, 64), GGMLType.Q4_0, data)
    assert tensor.num_values == 192
    assert tensor.nbytes == data.size
    assert tensor.rows.shape == (3, 36)
    assert np.shares_memory(tensor.rows, data)
