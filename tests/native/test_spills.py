"""No vector register of a matrix product's inner loop goes through the stack.

Looked at: the innermost loops with dot products or multiply-adds in the gemm_* functions of the
built units for AVX2 and AVX-512, as GCC 12 compiles them. A vector register stored to or loaded
from the stack there is a spill. Not looked at: outer loops, scalar registers (pointers and counters
that are read back from the stack cost nothing beside 64 dot products), and the stream_* functions
for few tokens, which wait for memory.

AVX2 has 16 registers: sums of 32 bits and outputs wait in the caller's scratch, not on the stack.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.disassembly import Function, Instruction, disassemble, parse

BUILD = Path(__file__).parents[2] / "build"
COMPILER = "GCC: (Debian 12."
_GEMM = re.compile(r"::(gemm_(?:float|narrow|wide))<")
_PRODUCT = re.compile(r"vpmaddubsw|vpdpbusd|vfmadd")
_VECTOR = re.compile(r"%[xyz]mm")

NUM_FORMATS = {"gemm_float": 3, "gemm_narrow": 6, "gemm_wide": 6}
MIN_PRODUCTS = {"gemm_float": 8, "gemm_narrow": 64, "gemm_wide": 64}
"""Products in the largest inner loop: the one that all large batches go through."""


def unit(isa: str, family: str = "linear") -> Path:
    """The object file of a unit, if it is there and of the compiler that the test is about."""
    found = sorted(BUILD.glob(f"cp*/CMakeFiles/isa_{isa}.dir/isa/{isa}_{family}.cpp.o"))
    if not found:
        pytest.skip("the module was not built here: scripts/install dev builds it")
    if shutil.which("objdump") is None or shutil.which("readelf") is None:
        pytest.skip("objdump and readelf are not installed (Debian: apt install binutils)")
    newest = max(found, key=lambda path: path.stat().st_mtime)
    comment = subprocess.run(
        ["readelf", "-p", ".comment", str(newest)], capture_output=True, text=True, check=True
    ).stdout
    if COMPILER not in comment:
        pytest.skip(f"registers are allocated otherwise by another compiler than {COMPILER}x)")
    return newest


def kind_of(function: Function) -> str | None:
    found = _GEMM.search(function.name)
    return found[1] if found else None


def product_loops(function: Function) -> list[tuple[Instruction, ...]]:
    return [loop for loop in function.innermost_loops() if num_products(loop)]


def num_products(loop: tuple[Instruction, ...]) -> int:
    return sum(bool(_PRODUCT.match(i.name)) for i in loop)


def spills(function: Function, loop: tuple[Instruction, ...]) -> list[Instruction]:
    return [i for i in function.stack_uses(loop) if _VECTOR.search(i.operands)]


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_vector_registers_stay_in_registers_in_inner_loops(isa: str) -> None:
    functions = [f for f in disassemble(unit(isa)) if kind_of(f)]
    for kind, num_formats in NUM_FORMATS.items():
        ours = [f for f in functions if kind_of(f) == kind]
        assert len(ours) == num_formats, [f.name for f in ours]
        for function in ours:
            loops = product_loops(function)
            assert max(map(num_products, loops)) >= MIN_PRODUCTS[kind], function.name
            for loop in loops:
                found = spills(function, loop)
                assert not found, (function.name, [str(i) for i in found])


@pytest.mark.parametrize(("isa", "most"), [("avx2", 6), ("avx512", 12)])
def test_dot_products_of_codes_keep_their_registers(isa: str, most: int) -> None:
    """The tiles of 1 to 6 queries by 8-bit keys; GCC may put them into any function."""
    functions = disassemble(unit(isa, "attention"))
    loops = [
        (function, loop)
        for function in functions
        for loop in function.innermost_loops()
        if any(re.match("vpmaddubsw|vpdpbusd", i.name) for i in loop)
    ]
    assert len(loops) >= 6
    assert max(num_products(loop) for _, loop in loops) >= most
    for function, loop in loops:
        found = spills(function, loop)
        assert not found, (function.name, [str(i) for i in found])


LISTING = """
0000000000000010 <fw::(anonymous namespace)::gemm_narrow<(fw::Format)0>(int)>:
  10:	push   %rbp
  11:	mov    %rsp,%rbp
  14:	vmovaps 0x40(%rsp),%ymm1
  20:	vpmaddubsw (%rax),%ymm1,%ymm2
  24:	vmovaps %ymm2,-0x50(%rbp)
  28:	lea    0x8(%rsp),%rdx
  2c:	mov    0x10(%rsp),%rcx
  30:	jne    20 <fw::f+0x10>
  34:	vmovaps %ymm3,0x60(%rsp)
  38:	jmp    14 <fw::f+0x4>
  3c:	ret

0000000000000040 <other>:
  40:	vmovaps (%rbp),%ymm1
  44:	jne    40 <other>
"""


def test_a_spill_in_an_inner_loop_is_found_and_others_are_not() -> None:
    function, other = parse(LISTING)
    assert kind_of(function) == "gemm_narrow"
    (loop,) = product_loops(function)
    assert [i.address for i in loop] == [0x20, 0x24, 0x28, 0x2C, 0x30]
    assert [i.address for i in function.stack_uses(loop)] == [0x24, 0x2C]
    assert [i.address for i in spills(function, loop)] == [0x24]
    assert not other.has_frame
    assert spills(other, *other.innermost_loops()) == []
