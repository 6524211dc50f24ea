// What the binding files share. The only header that knows Python.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace boxqte {

namespace nb = nanobind;

template <class T, int Dim>
using Array = nb::ndarray<T, nb::ndim<Dim>, nb::c_contig, nb::device::cpu>;

template <class Numbers>
auto to_vector(const Numbers& array) {
  return std::vector<std::remove_const_t<typename Numbers::Scalar>>(array.data(), array.data() + array.size());
}

/// A numpy array that owns the numbers; no copy is made.
template <class T>
nb::ndarray<nb::numpy, T> to_numpy(std::vector<T>&& numbers, std::initializer_list<std::size_t> shape) {
  auto* kept = new std::vector<T>(std::move(numbers));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::ndarray<nb::numpy, T>(kept->data(), shape, owner);
}

void bind_problem(nb::module_& m);
void bind_exchange(nb::module_& m);
void bind_window(nb::module_& m);
void bind_points(nb::module_& m);

}  // namespace boxqte
