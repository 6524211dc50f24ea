// A part's trees as a dense grid of margins: one table per set of axes, spread over the grid of all of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "components.hpp"
#include "halt.hpp"

namespace boxqte {

/// The axes of a grid, outermost first, and how many groups of cells each has.
struct Layout {
  std::vector<int> axis, size;
  int n = 0;
  int cells = 1;
};

/// The grids of one box after another. `group` the axes of a part before asking for its grid.
class PartGrid {
 public:
  PartGrid(const Problem& problem, const ResidualTrees& trees);

  /// From now on counting may be halted; null: it may not.
  void listen(const Halt* halt) { halt_ = halt; }
  void check_halt() const {
    if (halt_) halt_->check();
  }

  /// Count, for every axis, how many tables will be spread along it: one a common tree, two for the extremes of the rows.
  void begin(const Node& node);
  /// The axes of the sensitive-dependent trees.
  const Word* row_axes() const { return row_axes_.data(); }
  bool tests(TreeId tree, int axis) const { return trees_.tests(tree, axis); }

  /// Collect the box's cells on the axis into groups that the active cuts do not tell apart.
  void group(const Node& node, const Word* active, int axis);
  void group_all(const Node& node, const Word* active, const Word* axes);
  int groups(int axis) const { return n_groups_[axis]; }
  int group_cell(int axis, int g) const { return group_cell_[static_cast<std::size_t>(axis) * longest_ + g]; }

  /// Last comes the axis that is long and that few trees test: only tables with that axis are spread over all cells.
  void lay_out(const Word* axes, Layout& layout) const;
  /// The axes of `layout` that are among the given ones, in the same order.
  void lay_out_within(const Layout& layout, const Word* axes, Layout& inner) const;

  /// The mass of every cell of the grid of the layout's axes first..stop-1.
  void masses(const Layout& layout, int first, int stop, double* out) const;
  void masses(const Layout& layout, int first, int stop, std::vector<double>& out) const;
  /// The sum of the trees at every cell of the grid.
  void sums(const Layout& layout, std::span<const TreeId> trees, std::int64_t* out);
  void sums(const Layout& layout, std::span<const TreeId> trees, std::vector<std::int64_t>& out) {
    if (out.size() < static_cast<std::size_t>(layout.cells)) out.resize(layout.cells);
    sums(layout, trees, out.data());
  }
  /// Add a tree that need not be there before, and take one away; either may be a leaf, which is left alone.
  void replace(const Layout& layout, TreeId before, TreeId after, std::vector<std::int64_t>& out);
  /// Add a table over `inner`'s axes to the grid.
  void spread(const Layout& inner, const std::int64_t* table, const Layout& layout, std::int64_t* out);

  std::size_t bytes() const;

 private:
  void group_chain(const Node& node, const Word* active, int axis);
  void add_scope(const Layout& layout, int n_axes, std::span<const TreeId> plus, std::span<const TreeId> minus,
                 const Word* scope, std::int64_t* out);
  void fill(TreeId tree, std::int64_t sign, std::int64_t* table);
  void fill_block(std::int64_t value, std::int64_t* table);
  void broadcast(const Layout& layout, int n_axes, const std::int64_t* table, std::int64_t* out);

  const Problem& problem_;
  const ResidualTrees& trees_;
  const Halt* halt_ = nullptr;
  int longest_;
  std::vector<int> users_;
  std::vector<Word> row_axes_;
  std::vector<std::int32_t> n_groups_;
  std::vector<std::int32_t> group_cell_;  ///< axis x group: its first cell
  std::vector<double> group_mass_;        ///< axis x group
  std::vector<std::int32_t> group_at_;    ///< cut of a chain axis -> how many groups it sends to yes

  // A scope's table. Axes on which every cut is a prefix of the cells are `own`: blocks over them are filled at once.
  // The others are `free`: they stand at the cell now_.
  struct Own {
    int low, high;  ///< the block's range of groups
    std::ptrdiff_t stride;
  };
  std::vector<Own> own_;
  int n_own_ = 0;
  std::vector<int> own_at_;  ///< axis -> its place in own_
  std::vector<int> now_;     ///< axis -> the cell of a free axis
  std::vector<int> free_;
  std::vector<std::ptrdiff_t> stride_;  ///< place in the layout -> its stride in the scope's table, 0 outside the scope
  std::vector<std::int64_t> table_;
  std::vector<Word> scope_;

  struct Run {
    std::ptrdiff_t length, stride, at;
  };
  std::vector<Run> runs_;
  std::vector<int> ripe_;  ///< tree -> the place of its last axis in the layout; -1 once it has been added
  std::vector<TreeId> same_;
};

}  // namespace boxqte
