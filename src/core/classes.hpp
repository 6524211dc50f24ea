// Boxes of models with three or more classes: bounds of margins and of their
// differences, splits, masses.
#pragma once

#include <cstdint>
#include <vector>

#include "forest.hpp"

namespace boxqte {

/// What is known of boxes: box x class, box x class x class, box x 2.
struct ClassBounds {
  std::int64_t* least;  ///< of every class's margin
  std::int64_t* most;
  std::int64_t* lead;  ///< [c][r] is at most F_c - F_r
  std::int64_t* cut;   ///< (axis, base cell) that most of the spread hangs on;
                       ///< the axis is -1 if no tree is undecided
};

/// Bounds on boxes given by their first and last base cells (box x axis).
void bound_classes(const Forest& forest, const std::int32_t* low, const std::int32_t* high, std::size_t n,
                   const ClassBounds& out);

/// Both sides of every box (box x axis x first and last refined cell): at its
/// cut, or in the middle of the axis with the most cells. The lower sides come
/// first.
void split_boxes(const Forest& forest, const std::int64_t* ranges, const std::int64_t* cut, std::size_t n,
                 std::int64_t* sides);

/// The mass of every box: sums of cells (axis x refined cell), then a product,
/// as class_rounding_bound counts.
void box_masses(const std::int64_t* ranges, std::size_t n, std::size_t n_axes, const double* mass, std::size_t width,
                double* total);

}  // namespace boxqte
