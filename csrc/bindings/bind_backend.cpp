// Backend, Weights and Pages.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <stdexcept>

#include "bindings/bindings.h"
#include "bindings/pages.h"
#include "core/backend.h"
#include "core/peak.h"
#include "core/weights.h"
#include "fmt/repack.h"

using namespace nb::literals;

namespace fw {

namespace {

// The format of a matrix that can be.
Format checked_format(int32_t ggml_type, int64_t n, int64_t k) {
  Format format;
  if (!panel_format(ggml_type, &format)) throw std::invalid_argument("no panels for this type");
  if (n < 1 || k < 1 || k % panel_block_columns(format) != 0) {
    throw std::invalid_argument("no panels of this shape");
  }
  return format;
}

void check_size(size_t found, int64_t expected) {
  if (static_cast<int64_t>(found) != expected) {
    throw std::invalid_argument("the bytes do not match the shape");
  }
}

int64_t matrix_panel_bytes(int32_t ggml_type, int64_t n, int64_t k) {
  return panel_bytes(checked_format(ggml_type, n, k), n, k);
}

void repack_into(Backend& backend, int32_t ggml_type, int64_t n, int64_t k,
                 const Array<uint8_t, 1>& data, const WritableArray<uint8_t, 1>& panels) {
  check_size(panels.size(), matrix_panel_bytes(ggml_type, n, k));
  check_size(data.size(), n * row_bytes(ggml_type, k));
  const nb::gil_scoped_release release;
  repack_matrix(backend.pool, ggml_type, data.data(), n, k, panels.data());
}

int add_panels(Weights& weights, int32_t ggml_type, int64_t n, int64_t k,
               const Array<uint8_t, 1>& panels) {
  check_size(panels.size(), matrix_panel_bytes(ggml_type, n, k));
  if (reinterpret_cast<uintptr_t>(panels.data()) % 64 != 0) {
    throw std::invalid_argument("panels must be aligned to 64 bytes");
  }
  return weights.add_panels({panels.data(), checked_format(ggml_type, n, k), n, k});
}

int add_matrix(Weights& weights, Backend& backend, int32_t ggml_type, int64_t n, int64_t k,
               const Array<uint8_t, 1>& data) {
  checked_format(ggml_type, n, k);
  check_size(data.size(), n * row_bytes(ggml_type, k));
  const nb::gil_scoped_release release;
  return weights.add_matrix(backend.pool, ggml_type, data.data(), n, k);
}

int add_vector(Weights& weights, const Array<float, 1>& values) {
  return weights.add_vector(values.data(), static_cast<int64_t>(values.size()));
}

nb::bytes read_page(const Pages& pages, int64_t block) {
  const auto size = static_cast<size_t>(pages.page_bytes);
  return nb::bytes(reinterpret_cast<const char*>(pages.at(block)), size);
}

void write_page(Pages& pages, int64_t block, const nb::bytes& content) {
  if (static_cast<int64_t>(content.size()) != pages.page_bytes) {
    throw std::invalid_argument("the content is not one page long");
  }
  std::memcpy(pages.at(block), content.c_str(), content.size());
}

}  // namespace

void bind_backend(nb::module_& m) {
  nb::class_<Backend>(m, "Backend")
      .def(
          "__init__",
          [](Backend* self, int num_threads, const char* isa) {
            if (num_threads < 1) throw std::invalid_argument("num_threads must be at least 1");
            new (self) Backend(num_threads, *isa == '\0' ? kernels() : kernels_of(isa));
          },
          "num_threads"_a, "isa"_a = "")
      .def_prop_ro("isa", [](const Backend& self) { return self.table.isa; })
      .def_prop_ro("num_threads", [](const Backend& self) { return self.pool.size(); })
      .def("mac_rate", &mac_rate, "wide"_a, nb::call_guard<nb::gil_scoped_release>());

  nb::class_<Weights>(m, "Weights")
      .def(nb::init<>())
      .def("add_matrix", &add_matrix, "backend"_a, "ggml_type"_a, "n"_a, "k"_a, "data"_a)
      .def("add_panels", &add_panels, "ggml_type"_a, "n"_a, "k"_a, "panels"_a,
           nb::keep_alive<1, 5>())
      .def("add_vector", &add_vector, "values"_a)
      .def_prop_ro("nbytes", &Weights::num_bytes);

  nb::class_<Pages>(m, "Pages")
      .def(
          "__init__",
          [](Pages* self, int64_t num_blocks, int64_t page_bytes, bool q8) {
            new (self) Pages(num_blocks, page_bytes, q8 ? KVType::kQ8 : KVType::kF16);
          },
          "num_blocks"_a, "page_bytes"_a, "q8"_a)
      .def("read", &read_page, "block"_a)
      .def("write", &write_page, "block"_a, "content"_a);

  m.def("built_isas", &built_isas);
  m.def("usable_isas", &usable_isas);
  m.attr("MAX_Q8_HEAD_DIM") = kMaxQ8HeadDim;
  m.attr("PANEL_LAYOUT_VERSION") = kPanelLayoutVersion;
  m.def("panel_bytes", &matrix_panel_bytes, "ggml_type"_a, "n"_a, "k"_a);
  m.def("repack", &repack_into, "backend"_a, "ggml_type"_a, "n"_a, "k"_a, "data"_a, "panels"_a);
}

}  // namespace fw
