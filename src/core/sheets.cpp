#include "sheets.hpp"

#include <algorithm>

namespace boxqte {

namespace {
constexpr int least_tile = 24;   // a tile that is shorter is not worth a loop
constexpr int most_places = 63;  // axes that a word can tell apart
}  // namespace

void Sheets::begin(const Layout& layout) {
  layout_ = &layout;
  n_ = 0;
  n_outer_axes_ = layout.n;
  for (tile_ = 1; n_outer_axes_ > 0 && (tile_ < least_tile || n_outer_axes_ > most_places);)
    tile_ *= layout.size[--n_outer_axes_];
  outer_ = layout.cells / tile_;
}

Sheets::Sheet& Sheets::sheet(std::uint64_t axes) {
  for (int s = 0; s < n_; ++s)
    if (sheets_[s].axes == axes) return sheets_[s];
  if (n_ == static_cast<int>(sheets_.size())) sheets_.emplace_back();
  Sheet& made = sheets_[n_++];
  made.axes = axes;
  made.merged = false;
  made.trees.clear();
  Layout& own = made.layout;
  own.axis.resize(layout_->axis.size());
  own.size.resize(layout_->axis.size());
  own.n = 0;
  own.cells = 1;
  for (int i = 0; i < layout_->n; ++i)
    if (i >= n_outer_axes_ || (axes >> i & 1)) {
      own.axis[own.n] = layout_->axis[i];
      own.cells *= own.size[own.n++] = layout_->size[i];
    }
  made.table.assign(own.cells, 0);
  made.row.assign(outer_, 0);
  int n = 1;
  for (int i = 0; i < n_outer_axes_;
       ++i) {  // grown axis by axis, from the end, so that entries are read before they change
    const int size = layout_->size[i];
    const bool inside = axes >> i & 1;
    for (int cell = n - 1; cell >= 0; --cell) {
      const std::int32_t row = made.row[cell];
      for (int g = 0; g < size; ++g) made.row[cell * size + g] = inside ? row * size + g : row;
    }
    n *= size;
  }
  return made;
}

std::uint64_t Sheets::outer_axes_of(TreeId tree) const {
  std::uint64_t axes = 0;
  for (int i = 0; i < n_outer_axes_; ++i)
    if (grid_->tests(tree, layout_->axis[i])) axes |= std::uint64_t{1} << i;
  return axes;
}

void Sheets::replace(TreeId before, TreeId after) {
  Sheet& own = sheet(outer_axes_of(before) | outer_axes_of(after));
  grid_->replace(own.layout, before, after, own.table);
}

void Sheets::add(std::span<const TreeId> trees) {
  for (const TreeId tree : trees) sheet(outer_axes_of(tree)).trees.push_back(tree);
  for (int s = 0; s < n_; ++s) {
    if (sheets_[s].trees.empty()) continue;
    grid_->sums(sheets_[s].layout, sheets_[s].trees, sheets_[s].table);
    sheets_[s].trees.clear();
  }
}

void Sheets::add(const Layout& inner, const std::int64_t* table) {
  std::uint64_t axes = 0;
  for (int i = 0, j = 0; i < n_outer_axes_ && j < inner.n; ++i)
    if (inner.axis[j] == layout_->axis[i]) {
      axes |= std::uint64_t{1} << i;
      ++j;
    }
  Sheet& own = sheet(axes);
  grid_->spread(inner, table, own.layout, own.table.data());
}

void Sheets::settle() {
  // Adding a small sheet to a larger one once is cheaper than adding its rows to every tile.
  for (int s = 0; s < n_; ++s) {
    Sheet* target = nullptr;
    for (int t = 0; t < n_; ++t) {
      Sheet& other = sheets_[t];
      const bool holds = t != s && !other.merged && (sheets_[s].axes & ~other.axes) == 0;
      if (holds && 2 * other.layout.cells <= layout_->cells && (!target || other.layout.cells < target->layout.cells))
        target = &other;
    }
    if (!target) continue;
    grid_->spread(sheets_[s].layout, sheets_[s].table.data(), target->layout, target->table.data());
    sheets_[s].merged = true;
  }
}

void Sheets::add_to(int outer, std::int64_t* out) const {
  for (int s = 0; s < n_; ++s) {
    if (sheets_[s].merged) continue;
    const std::int64_t* row = sheets_[s].table.data() + static_cast<std::ptrdiff_t>(sheets_[s].row[outer]) * tile_;
    for (int j = 0; j < tile_; ++j) out[j] += row[j];
  }
}

}  // namespace boxqte
