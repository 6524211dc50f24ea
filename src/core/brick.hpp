// A brick: the moving and sensitive axes of a box, compacted to the cuts that are left (docs/engine.md, 'Bricks').
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "node.hpp"

namespace boxqte {

/// What the x along one moving axis reach, in groups of cells. Both ends grow with x, so the windows within a range of
/// groups are a range of windows, and their mass is a difference of two prefix sums (Theorem 6).
struct Windows {
  std::vector<std::int32_t> low, high, base;  ///< window -> the groups it covers, its own group
  std::vector<double> mass;
  std::vector<double> before;            ///< window -> the mass of all before it; one more at the end
  std::vector<std::int32_t> first_from;  ///< group p -> the first window that begins at p or later
  std::vector<std::int32_t> end_at;      ///< group q -> one past the last window that ends at q or before
  std::vector<std::int32_t> of_base;  ///< group g -> the first window whose own group is g or later; one more at the end
  int widest = 1;                     ///< groups of the widest window

  int size() const { return static_cast<int>(mass.size()); }
  double within(int p, int q) const {
    const std::int32_t first = first_from[p], end = end_at[q];
    return end > first ? before[end] - before[first] : 0.0;
  }
};

/// One axis, compacted to a set of cuts: cells that no cut tells apart are a group.
struct AxisLayout {
  int axis = -1;                    ///< -1: an axis of one cell, where a brick has no other
  int id = 0;                       ///< one number a layout, for the whole life of a worker
  std::vector<std::int32_t> group;  ///< cell -> its group
  std::vector<std::int32_t> cell;   ///< group -> its first cell
  std::vector<double> mass;
  std::vector<std::uint8_t> single;      ///< group -> whether it is one point
  std::vector<std::int32_t> yes_groups;  ///< cut of a chain -> how many groups it sends to yes
  Windows merged, own;  ///< windows that cover the same groups are one; own: and have the same own group
  std::vector<std::int32_t> core_low, core_high;  ///< group -> what all windows of x in it cover ('Cores')

  int size() const { return static_cast<int>(cell.size()); }
  std::size_t bytes() const;
};

/// The layouts met so far: bricks share most of them.
class Layouts {
 public:
  explicit Layouts(const Problem& problem);

  /// The layout of an axis for the cuts whose bits are set.
  const AxisLayout& of(int axis, const Word* cuts);
  const AxisLayout& one_cell() const { return one_cell_; }

  /// A number for a sequence of layouts, given the number of what follows the first.
  int sequence(int layout, int rest);

  /// Forget layouts that no brick uses, if they are many.
  void tidy();
  std::size_t bytes() const { return bytes_; }

 private:
  AxisLayout made(int axis, const Word* cuts) const;

  const Problem& problem_;
  std::vector<std::map<std::vector<Word>, AxisLayout>> known_;
  std::map<std::pair<int, int>, int> sequences_;
  AxisLayout one_cell_;
  std::vector<Word> key_;
  int next_id_ = 1;
  int next_sequence_ = 1;
  std::size_t bytes_ = 0;
};

struct Brick {
  std::vector<const AxisLayout*> axes;  ///< the sensitive ones, the moving ones by size, last the one whose cells are bits
  std::vector<std::int32_t> place;      ///< axis of the problem -> its index in `axes`, -1 none
  int n_sensitive = 0;
  int combinations = 1;   ///< of groups of the sensitive axes
  std::int64_t rows = 1;  ///< of one combination: all but the last axis
  int n_last = 1;         ///< groups of the last axis, at most 64
  int padded = 8;         ///< the same, to whole vectors of eight
  std::vector<double> combination_mass;
  std::vector<std::uint8_t> combination_single;  ///< a single point: x' must take another combination (Theorem 8)
  bool own_matters = false;                      ///< x's own cell matters, not only its window
  std::vector<int> sequence;                     ///< moving axis -> number of the layouts from it on

  int n_levels() const { return static_cast<int>(axes.size()) - n_sensitive - 1; }  ///< moving axes but the last
  const AxisLayout& level(int i) const { return *axes[n_sensitive + i]; }
  const AxisLayout& last() const { return *axes.back(); }
  std::int64_t all_rows() const { return rows * combinations; }
  double cells() const { return static_cast<double>(all_rows()) * n_last; }
  bool too_large = false;  ///< more cells than any memory holds; then nothing but `rows` is right

  /// Compact the axes to the cuts that the node's trees still test.
  /// signs_only: x's own cell matters only where it is a single point.
  void lay(const Nodes& nodes, const Node& node, Layouts& layouts, bool signs_only);

 private:
  void lay_combinations(bool points_matter, bool signs_only);
  std::vector<Word> active_;
};

}  // namespace boxqte
