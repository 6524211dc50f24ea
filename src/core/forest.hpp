// The trees behind single points: nodes in preorder, tests on base cells, leaf
// values in 64 bits.
#pragma once

#include <cstdint>
#include <vector>

#include "bits.hpp"

namespace boxqte {

/// An attribute of the space as the points' axes know it.
struct PointAxis {
  int n_cells = 1;
  int ordered = 1;  ///< cells that a window may span; behind them lies the
                    ///< missing value, which only reaches itself
  bool sensitive = false;
  int number = -1;  ///< among the axes that some tree tests; -1 if none does
  std::vector<std::int32_t> base, low,
      high;                          ///< refined cell -> its base cell, the range of base cells in reach
  std::vector<std::uint8_t> single;  ///< base cell -> whether it is one point

  bool wide() const;  ///< whether some x' may lie in another cell
};

/// The yes side of node n is n + 1, its no side `no[n]`; axes are those that
/// some tree tests.
struct Forest {
  std::vector<std::int32_t> axis;  ///< -1 at a leaf
  std::vector<std::int32_t> cut;   ///< the cells below it go to yes; if negative,
                                   ///< row -1 - cut of `odd` says which
  std::vector<std::int32_t> no;
  std::vector<std::int64_t> value;  ///< node x width
  int width = 1;                    ///< 1, or one value an output
  std::vector<std::int32_t> root;
  std::vector<std::int32_t> output;  ///< tree -> the output that it feeds; -1:
                                     ///< each, with a value of its own
  std::vector<std::int64_t> base;    ///< output -> its constant part
  std::vector<std::int32_t> odd;     ///< row x cell: how many of the cells before this one go to yes
  int odd_width = 1;
  std::vector<PointAxis> grid;       ///< all attributes
  std::vector<std::int32_t> tested;  ///< axis -> attribute

  // Made by `prepare`.
  std::vector<std::int32_t> limit;   ///< node -> how many of the ordered cells go
                                     ///< to yes, if these come first; else -1
  std::vector<std::uint8_t> ragged;  ///< axis -> whether some node's limit is -1
  bool free_partner = false;         ///< an attribute that no tree tests lets x' differ
                                     ///< at no cost, or none is sensitive

  int n_axes() const { return static_cast<int>(tested.size()); }
  int n_outputs() const { return static_cast<int>(base.size()); }
  const PointAxis& of(int a) const { return grid[tested[a]]; }

  /// What a leaf adds to an output.
  std::int64_t adds(int tree, int leaf, int to) const {
    if (output[tree] < 0) return value[static_cast<std::size_t>(leaf) * width + to];
    return output[tree] == to ? value[static_cast<std::size_t>(leaf) * width] : 0;
  }
  bool goes_yes(int node, int cell) const {
    if (cut[node] >= 0) return cell < cut[node];
    const std::int32_t* row = odd.data() + static_cast<std::ptrdiff_t>(-1 - cut[node]) * odd_width;
    return row[cell + 1] > row[cell];
  }
  /// 1 if all cells low..high go to yes, 0 if none does, -1 if some do.
  int side(int node, int low, int high) const {
    if (cut[node] >= 0) return high < cut[node] ? 1 : low >= cut[node] ? 0 : -1;
    const std::int32_t* row = odd.data() + static_cast<std::ptrdiff_t>(-1 - cut[node]) * odd_width;
    const int inside = row[high + 1] - row[low];
    return inside == 0 ? 0 : inside == high - low + 1 ? 1 : -1;
  }

  /// Throws std::invalid_argument unless all indices fit; fills in what is
  /// derived.
  void prepare();
};

}  // namespace boxqte
