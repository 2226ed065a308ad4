// What the binding files share: array types, and one function per file.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>

namespace nb = nanobind;

namespace fw {

template <typename T, int N>
using Array = nb::ndarray<const T, nb::numpy, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

template <typename T, int N>
using WritableArray = nb::ndarray<T, nb::numpy, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

void bind_backend(nb::module_& m);
void bind_plan(nb::module_& m);
void bind_step(nb::module_& m);
void bind_sample(nb::module_& m);
void bind_text(nb::module_& m);

}  // namespace fw
