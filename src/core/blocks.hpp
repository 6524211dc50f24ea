// Bricks too large for a table over all their cells: the outer axes are fixed group by group, and the signs are sums of one table
// a scope over the last three axes, added in registers ('Large bricks').
#pragma once

#include <atomic>
#include <span>
#include <vector>

#include "measure.hpp"

namespace boxqte {

class Blocks {
 public:
  Blocks(Nodes& nodes, const Brick& brick, const Limits& limits, Memory& memory, const std::atomic<bool>& halted);

  /// Tables over at most so many cells (but the last axis always).
  void lay(const Scale& scale, std::int64_t most_cells);

  /// Write the bitmaps of the sum of the trees, for every offset: the k-th one to bitmaps.targets(k).
  template <class W>
  void write(std::span<const TreeId> trees, std::span<const Offset> offsets, const Bitmaps<W>& bitmaps);

 private:
  struct Sides {
    int below = -1, above = -1;  ///< the cuts of a chain next to a group
  };

  TreeId at_group(TreeId tree, int place, int group);
  void show(std::span<const TreeId> trees);
  template <class W>
  void walk(int place, std::int64_t row, std::span<const Offset> offsets, const Bitmaps<W>& bitmaps);
  template <class W>
  void settle(std::int64_t row, const Margin& offset, const Target<W>& target, const Bitmaps<W>& bitmaps);

  Nodes& nodes_;
  const Brick& brick_;
  const Limits& limits_;
  const std::atomic<bool>& halted_;
  Scale scale_;
  TreeReader reader_;
  int n_outer_ = 0;
  Tile tile_;                              ///< tables that hold anything
  std::vector<std::vector<Sides>> sides_;  ///< outer axis x group
  std::vector<std::vector<TreeId>> held_;  ///< outer axes fixed so far -> what is left of the trees
  std::vector<TreeId> shown_;              ///< what of them is in the tables
  std::vector<std::int32_t> stand_;        ///< place -> group under work
  Scope scopes_[Tile::scopes];
  Cells* tables_[Tile::scopes] = {};
  Room<Cells> room_;
};

}  // namespace boxqte
