// Large pieces of zeroed memory that cost nothing before they are touched.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fw {

// Memory of the operating system's own pages: aligned to 64 bytes and more, zero, huge pages where
// there are any. Throws std::bad_alloc.
class Memory {
 public:
  Memory() = default;
  explicit Memory(size_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  // Makes it at least `bytes` large; what it held may be lost.
  void reserve(size_t bytes);

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace fw
