"""Which salts were given before: what is computed for one that never comes again is not kept.

Not here: what salts do to the names of blocks (kvcache.prefix_cache).
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from threading import Lock

MAX_SALTS = 4096
"""Salts remembered, those given last."""


class Salts:
    """Remembers salts by their digests; any thread may ask."""

    def __init__(self) -> None:
        self._digests: OrderedDict[bytes, None] = OrderedDict()
        self._lock = Lock()

    def is_given_again(self, salt: str) -> bool:
        """Note a salt of a request; say whether an earlier one had it. No salt is as good."""
        if not salt:
            return True
        digest = blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        with self._lock:
            was_known = digest in self._digests
            self._digests[digest] = None
            self._digests.move_to_end(digest)
            if len(self._digests) > MAX_SALTS:
                self._digests.popitem(last=False)
        return was_known
