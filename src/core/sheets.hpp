// The sum of many trees over a grid without a table of the whole grid: the last axes form a tile, and trees that test the same
// outer axes share a sheet over these and the tile. A tile of the sum is a few rows of sheets, added while they are needed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "part_grid.hpp"

namespace boxqte {

class Sheets {
 public:
  explicit Sheets(PartGrid& grid) : grid_(&grid) {}

  /// Nothing yet, over this grid.
  void begin(const Layout& layout);
  void add(std::span<const TreeId> trees);
  /// Add a table over some of the grid's axes, in the grid's order.
  void add(const Layout& inner, const std::int64_t* table);
  /// Take one tree away and add another; either may be a leaf, which is left alone.
  void replace(TreeId before, TreeId after);
  /// When all is added: small sheets join larger ones that hold their axes.
  void settle();

  int tile() const { return tile_; }
  int outer() const { return outer_; }
  int outer_axes() const { return n_outer_axes_; }
  /// The cells of a tile where there is one sheet only.
  const std::int64_t* row(int outer) const {
    return sheets_[0].table.data() + static_cast<std::ptrdiff_t>(sheets_[0].row[outer]) * tile_;
  }
  /// Add the sum at the cells of a tile.
  void add_to(int outer, std::int64_t* out) const;

 private:
  struct Sheet {
    std::uint64_t axes = 0;  ///< its outer axes, by place
    Layout layout;
    std::vector<std::int64_t> table;
    std::vector<TreeId> trees;
    std::vector<std::int32_t> row;  ///< tile -> the row of the sheet
    bool merged = false;
  };

  Sheet& sheet(std::uint64_t axes);
  std::uint64_t outer_axes_of(TreeId tree) const;

  PartGrid* grid_;
  const Layout* layout_ = nullptr;
  int n_outer_axes_ = 0, outer_ = 1, tile_ = 1;
  std::vector<Sheet> sheets_;  ///< the first n_; the others are kept for their memory
  int n_ = 0;
};

}  // namespace boxqte
