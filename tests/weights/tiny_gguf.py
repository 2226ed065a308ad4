"""Tiny random models as GGUF files, written by the `gguf` package: whole, sound, and fast to run.

The tokenizers are small but real: every string can be encoded, a few merges exist, and control
tokens have their types.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict, Unpack

import gguf
import numpy as np
from numpy.typing import NDArray

from firstword.quant import GGMLType, RawTensor, integer_blocks

NORMAL, UNKNOWN, CONTROL, UNUSED, BYTE = 1, 2, 3, 5, 6
LLAMA_SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
GEMMA_SPECIALS = ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>")
MERGES = ("t h", "th e", "Ġ the", "i n", "a n", "Ġ a", "e r", "o n", "Ġ w", "r e", "i s", "Ġ is")

# Byte positions of the half-precision numbers in a block of each quantized type.
HALVES = {
    GGMLType.Q4_0: (0,),
    GGMLType.Q4_1: (0, 2),
    GGMLType.Q5_0: (0,),
    GGMLType.Q5_1: (0, 2),
    GGMLType.Q8_0: (0,),
    GGMLType.Q2_K: (80, 82),
    GGMLType.Q3_K: (108,),
    GGMLType.Q4_K: (0, 2),
    GGMLType.Q5_K: (0, 2),
    GGMLType.Q6_K: (208,),
    GGMLType.IQ4_NL: (0,),
    GGMLType.IQ4_XS: (0,),
    GGMLType.MXFP4: (),
}


class TinyOptions(TypedDict, total=False):
    """What may be asked of a tiny model; the defaults are in _LLAMA and _GEMMA3.

    Keys:
        architecture: "llama", "qwen2" or "qwen3"; `write_tiny_gemma3` sets it itself.
        seed: of the weights.
        hidden, intermediate: multiples of the block size of `dtype`.
        vocab: rows of the embedding, at least as many as the tokenizer has tokens.
        context: tokens.
        dtype: type of all matrices; vectors are F32.
        tied: whether the embedding is the output matrix too.
        window: Gemma 3: tokens that a sliding layer sees.
        chat_template: source of the template, or None.
        alignment: of the tensor data, a power of two.
    """

    architecture: str
    seed: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    context: int
    dtype: GGMLType
    tied: bool
    window: int
    chat_template: str | None
    alignment: int


_LLAMA: TinyOptions = {
    "architecture": "llama",
    "seed": 0,
    "layers": 2,
    "hidden": 64,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 16,
    "intermediate": 96,
    "vocab": 288,
    "context": 512,
    "dtype": GGMLType.F32,
    "tied": False,
    "window": 0,
    "chat_template": None,
    "alignment": 32,
}
_GEMMA3: TinyOptions = {
    **_LLAMA,
    "architecture": "gemma3",
    "layers": 6,
    "kv_heads": 1,
    "head_dim": 32,
    "vocab": 320,
    "tied": True,
    "window": 48,
}


def write_tiny_llama(path: Path, **options: Unpack[TinyOptions]) -> Path:
    """Write a tiny model of the Llama family; `head_dim` follows `hidden` and `heads`."""
    chosen: TinyOptions = {**_LLAMA, **options}
    if "head_dim" not in options:
        chosen["head_dim"] = chosen["hidden"] // chosen["heads"]
    writer = gguf.GGUFWriter(path, chosen["architecture"])
    _write_metadata(writer, chosen)
    _write_byte_level_tokenizer(writer, chosen)
    return _write_tensors(writer, chosen, path)


def write_tiny_gemma3(path: Path, **options: Unpack[TinyOptions]) -> Path:
    """Write a tiny Gemma 3: sandwich norms, q/k norms, head_dim unlike hidden / heads."""
    chosen: TinyOptions = {**_GEMMA3, **options}
    writer = gguf.GGUFWriter(path, "gemma3")
    _write_metadata(writer, chosen)
    writer.add_sliding_window(chosen["window"])
    _write_sentencepiece_tokenizer(writer, chosen)
    return _write_tensors(writer, chosen, path)


def _write_metadata(writer: gguf.GGUFWriter, o: TinyOptions) -> None:
    writer.add_name("tiny")
    if o["alignment"] != 32:
        writer.add_custom_alignment(o["alignment"])
    writer.add_block_count(o["layers"])
    writer.add_context_length(o["context"])
    writer.add_embedding_length(o["hidden"])
    writer.add_feed_forward_length(o["intermediate"])
    writer.add_head_count(o["heads"])
    writer.add_head_count_kv(o["kv_heads"])
    writer.add_key_length(o["head_dim"])
    writer.add_value_length(o["head_dim"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(1_000_000.0 if o["architecture"] == "gemma3" else 10_000.0)
    if o["chat_template"] is not None:
        writer.add_chat_template(o["chat_template"])


def byte_alphabet() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


def _write_byte_level_tokenizer(writer: gguf.GGUFWriter, o: TinyOptions) -> None:
    tokens = [*LLAMA_SPECIALS, *byte_alphabet(), *(m.replace(" ", "") for m in MERGES)]
    types = [CONTROL] * len(LLAMA_SPECIALS) + [NORMAL] * (len(tokens) - len(LLAMA_SPECIALS))
    _pad(tokens, types, o["vocab"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)


def _write_sentencepiece_tokenizer(writer: gguf.GGUFWriter, o: TinyOptions) -> None:
    # A longer piece is a merge of two earlier ones; the earlier the piece, the better its score.
    merged = [m.replace(" ", "").replace("Ġ", "▁") for m in MERGES]
    letters = ["▁", *"etaoinshrdlucmfwygpbvkxqjz.,"]
    tokens = [*GEMMA_SPECIALS, *(f"<0x{b:02X}>" for b in range(256)), *merged, *letters]
    types = [CONTROL] * len(GEMMA_SPECIALS) + [BYTE] * 256
    types[3] = UNKNOWN
    types += [NORMAL] * (len(tokens) - len(types))
    _pad(tokens, types, o["vocab"])
    first_piece = len(GEMMA_SPECIALS) + 256
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([float(min(0, first_piece - i)) for i in range(len(tokens))])
    writer.add_token_types(types)
    writer.add_pad_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_unk_token_id(3)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(False)


def _pad(tokens: list[str], types: list[int], vocab: int) -> None:
    if vocab < len(tokens):
        raise ValueError(f"vocab is {vocab}: the tokenizer has {len(tokens)} tokens")
    for i in range(vocab - len(tokens)):
        tokens.append(f"<unused{i}>")
        types.append(UNUSED)


def _matrices(o: TinyOptions) -> Iterator[tuple[str, tuple[int, int]]]:
    hidden, width = o["hidden"], o["heads"] * o["head_dim"]
    kv_width = o["kv_heads"] * o["head_dim"]
    yield "token_embd.weight", (o["vocab"], hidden)
    if not o["tied"]:
        yield "output.weight", (o["vocab"], hidden)
    for i in range(o["layers"]):
        yield f"blk.{i}.attn_q.weight", (width, hidden)
        yield f"blk.{i}.attn_k.weight", (kv_width, hidden)
        yield f"blk.{i}.attn_v.weight", (kv_width, hidden)
        yield f"blk.{i}.attn_output.weight", (hidden, width)
        yield f"blk.{i}.ffn_gate.weight", (o["intermediate"], hidden)
        yield f"blk.{i}.ffn_up.weight", (o["intermediate"], hidden)
        yield f"blk.{i}.ffn_down.weight", (hidden, o["intermediate"])


def _norms(o: TinyOptions) -> Iterator[tuple[str, int]]:
    names = ["attn_norm", "ffn_norm"]
    if o["architecture"] == "gemma3":
        names += ["post_attention_norm", "post_ffw_norm"]
    yield "output_norm.weight", o["hidden"]
    for i in range(o["layers"]):
        for name in names:
            yield f"blk.{i}.{name}.weight", o["hidden"]
        if o["architecture"] in ("gemma3", "qwen3"):
            yield f"blk.{i}.attn_q_norm.weight", o["head_dim"]
            yield f"blk.{i}.attn_k_norm.weight", o["head_dim"]


def _biases(o: TinyOptions) -> Iterator[tuple[str, int]]:
    if o["architecture"] == "qwen2":
        for i in range(o["layers"]):
            yield f"blk.{i}.attn_q.bias", o["heads"] * o["head_dim"]
            yield f"blk.{i}.attn_k.bias", o["kv_heads"] * o["head_dim"]
            yield f"blk.{i}.attn_v.bias", o["kv_heads"] * o["head_dim"]


def _write_tensors(writer: gguf.GGUFWriter, o: TinyOptions, path: Path) -> Path:
    rng = np.random.default_rng(o["seed"])
    for name, shape in _matrices(o):
        data = random_matrix(rng, shape, o["dtype"])
        writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType(o["dtype"].value))
    for name, size in _norms(o):
        writer.add_tensor(name, rng.normal(1.0, 0.1, size).astype(np.float32))
    for name, size in _biases(o):
        writer.add_tensor(name, rng.normal(0.0, 0.1, size).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def random_matrix(
    rng: np.random.Generator, shape: tuple[int, int], ggml_type: GGMLType
) -> NDArray[np.float32] | NDArray[np.float16] | NDArray[np.uint8]:
    """Values of standard deviation 1 / sqrt(fan in) as the writer takes them: [out, ...]."""
    std = shape[1] ** -0.5
    if ggml_type.name.endswith("_K") or ggml_type.name.startswith("IQ4"):
        return _random_blocks(rng, shape, ggml_type, std)
    values = rng.normal(0.0, std, shape).astype(np.float32)
    packed: NDArray[np.float32] = gguf.quantize(values, gguf.GGMLQuantizationType(ggml_type.value))
    return packed


def _random_blocks(
    rng: np.random.Generator, shape: tuple[int, int], ggml_type: GGMLType, std: float
) -> NDArray[np.uint8]:
    """Random bits with scales that give mean 0 and the deviation asked for."""
    num_blocks = shape[0] * shape[1] // ggml_type.block_size
    blocks = rng.integers(0, 256, (num_blocks, ggml_type.type_size), dtype=np.uint8)
    parts = integer_blocks(RawTensor("", shape, ggml_type, blocks.reshape(-1)))
    products = parts.quants.astype(np.float64) * np.repeat(parts.scales, parts.group_size, axis=1)
    halves = [1.0]
    if parts.mins is not None:
        halves.append(float(products.mean() / parts.mins.mean()))
        products -= halves[1] * np.repeat(parts.mins, parts.group_size, axis=1)
    for start, value in zip(HALVES[ggml_type], halves, strict=True):
        half = np.array([value * std / products.std()], dtype="<f2")
        blocks[:, start : start + 2] = half.view(np.uint8)
    return blocks.reshape(shape[0], -1)
