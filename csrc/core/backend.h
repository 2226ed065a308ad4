// The threads and the kernels that one model computes with.
#pragma once

#include "core/thread_pool.h"
#include "kernels/table.h"

namespace fw {

struct Backend {
  Backend(int num_threads, const KernelTable& kernel_table)
      : pool(num_threads), table(kernel_table) {}

  ThreadPool pool;
  const KernelTable& table;
};

}  // namespace fw
