// Epsilon = 0: the margins of a point for all sensitive combinations at once.
//
// x' shares all other cells with x, so these leave of each tree that does not
// test a sensitive axis one leaf, and of the others the few leaves that some
// combination reaches. The set of combinations of a leaf is a product of sets
// of cells; its value is added where the set's difference along every sensitive
// axis is not 0, and running sums along these axes give all margins.
#pragma once

#include <cstdint>
#include <vector>

#include "leaf_masks.hpp"

namespace boxqte {

class CombinationSums {
 public:
  /// Whether the forest has few enough combinations, and no other axis on which
  /// x' may leave x's cell.
  static bool fits(const Forest& forest);

  /// The masks must be those of the whole forest.
  CombinationSums(const Forest& forest, const LeafMasks& masks);

  int size() const { return n_; }
  int combination_of(const std::int32_t* cells) const;
  /// Put the sensitive cells of a combination into `cells`.
  void take_cells(int combination, std::int32_t* cells) const;

  /// For points given by their base cells (point x axis): their margins, point
  /// x output x combination.
  void sum(const std::int32_t* cells, int n_points, std::int64_t* totals) const;

 private:
  /// Where a leaf's value is added or taken away: the combination and how, see
  /// `counted`. Two are all that most leaves need, and a loop over one or two
  /// costs more than the second.
  struct Corners {
    std::uint16_t one, two;
  };
  enum How : unsigned { plus = 0, minus = 1, nothing = 2, and_more = 4 };
  static constexpr int how_bits = 3;

  /// Trees whose words lie side by side, few enough for a cache to keep their
  /// rows.
  struct Tile {
    int first_tree, last_tree, word, words;
    int output;
    bool simple;  ///< one word a tree, and all feed that output
  };

  void add_tile(const Tile& tile, const std::int32_t* cells, int n_points, std::int64_t* totals) const;
  void add_leaves(const MaskedTree& tree, const Word* words, std::int64_t* total) const;
  void add_leaf(const MaskedTree& tree, std::size_t leaf, std::int64_t* total) const;
  void add_corners(std::size_t leaf, std::int64_t value, std::int64_t* total) const;
  /// The value, its negative or nothing.
  static std::int64_t counted(std::int64_t value, unsigned how) {
    const std::int64_t negative = -static_cast<std::int64_t>(how & minus),
                       kept = static_cast<std::int64_t>((how >> 1) & 1) - 1;
    return ((value ^ negative) - negative) & kept;
  }
  void note_corners(const Forest& forest, int tree);

  const Forest& forest_;
  const LeafMasks& masks_;
  int n_ = 1, n_outputs_;
  std::vector<int> axes_,
      others_;               ///< sensitive axes, and the others that have rows
  std::vector<int> stride_;  ///< of each sensitive axis among the combinations
  std::vector<Tile> tiles_;
  std::vector<Corners> corners_;  ///< of each leaf
  std::vector<std::uint32_t> more_start_,
      more_;  ///< leaf -> its corners beyond the second
};

}  // namespace boxqte
