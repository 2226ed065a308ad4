"""The KV pool of the compiled backend: float16 pages with transposed keys.

A page holds, for each layer of its group and each kv head in it, keys as [d, 32 positions] and
values as [32 positions, d]. Not here: which block belongs to whom (kvcache).
"""

from __future__ import annotations

import firstword._native as _native
from firstword.config import BLOCK_SIZE
from firstword.errors import ConfigError
from firstword.kvcache.spec import KVCacheSpec


class NativeKVPool:
    """`num_blocks` pages that any group may use for a block of its own.

    The memory is zeroed lazily by the operating system: a block costs nothing before it is used.

    Args:
        spec: the groups, all in float16.
        num_blocks: pages, >= 0.

    Raises:
        ConfigError: `num_blocks` is negative, or a group is stored in another type.
    """

    def __init__(self, spec: KVCacheSpec, num_blocks: int) -> None:
        if num_blocks < 0:
            raise ConfigError(f"num_blocks is {num_blocks}: it must be at least 0")
        for group in spec.groups:
            for dtype in (group.k_dtype, group.v_dtype):
                if dtype != "float16":
                    raise ConfigError(
                        f"kv_dtype is {dtype}: the compiled backend stores float16 only; choose "
                        'that or numerics="blas"'
                    )
        if spec.block_size != BLOCK_SIZE:
            raise ConfigError(
                f"block_size is {spec.block_size}: the compiled backend's pages hold {BLOCK_SIZE}"
            )
        self._spec, self._num_blocks = spec, num_blocks
        self.pages = _native.Pages(num_blocks, spec.page_bytes)

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
