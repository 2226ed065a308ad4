"""The bytes of all KV blocks: one arena of equal pages, and typed views of it per group.

Not here: which sequence owns which block (manager) and the arithmetic of attention (ops).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstword.batch import CopySpan
from firstword.errors import ConfigError
from firstword.kvcache.spec import KVCacheSpec, KVGroup, head_bytes

KVArray = NDArray[Any]  # float16, bfloat16, float32, or int8 codes


@dataclass(frozen=True)
class KVView:
    """The keys, or the values, of one group in every block; views of its storage.

    Args:
        values: [num_blocks, layers, kv_heads, block_size, d]; in q8 they are codes.
        scales: [num_blocks, layers, kv_heads, block_size] in q8; None for other types.
    """

    values: KVArray
    scales: KVArray | None


class PagedStorage:
    """`num_blocks` pages that any group may use for a block of its own.

    A page holds the keys of all layers of its group, then their values; both are laid out as
    [layer, kv head, token, value], so that one head's block is one run of memory:

        | K layer 0 | K layer 1 | ... | V layer 0 | V layer 1 | ... | unused |

    In q8 the scales of all keys follow the keys, and those of all values the values.

    The memory is zeroed lazily by the operating system: a block costs nothing before it is used.

    Args:
        spec: the groups.
        num_blocks: pages in the arena, >= 0.

    Raises:
        ConfigError: `num_blocks` is negative.
    """

    def __init__(self, spec: KVCacheSpec, num_blocks: int) -> None:
        if num_blocks < 0:
            raise ConfigError(f"num_blocks is {num_blocks}: it must be at least 0")
        self._spec = spec
        self._pages = np.zeros((num_blocks, spec.page_bytes), dtype=np.uint8)

    @property
    def spec(self) -> KVCacheSpec:
        """The groups it was made for."""
        return self._spec

    @property
    def num_blocks(self) -> int:
        """Blocks it holds."""
        return len(self._pages)

    @property
    def nbytes(self) -> int:
        """Bytes it takes when every block is in use."""
        return self._pages.nbytes

    def keys(self, group: int) -> KVView:
        """Keys of a group in every block."""
        return self._views[group][0]

    def values(self, group: int) -> KVView:
        """Values of a group in every block."""
        return self._views[group][1]

    def state(self, group: int) -> NDArray[np.uint8]:
        """States of a state group in every block [num_blocks, layers, state_bytes]; a view."""
        kv_group = self._spec.groups[group]
        return self._view((len(kv_group.layers), kv_group.state_bytes), "uint8", 0)

    def copy(self, span: CopySpan) -> None:
        """Copy block `span.source` to block `span.destination`.

        The whole page is copied, whatever its count says: a page does not say which group it
        serves, and what lies beyond those tokens is stored anew before it is read.
        """
        self._pages[span.destination] = self._pages[span.source]

    def read_block(self, block: int) -> bytes:
        """The whole content of a block: `spec.page_bytes` bytes."""
        content: bytes = self._pages[block].tobytes()
        return content

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
        self._pages[block] = np.frombuffer(content, dtype=np.uint8)

    @cached_property
    def _views(self) -> tuple[tuple[KVView, KVView], ...]:
        return tuple(self._views_of(group) for group in self._spec.groups)

    def _views_of(self, group: KVGroup) -> tuple[KVView, KVView]:
        heads = 0 if group.kind == "state" else group.num_kv_heads
        shape = (len(group.layers), heads, self._spec.block_size, group.head_dim)
        key_bytes = prod(shape[:3]) * head_bytes(group.k_dtype, group.head_dim)
        return (
            self._kv_view(shape, group.k_dtype, 0),
            self._kv_view(shape, group.v_dtype, key_bytes),
        )

    def _kv_view(self, shape: tuple[int, ...], dtype: str, start: int) -> KVView:
        if dtype != "q8":
            return KVView(self._view(shape, dtype, start), None)
        scales = self._view(shape[:-1], "float16", start + prod(shape))
        return KVView(self._view(shape, "int8", start), scales)

    def _view(self, shape: tuple[int, ...], dtype: str, start: int) -> KVArray:
        """The bytes from `start` of every page as [num_blocks, *shape], without a copy."""
        np_dtype = _numpy_dtype(dtype)
        stop = start + prod(shape) * np_dtype.itemsize
        flat = self._pages[:, start:stop].view(np_dtype)
        return flat.reshape(self.num_blocks, *shape)


def _numpy_dtype(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        import ml_dtypes  # a compiled module that most runs never need

        name = ml_dtypes.bfloat16
    dtype: np.dtype[Any] = np.dtype(name)
    return dtype
