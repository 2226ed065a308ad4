import struct

import pytest

from firstword.weights.sniff import describe


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"", ["empty", "download it again"]),
        (bytes(512), ["zeros", "download it again"]),
        (b"<!DOCTYPE html><html>", ["web page", "download"]),
        (b"\n  <HTML>", ["web page"]),
        (b"version https://git-lfs.github.com/spec/v1\noid", ["Git LFS pointer", "git lfs pull"]),
        (struct.pack("<Q", 40) + b'{"__metadata__":{}}', ["safetensors", "GGUF file"]),
        (b"PK\x03\x04rest", ["PyTorch", "GGUF file"]),
        (b"tjgg\x01\x00\x00\x00", ["GGML", "GGUF file"]),
        (b'{"error": "not found"}', ["JSON"]),
        (b"\x1f\x8b\x08", ["compressed", "unpack"]),
        (b"\x7fELF\x02\x01", ["b'GGUF'", "\\x7fELF"]),
        (b"GG", ["b'GGUF'", "b'GG'"]),
    ],
)
def test_says_what_it_looks_like_and_what_to_do(head: bytes, words: list[str]) -> None:
    problem = describe(head)
    for word in words:
        assert word in problem
