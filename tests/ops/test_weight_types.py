import numpy as np
import pytest

from firstword.errors import UnsupportedModelError
from firstword.ops.weight_types import check_built, memory_bytes
from firstword.quant import DEQUANTIZABLE, GGMLType, RawTensor
from tests.ops.builders import random_tensor


def test_a_type_that_is_not_built_is_refused_by_name() -> None:
    for ggml_type in DEQUANTIZABLE:
        check_built(random_tensor(ggml_type, (1, 256)))
    tensor = RawTensor("blk.0.ffn_up.weight", (2, 256), GGMLType.IQ2_XS, np.zeros(0, np.uint8))
    with pytest.raises(UnsupportedModelError, match=r"blk\.0\.ffn_up\.weight.*IQ2_XS.*Q4_K"):
        check_built(tensor)


@pytest.mark.parametrize(
    ("ggml_type", "bits"),
    [
        (GGMLType.Q2_K, 2.625),
        (GGMLType.Q3_K, 3.5625),  # 3.4375 in a file
        (GGMLType.Q4_K, 4.5),
        (GGMLType.IQ4_NL, 8.5),
        (GGMLType.IQ4_XS, 8.3125),
        (GGMLType.MXFP4, 9),  # float32 scales
        (GGMLType.F16, 16),
    ],
)
def test_bits_of_a_weight_in_memory(ggml_type: GGMLType, bits: float) -> None:
    assert memory_bytes(random_tensor(ggml_type, (3, 512))) == 3 * 512 * bits / 8
