// Macros of the vector units; nothing that leaves a symbol behind.
#pragma once

#define FW_INLINE [[gnu::always_inline]] inline
// For loops over vectors, tokens and k-groups: unrolled, their arrays stay in registers.
#define FW_UNROLL _Pragma("GCC unroll 16")
