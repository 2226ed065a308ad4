#include "core/memory.h"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace fw {

Memory::Memory(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<uint8_t*>(pages);
#if defined(MADV_HUGEPAGE)
  constexpr size_t kHugePage = 2 << 20;
  if (bytes >= kHugePage) madvise(pages, bytes, MADV_HUGEPAGE);  // a wish: it may be refused
#endif
}

Memory::~Memory() {
  if (data_ != nullptr) munmap(data_, size_);
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void Memory::reserve(size_t bytes) {
  if (bytes > size_) *this = Memory(bytes);
}

}  // namespace fw
