#include "fmt/panel.h"

namespace fw {
namespace {

struct FormatInfo {
  int64_t columns, bytes;  // of a block
  ActivationKind activations;
};

// In the order of Format.
constexpr FormatInfo kFormats[] = {
    {32, 576, ActivationKind::A32},     {32, 640, ActivationKind::A32},
    {32, 704, ActivationKind::A32},     {32, 768, ActivationKind::A32},
    {32, 1088, ActivationKind::A32},    {32, 1152, ActivationKind::A32},
    {256, 2688, ActivationKind::A256},  {256, 3648, ActivationKind::A256},
    {256, 4608, ActivationKind::A256},  {256, 5632, ActivationKind::A256},
    {256, 6720, ActivationKind::A256},  {256, 8512, ActivationKind::A256},
    {1, 64, ActivationKind::F32},       {1, 64, ActivationKind::F32},
    {1, 128, ActivationKind::F32},
};

const FormatInfo& info(Format format) { return kFormats[static_cast<int32_t>(format)]; }

}  // namespace

int64_t panel_block_columns(Format format) { return info(format).columns; }

int64_t panel_block_bytes(Format format) { return info(format).bytes; }

ActivationKind activation_kind(Format format) { return info(format).activations; }

int64_t panel_bytes(Format format, int64_t n, int64_t k) {
  const int64_t panels = (n + kPanelRows - 1) / kPanelRows;
  return panels * (k / info(format).columns) * info(format).bytes;
}

}  // namespace fw
