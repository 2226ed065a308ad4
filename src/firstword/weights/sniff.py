"""Says what a file that is not GGUF looks like, and what to do about it. It opens nothing."""

from __future__ import annotations

_DOWNLOAD = "download the model file itself"
_LOOKS: tuple[tuple[tuple[bytes, ...], str], ...] = (
    (
        (b"version https://git-lfs",),
        "is a Git LFS pointer, not the model: run `git lfs pull` in its repository, "
        f"or {_DOWNLOAD}",
    ),
    (
        (b"<!doctype", b"<html", b"<?xml"),
        f"is a web page, not a model: {_DOWNLOAD} (the page's download link, not its address)",
    ),
    (
        (b"lmgg", b"fmgg", b"tjgg"),
        "is in GGML, the format before GGUF: look for the model's GGUF file",
    ),
    (
        (b"pk\x03\x04", b"\x80\x02"),
        "is a PyTorch checkpoint or an archive: look for the model's GGUF file",
    ),
    ((b"\x1f\x8b", b"bzh", b"\xfd7zxz", b"(\xb5/\xfd"), "is compressed: unpack it first"),
    ((b"{", b"["), "is a JSON file: look for the model's GGUF file"),
)


def describe(head: bytes) -> str:
    """The problem with a file that does not begin with `GGUF`.

    Args:
        head: the first bytes of the file, 512 of them if it has so many.
    """
    if not head:
        return "is empty: the download did not finish, download it again"
    if not head.strip(b"\0"):
        return "begins with zeros only: the download did not finish, download it again"
    if _is_safetensors(head):
        return "is a safetensors file, which is not read yet: look for the model's GGUF file"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for starts, problem in _LOOKS:
        if text.startswith(starts):
            return problem
    return f"expected b'GGUF', found {head[:4]!r}: not a GGUF file, or a damaged one"


def _is_safetensors(head: bytes) -> bool:
    """The length of a JSON header in 8 bytes, then the header."""
    return len(head) > 9 and 2 <= int.from_bytes(head[:8], "little") < 2**32 and head[8:9] == b"{"
