"""The list names models, tokens and bytes, and survives what it cannot read."""

from __future__ import annotations

from pathlib import Path

from firstword.kvcache.disk.listing import list_stores
from tests.kvcache.disk.blocks import IDENTITY, OTHER, blocks, disk_bytes, files, store_of


def test_stores_are_listed_by_size(tmp_path: Path) -> None:
    assert list_stores(tmp_path / "none") == []
    for identity, number in ((IDENTITY, 2), (OTHER, 5)):
        store = store_of(tmp_path, identity)
        assert all(store.append(block) for block in blocks(number))
        store.close()
    large, small = list_stores(tmp_path)
    assert (large.name, large.settings, large.num_tokens) == ("tiny", "float32, native", 20)
    assert (small.settings, small.num_tokens) == ("float16, native", 8)
    assert large.num_bytes + small.num_bytes == disk_bytes(tmp_path)
    assert large.folder == tmp_path / OTHER.digest.hex()


def test_what_cannot_be_read_is_listed_all_the_same(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    assert all(store.append(block) for block in blocks(2))
    store.close()
    (tmp_path / IDENTITY.digest.hex() / "about.json").write_text("[]")
    files(tmp_path, ".idx")[0].write_bytes(b"")
    (tmp_path / "empty").mkdir()
    [listed] = list_stores(tmp_path)
    assert (listed.name, listed.num_tokens) == ("an unknown model", 0)
