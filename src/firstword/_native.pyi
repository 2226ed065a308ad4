"""The compiled module; csrc/bindings is its source. Only ops.native* and the
native twins in sampling, text and weights import it.

Argument names and meanings are those of csrc/core/plan.h and csrc/kernels/sample.h.
"""

from collections.abc import Sequence
from enum import Enum

import numpy as np
from numpy.typing import NDArray

class Backend:
    def __init__(self, num_threads: int, isa: str = "") -> None: ...
    @property
    def isa(self) -> str: ...
    @property
    def num_threads(self) -> int: ...
    def mac_rate(self, wide: bool) -> float: ...

class Weights:
    def __init__(self) -> None: ...
    def add_matrix(
        self, backend: Backend, ggml_type: int, n: int, k: int, data: NDArray[np.uint8]
    ) -> int: ...
    def add_panels(self, ggml_type: int, n: int, k: int, panels: NDArray[np.uint8]) -> int: ...
    def add_vector(self, values: NDArray[np.float32]) -> int: ...
    @property
    def nbytes(self) -> int: ...

class Pages:
    def __init__(self, num_blocks: int, page_bytes: int, q8: bool) -> None: ...
    def read(self, block: int) -> bytes: ...
    def write(self, block: int, content: bytes) -> None: ...

MAX_Q8_HEAD_DIM: int
PANEL_LAYOUT_VERSION: int

def panel_bytes(ggml_type: int, n: int, k: int) -> int: ...
def repack(
    backend: Backend,
    ggml_type: int,
    n: int,
    k: int,
    data: NDArray[np.uint8],
    panels: NDArray[np.uint8],
) -> None: ...
def built_isas() -> list[str]: ...
def usable_isas() -> list[str]: ...

class Rows(Enum):
    TOKENS = 0
    LOGITS = 1
    THREADS = 2

class BufferSpec:
    def __init__(self, rows: Rows, width: int, run: int) -> None: ...

class Operand:
    def __init__(self, buffer: int, width: int) -> None: ...

class AttentionLayer:
    def __init__(
        self,
        group: int,
        index_in_group: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        scale: float,
        window: int,
        softcap: float,
    ) -> None: ...

class Embed:
    def __init__(self, weight: int, scale: float, out: Operand) -> None: ...

class Add:
    def __init__(self, a: Operand, b: Operand, out: Operand) -> None: ...

class Norm:
    def __init__(self, x: Operand, weight: int, eps: float, out: Operand) -> None: ...

class Rope:
    def __init__(
        self, x: Operand, table: int, head_dim: int, interleaved: bool, out: Operand
    ) -> None: ...

class StoreKV:
    def __init__(self, k: Operand, v: Operand, layer: AttentionLayer) -> None: ...

class Activate:
    def __init__(self, gelu: bool, gate: Operand, up: Operand, out: Operand) -> None: ...

class Softcap:
    def __init__(self, x: Operand, cap: float, out: Operand) -> None: ...

class Take:
    def __init__(self, x: Operand, out: Operand) -> None: ...

class Quantize:
    def __init__(self, x: Operand, out: int) -> None: ...

RowOp = Embed | Add | Norm | Rope | StoreKV | Activate | Softcap | Take | Quantize

class RowsStage:
    def __init__(self, rows: Rows, ops: Sequence[RowOp]) -> None: ...

class LinearSegment:
    def __init__(self, weight: int, bias: int, out: Operand) -> None: ...

class LinearStage:
    def __init__(
        self, rows: Rows, x: Operand, a32: int, a256: int, segments: Sequence[LinearSegment]
    ) -> None: ...

class AttentionStage:
    def __init__(self, rows: Rows, q: Operand, layer: AttentionLayer, out: Operand) -> None: ...

Stage = RowsStage | LinearStage | AttentionStage

class Step:
    def __init__(
        self,
        *,
        token_ids: NDArray[np.int32],
        positions: NDArray[np.int32],
        query_start_loc: NDArray[np.int32],
        seq_lens: NDArray[np.int32],
        logits_rows: NDArray[np.int32],
        block_tables: Sequence[NDArray[np.int32]],
        slot_mapping: Sequence[NDArray[np.int32]],
        ropes: Sequence[tuple[NDArray[np.float32], NDArray[np.float32]]],
        block_copies: NDArray[np.int32],
    ) -> None: ...

class Plan:
    def __init__(
        self, backend: Backend, weights: Weights, buffers: Sequence[BufferSpec]
    ) -> None: ...
    def add(self, stage: Stage) -> None: ...
    def reserve(self, num_tokens: int, num_logits: int) -> None: ...
    def run(
        self,
        sampler: Sampler,
        step: Step,
        pages: Pages,
        vocab_size: int,
        windows: Sequence[int],
        logits: int,
        rows: NDArray[np.int32],
        strategies: Sequence[Strategy],
        poll_signals: bool,
    ) -> tuple[list[Outcome], float] | None: ...
    def stop(self) -> None: ...
    def clear_stop(self) -> None: ...
    def measure(self, on: bool) -> None: ...
    @property
    def stage_ns(self) -> list[int]: ...
    def floats(self, buffer: int, rows: int, width: int) -> NDArray[np.float32]: ...
    @property
    def progress(self) -> int: ...
    @property
    def scratch_bytes(self) -> int: ...

class SampleStatus(Enum):
    OK = 0
    NO_FINITE_LOGIT = 1
    NOTHING_ALLOWED = 2
    UNKNOWN_TOKEN = 3
    MASK_SIZE = 4

class Penalties:
    def __init__(
        self,
        *,
        token_ids: NDArray[np.int32],
        counts: NDArray[np.int32],
        repetition: float,
        frequency: float,
        presence: float,
    ) -> None: ...

class Strategy:
    def __init__(
        self,
        *,
        temperature: float,
        top_p: float,
        top_k: int,
        seed: int,
        position: int,
        sample_index: int,
        banned: Sequence[int],
        bias_ids: Sequence[int],
        bias: Sequence[float],
        allowed: NDArray[np.uint32] | None,
        num_candidates: int,
        penalties: Penalties | None,
    ) -> None: ...

class Outcome:
    @property
    def status(self) -> SampleStatus: ...
    @property
    def token(self) -> int: ...
    @property
    def logprob(self) -> float: ...
    @property
    def probability(self) -> float: ...
    @property
    def uniform(self) -> float: ...
    @property
    def num_survivors(self) -> int: ...
    @property
    def candidates(self) -> list[tuple[int, float, float]]: ...

class Sampler:
    def __init__(self, backend: Backend) -> None: ...
    def sample(
        self,
        logits: NDArray[np.float32],
        rows: NDArray[np.int32],
        strategies: Sequence[Strategy],
    ) -> list[Outcome]: ...

class Cut(Enum):
    GPT2 = 0
    DIGITS_GPT2 = 1
    LLAMA3 = 2
    QWEN2 = 3

class TextEncoder:
    @staticmethod
    def byte_level(
        cut: Cut,
        byte_ids: NDArray[np.int32],
        merges: NDArray[np.int32],
        merge_slots: NDArray[np.int32],
        offsets: NDArray[np.uint32],
        strings: NDArray[np.uint8],
        piece_slots: NDArray[np.int32],
    ) -> TextEncoder: ...
    @staticmethod
    def sentencepiece(
        byte_ids: NDArray[np.int32],
        offsets: NDArray[np.uint32],
        strings: NDArray[np.uint8],
        piece_slots: NDArray[np.int32],
        ranks: NDArray[np.uint32],
    ) -> TextEncoder: ...
    def encode(self, text: bytes) -> list[int]: ...
    def encode_with_spans(self, text: bytes) -> tuple[list[int], list[tuple[int, int]]]: ...

def piece_slots(
    offsets: NDArray[np.uint32], strings: NDArray[np.uint8], ids: NDArray[np.int32]
) -> NDArray[np.int32]: ...
def merge_slots(merges: NDArray[np.int32]) -> NDArray[np.int32]: ...
def end_of_strings(data: memoryview, start: int, count: int) -> int | None: ...
