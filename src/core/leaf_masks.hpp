// One bit a leaf: which leaves of every tree do the cells of a box reach?
//
// A leaf is a product of cell sets, one an axis, so a box reaches it iff it
// does on every axis: the answer for all trees is the AND of a few rows of
// words. On an axis whose cuts are thresholds a leaf holds a range of cells; a
// range meets low..high iff it begins at or before `high` (row upto[high]) and
// ends at or after `low` (row from[low]). With one value a leaf, the bits of a
// tree are sorted by value: its smallest value on the box is that of the first
// bit, its largest that of the last.
#pragma once

#include <cstdint>
#include <vector>

#include "forest.hpp"

namespace boxqte {

/// out = the AND of the rows; the first of them may be `out` itself.
void meet_rows(const Word* const* rows, int n_rows, int n, Word* out);

/// A tree's words, and how it counts.
struct MaskedTree {
  std::int32_t word = 0, words = 1;
  std::int32_t output = 0;
  bool dependent = false;  ///< tests a sensitive axis
};

/// Cells of an axis, counted from the first that has a row.
struct CellRange {
  std::uint16_t low, high;
};

class LeafMasks {
 public:
  /// Rows of one axis, for the cells from `first` on.
  struct Rows {
    int first = 0, n = 0;
    bool ragged = false;               ///< some leaf holds cells that are no range, or there
                                       ///< are too many to number them in 16 bits
    bool ranged = false;               ///< has rows upto and from
    int wide = -1;                     ///< its place in a leaf's ranges
    std::vector<Word> upto, from, at;  ///< a row a cell
  };

  /// About how many bytes the masks of the whole forest take.
  static std::size_t bytes_needed(const Forest& forest);

  /// The leaves that the box low..high (axis -> cells) reaches.
  void build(const Forest& forest, const std::int32_t* low, const std::int32_t* high);

  int stride() const { return stride_; }
  const Rows& rows(int axis) const { return rows_[axis]; }
  const Word* upto(int axis, int cell) const { return row(rows_[axis].upto, axis, cell); }
  const Word* from(int axis, int cell) const { return row(rows_[axis].from, axis, cell); }
  const Word* at(int axis, int cell) const { return row(rows_[axis].at, axis, cell); }

  std::vector<MaskedTree> trees;       ///< by output, sensitive-dependent ones last;
                                       ///< trees of one leaf are in `constant`
  std::vector<int> output_start;       ///< output -> its first tree; one more at the end; those
                                       ///< that feed all outputs come before
  std::vector<std::int64_t> constant;  ///< output -> its base and the trees of one leaf
  std::vector<Word> all;               ///< word -> the bits in use
  bool sorted = true;                  ///< by value
  std::vector<std::int64_t> value;     ///< output x leaf (one row if every tree feeds one output); a leaf
                                       ///< is 64 * word + bit
  std::vector<std::int32_t> narrow;    ///< `value` in units of 2**narrow_shift, rounded: sums of a leaf
                                       ///< a tree fit in 31 bits
  int narrow_shift = 0;
  std::vector<CellRange> ranges;  ///< leaf x wide axis: its cells
  int n_wide = 0;
  int words_used = 0;

  std::size_t n_leaves() const { return static_cast<std::size_t>(words_used) * word_bits; }
  const std::int64_t* values(int output) const { return value.data() + (sorted ? 0 : output * n_leaves()); }
  const std::int32_t* narrows(int output) const { return narrow.data() + (sorted ? 0 : output * n_leaves()); }

 private:
  struct Inner {
    std::int32_t node, begin, middle,
        end;  ///< leaves begin..middle lie on its yes side, middle..end on its
              ///< no side
  };
  /// A tree as it was walked: its leaves and its open tests.
  struct Walked {
    std::int32_t tree, leaf, leaves, inner, inners;
    bool dependent;
  };

  const Word* row(const std::vector<Word>& rows, int axis, int cell) const {
    return rows.data() + static_cast<std::ptrdiff_t>(cell - rows_[axis].first) * stride_;
  }
  void lay_out_axes(const Forest& forest, const std::int32_t* low, const std::int32_t* high);
  void walk_trees(const Forest& forest);
  void walk(const Forest& forest, int node);
  void place_tree(const Forest& forest, const Walked& walked, const MaskedTree& tree);
  void cross_out(const Forest& forest, const Inner& inner, const MaskedTree& tree);
  void run_rows(const Forest& forest);
  void make_narrow();

  int stride_ = 0;
  std::vector<Rows> rows_;
  // While building.
  std::vector<std::int32_t> box_low_, box_high_, low_, high_;
  std::vector<std::uint8_t> narrows_;  ///< axis -> whether tests on the way
                                       ///< narrow what later tests see
  std::vector<Walked> walked_;
  std::vector<Inner> inner_;
  std::vector<std::int32_t> leaf_node_;
  std::vector<CellRange> leaf_ranges_;
  std::vector<std::int32_t> bit_;  ///< leaf as it was walked -> its bit in its tree
  std::vector<std::int32_t> order_;
  std::vector<Word> keep_yes_, keep_no_;
};

}  // namespace boxqte
