// The KV pool as Python holds it.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "core/memory.h"
#include "kernels/kv_store.h"

namespace fw {

struct Pages {
  Pages(int64_t blocks, int64_t bytes, KVType type)
      : num_blocks(blocks), page_bytes(bytes), kv_type(type),
        memory(static_cast<size_t>(blocks * bytes)) {}

  uint8_t* at(int64_t block) const {
    if (block < 0 || block >= num_blocks) throw std::out_of_range("no such block");
    return memory.data() + block * page_bytes;
  }

  const int64_t num_blocks, page_bytes;
  const KVType kv_type;
  Memory memory;
};

}  // namespace fw
