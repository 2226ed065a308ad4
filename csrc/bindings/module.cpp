// firstword._native: only ops.native* and the native twins in sampling, text and weights import it.
// This folder checks arguments, releases the interpreter lock and calls; it computes nothing.
#include "bindings/bindings.h"

NB_MODULE(_native, m) {
  // What a script keeps until it ends is no leak.
  nanobind::set_leak_warnings(false);
  m.doc() = "Compiled kernels and the interpreter of plans.";
  fw::bind_backend(m);
  fw::bind_plan(m);
  fw::bind_step(m);
  fw::bind_sample(m);
  fw::bind_text(m);
}
