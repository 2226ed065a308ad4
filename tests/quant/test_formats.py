import numpy as np

from firstword.quant import GGMLType
from firstword.quant.formats import UNPACK


def test_every_format_unpacks_to_the_shapes_of_its_type() -> None:
    for ggml_type, unpack in UNPACK.items():
        out = unpack(np.zeros((3, ggml_type.type_size), dtype=np.uint8))
        assert out.q.shape == (3, ggml_type.block_size)
        assert out.q.dtype == np.int8
        assert out.d.shape == (3, 1)
        for part in (out.scales, out.mins):
            assert part is None or part.shape in {(3, 8), (3, 16)}


def test_a_block_of_q4_0_written_by_hand() -> None:
    half = np.array([0.5], dtype="<f2").view(np.uint8)
    block = np.concatenate([half, np.arange(16, dtype=np.uint8) | np.uint8(0xF0)])
    out = UNPACK[GGMLType.Q4_0](block[None])
    assert out.d.tolist() == [[0.5]]
    assert out.q[0, :16].tolist() == list(range(-8, 8))
    assert out.q[0, 16:].tolist() == [7] * 16


def test_a_scale_of_q4_k_whose_bits_lie_in_two_bytes() -> None:
    block = np.zeros((1, 144), dtype=np.uint8)
    block[0, 4 + 1] = 0b10_000011  # scale 1 = 3; the top bits of scale 5 = 2
    block[0, 4 + 9] = 0b0110_1001  # the low bits of scale 5 = 9, of min 5 = 6
    out = UNPACK[GGMLType.Q4_K](block)
    assert out.scales is not None and out.mins is not None
    assert out.scales[0].tolist() == [0, 3, 0, 0, 0, 0b10_1001, 0, 0]
    assert out.mins[0].tolist() == [0, 0, 0, 0, 0, 6, 0, 0]
