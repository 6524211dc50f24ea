#include "forest.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace boxqte {

namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(std::string("points: ") + what);
}

}  // namespace

bool PointAxis::wide() const {
  for (std::size_t r = 0; r < base.size(); ++r)
    if (low[r] < high[r]) return true;
  return false;
}

void Forest::prepare() {
  const auto n_nodes = static_cast<std::int64_t>(axis.size());
  require(cut.size() == axis.size() && no.size() == axis.size(), "nodes");
  require(width >= 1 && value.size() == axis.size() * static_cast<std::size_t>(width), "leaf values");
  require(!base.empty() && (width == 1 || width == n_outputs()), "outputs");
  require(output.size() == root.size(), "trees");
  require(n_nodes < (1 << 30) && grid.size() < (1 << 15), "too many nodes or attributes");
  bool any_sensitive = false;
  free_partner = false;
  for (std::size_t g = 0; g < grid.size(); ++g) {
    PointAxis& a = grid[g];
    require(a.n_cells >= 1 && a.ordered >= 1 && a.ordered <= a.n_cells, "cells of an attribute");
    require(a.single.size() >= static_cast<std::size_t>(a.n_cells), "single cells");
    require(!a.base.empty() && a.low.size() == a.base.size() && a.high.size() == a.base.size(), "refined cells");
    for (std::size_t r = 0; r < a.base.size(); ++r) {
      require(0 <= a.low[r] && a.low[r] <= a.base[r] && a.base[r] <= a.high[r] && a.high[r] < a.n_cells,
              "reach of a cell");
      require(a.high[r] < a.ordered || a.low[r] == a.high[r], "reach beyond the ordered cells");
    }
    a.number = -1;
    any_sensitive |= a.sensitive;
  }
  for (std::size_t i = 0; i < tested.size(); ++i) {
    require(tested[i] >= 0 && tested[i] < static_cast<int>(grid.size()), "tested attributes");
    grid[tested[i]].number = static_cast<int>(i);
  }
  for (const PointAxis& a : grid) free_partner |= a.sensitive && a.number < 0 && a.n_cells > 1;
  free_partner |= !any_sensitive;
  const auto n_rows = static_cast<std::int64_t>(odd.size()) / std::max(odd_width, 1);
  limit.assign(axis.size(), -1);
  ragged.assign(tested.size(), 0);
  for (std::int64_t n = 0; n < n_nodes; ++n) {
    if (axis[n] < 0) continue;
    require(axis[n] < n_axes(), "the axis of a node");
    require(n + 1 < n_nodes && no[n] > n && no[n] < n_nodes, "the sides of a node");
    const PointAxis& a = of(axis[n]);
    if (cut[n] >= 0) {
      require(cut[n] <= a.n_cells, "the cut of a node");
      limit[n] = std::min(cut[n], a.ordered);
    } else {
      const std::int64_t r = -1 - static_cast<std::int64_t>(cut[n]);
      require(r < n_rows && a.n_cells < odd_width, "the set of a node");
      const std::int32_t* row = odd.data() + r * odd_width;
      require(row[0] == 0, "the set of a node");
      for (int c = 0; c < a.n_cells; ++c)
        require(row[c + 1] - row[c] == 0 || row[c + 1] - row[c] == 1, "the set of a node");
      const int count = row[a.ordered];
      limit[n] = row[count] == count ? count : -1;
      if (limit[n] < 0) ragged[axis[n]] = 1;
    }
  }
  for (std::size_t t = 0; t < root.size(); ++t) {
    require(root[t] >= 0 && root[t] < n_nodes, "the root of a tree");
    require(output[t] >= -1 && output[t] < n_outputs(), "the output of a tree");
    require(output[t] >= 0 || width == n_outputs(), "a tree that feeds all outputs");
  }
}

}  // namespace boxqte
