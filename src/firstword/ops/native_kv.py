"""The KV pool of the compiled backend: pages of float16 or of 8-bit codes, keys transposed.

csrc/kernels/kv_store.h has the layout. Not here: which block belongs to whom (kvcache).
"""

from __future__ import annotations

import firstword._native as _native
from firstword.config import BLOCK_SIZE
from firstword.errors import ConfigError
from firstword.kvcache.spec import KVCacheSpec

KV_DTYPES = ("float16", "q8")
"""Types of keys and values that there are kernels for."""

MAX_Q8_HEAD_DIM = _native.MAX_Q8_HEAD_DIM
"""Values of a head that can be stored in q8."""


class NativeKVPool:
    """`num_blocks` pages that any group may use for a block of its own.

    The memory is zeroed lazily by the operating system: a block costs nothing before it is used.

    Args:
        spec: the groups, all in float16 or all in q8.
        num_blocks: pages, >= 0.

    Raises:
        ConfigError: `num_blocks` is negative, or there are no kernels for how a group is stored.
    """

    def __init__(self, spec: KVCacheSpec, num_blocks: int) -> None:
        if num_blocks < 0:
            raise ConfigError(f"num_blocks is {num_blocks}: it must be at least 0")
        dtype = _dtype_of(spec)
        if spec.block_size != BLOCK_SIZE:
            raise ConfigError(
                f"block_size is {spec.block_size}: the compiled backend's pages hold {BLOCK_SIZE}"
            )
        self._spec, self._num_blocks = spec, num_blocks
        self.pages = _native.Pages(num_blocks, spec.page_bytes, dtype == "q8")

    @property
    def spec(self) -> KVCacheSpec:
        """The groups it was made for."""
        return self._spec

    @property
    def num_blocks(self) -> int:
        """Blocks it holds."""
        return self._num_blocks

    @property
    def nbytes(self) -> int:
        """Bytes it takes when every block is in use."""
        return self._num_blocks * self._spec.page_bytes

    def read_block(self, block: int) -> bytes:
        """The whole content of a block: `spec.page_bytes` bytes."""
        return self.pages.read(block)

    def write_block(self, block: int, content: bytes) -> None:
        """Set the whole content of a block.

        Raises:
            ConfigError: `content` is not `spec.page_bytes` long.
        """
        if len(content) != self._spec.page_bytes:
            raise ConfigError(
                f"content of a KV block has {len(content)} bytes, but a page of this pool has "
                f"{self._spec.page_bytes}: it was saved from another model or with another kv_dtype"
            )
        self.pages.write(block, content)


def _dtype_of(spec: KVCacheSpec) -> str:
    """The type of all keys and values, "float16" where there are none."""
    dtypes = {dtype for group in spec.groups for dtype in (group.k_dtype, group.v_dtype)}
    for dtype in sorted(dtypes):
        if dtype not in KV_DTYPES:
            raise ConfigError(
                f"kv_dtype is {dtype}: the compiled backend stores {' and '.join(KV_DTYPES)}; "
                'choose one of them or numerics="blas"'
            )
    if len(dtypes) > 1:
        raise ConfigError(
            f"keys and values are stored as {' and '.join(sorted(dtypes))}: the compiled backend "
            "stores all in one type"
        )
    largest = max((group.head_dim for group in spec.groups), default=0)
    if "q8" in dtypes and largest > MAX_Q8_HEAD_DIM:
        raise ConfigError(
            f"kv_dtype is q8 and head_dim {largest}: the compiled backend stores heads of up to "
            f"{MAX_Q8_HEAD_DIM} values so; choose float16"
        )
    return dtypes.pop() if dtypes else "float16"
