#include "part_grid.hpp"

#include <algorithm>

namespace boxqte {

PartGrid::PartGrid(const Problem& problem, const ResidualTrees& trees)
    : problem_(problem), trees_(trees), longest_(problem.axes.longest) {
  const std::size_t n_axes = static_cast<std::size_t>(problem.axes.size()) + 1;
  users_.resize(n_axes);
  row_axes_.resize(trees.axis_words());
  n_groups_.resize(n_axes);
  group_cell_.resize(n_axes * longest_);
  group_mass_.resize(n_axes * longest_);
  group_at_.resize(problem.cuts.size() + 1);
  own_.resize(n_axes);
  own_at_.resize(n_axes);
  now_.resize(n_axes);
  free_.reserve(n_axes);
  stride_.resize(n_axes);
  scope_.resize(trees.axis_words());
  runs_.resize(n_axes);
  ripe_.resize(problem.trees.root.size() + 1);
  same_.reserve(problem.trees.root.size() + 1);
}

std::size_t PartGrid::bytes() const {
  return group_cell_.capacity() * 4 + (group_mass_.capacity() + table_.capacity()) * 8;
}

void PartGrid::begin(const Node& node) {
  std::fill(users_.begin(), users_.end(), 0);
  std::fill(row_axes_.begin(), row_axes_.end(), 0);
  const int words = trees_.axis_words();
  for (int r = 0; r < node.n_rows; ++r)
    for (int c = 0; c < node.n_classes; ++c)
      for (int w = 0; w < words; ++w) row_axes_[w] |= trees_.axes(node.row(r)[c])[w];
  for (int t = 0; t < node.n_common; ++t) each_bit(trees_.axes(node.common[t]), words, [&](int a) { ++users_[a]; });
  each_bit(row_axes_.data(), words, [&](int a) { users_[a] += 2; });
}

void PartGrid::group(const Node& node, const Word* active, int axis) {
  if (problem_.axes.chain[axis]) return group_chain(node, active, axis);
  const Cuts& cuts = problem_.cuts;
  std::int32_t* first = group_cell_.data() + static_cast<std::ptrdiff_t>(axis) * longest_;
  double* mass = group_mass_.data() + static_cast<std::ptrdiff_t>(axis) * longest_;
  int n = 0;
  const auto told_apart = [&](int one, int two) {
    for (int k = cuts.start[axis]; k < cuts.start[axis + 1]; ++k)
      if (has_bit(active, k) && cuts.sends_to_yes(k, one) != cuts.sends_to_yes(k, two)) return true;
    return false;
  };
  each_bit(&node.domain[static_cast<std::size_t>(axis) * cuts.words], cuts.words, [&](int cell) {
    int g = 0;
    while (g < n && told_apart(cell, first[g])) ++g;
    if (g == n) {
      first[n] = cell;
      mass[n++] = 0.0;
    }
    mass[g] += problem_.axes.mass_of(axis)[cell];
  });
  n_groups_[axis] = n;
}

void PartGrid::group_chain(const Node& node, const Word* active, int axis) {
  // Every cut is a prefix of the cells, shorter ones first: a group ends at the next active cut.
  const Cuts& cuts = problem_.cuts;
  const double* cell_mass = problem_.axes.mass_of(axis);
  std::int32_t* first = group_cell_.data() + static_cast<std::ptrdiff_t>(axis) * longest_;
  double* mass = group_mass_.data() + static_cast<std::ptrdiff_t>(axis) * longest_;
  int n = 0, k = cuts.start[axis];
  const int stop = cuts.start[axis + 1];
  bool fresh = true;
  each_bit(&node.domain[static_cast<std::size_t>(axis) * cuts.words], cuts.words, [&](int cell) {
    for (; k < stop && cuts.prefix[k] <= cell; ++k) {
      group_at_[k] = n;  // so many groups lie before the cut
      fresh |= has_bit(active, k);
    }
    if (fresh) {
      first[n] = cell;
      mass[n++] = 0.0;
      fresh = false;
    }
    mass[n - 1] += cell_mass[cell];
  });
  for (; k < stop; ++k) group_at_[k] = n;
  n_groups_[axis] = n;
}

void PartGrid::group_all(const Node& node, const Word* active, const Word* axes) {
  each_bit(axes, trees_.axis_words(), [&](int axis) { group(node, active, axis); });
}

void PartGrid::lay_out(const Word* axes, Layout& layout) const {
  layout.axis.resize(users_.size());
  layout.size.resize(users_.size());
  int n = 0;
  each_bit(axes, trees_.axis_words(), [&](int a) {
    int i = n++;
    for (; i > 0; --i) {
      const int other = layout.axis[i - 1];
      if (std::int64_t{users_[other]} * n_groups_[a] >= std::int64_t{users_[a]} * n_groups_[other]) break;
      layout.axis[i] = other;
    }
    layout.axis[i] = a;
  });
  layout.n = n;
  layout.cells = 1;
  for (int i = 0; i < n; ++i) layout.cells *= layout.size[i] = n_groups_[layout.axis[i]];
}

void PartGrid::lay_out_within(const Layout& layout, const Word* axes, Layout& inner) const {
  inner.axis.resize(users_.size());
  inner.size.resize(users_.size());
  inner.n = 0;
  inner.cells = 1;
  for (int i = 0; i < layout.n; ++i)
    if (has_bit(axes, layout.axis[i])) {
      inner.axis[inner.n] = layout.axis[i];
      inner.cells *= inner.size[inner.n++] = layout.size[i];
    }
}

void PartGrid::masses(const Layout& layout, int first, int stop, std::vector<double>& out) const {
  std::ptrdiff_t n = 1;
  for (int i = first; i < stop; ++i) n *= layout.size[i];
  if (out.size() < static_cast<std::size_t>(n)) out.resize(n);
  masses(layout, first, stop, out.data());
}

void PartGrid::masses(const Layout& layout, int first, int stop, double* out) const {
  out[0] = 1.0;
  std::ptrdiff_t n = 1;
  for (int i = first; i < stop; ++i) {
    const int size = layout.size[i];
    const double* mass = group_mass_.data() + static_cast<std::ptrdiff_t>(layout.axis[i]) * longest_;
    for (std::ptrdiff_t cell = n - 1; cell >= 0; --cell) {  // from the end, so that entries are read before they change
      const double outer = out[cell];
      for (int g = 0; g < size; ++g) out[cell * size + g] = outer * mass[g];
    }
    n *= size;
  }
}

void PartGrid::sums(const Layout& layout, std::span<const TreeId> trees, std::int64_t* out) {
  const int n_trees = static_cast<int>(trees.size());
  for (int t = 0; t < n_trees; ++t) {
    ripe_[t] = layout.n - 1;
    while (ripe_[t] >= 0 && !trees_.tests(trees[t], layout.axis[ripe_[t]])) --ripe_[t];
  }
  out[0] = 0;
  std::ptrdiff_t cells = 1;
  // The grid grows axis by axis: a table joins as soon as all its axes are there.
  for (int grown = 0; grown < layout.n; ++grown) {
    const int size = layout.size[grown];
    for (std::ptrdiff_t cell = cells - 1; cell >= 0; --cell) std::fill_n(out + cell * size, size, out[cell]);
    cells *= size;
    for (int t = 0; t < n_trees; ++t) {
      if (ripe_[t] != grown) continue;
      same_.clear();
      for (int u = t; u < n_trees; ++u) {  // trees with the same scope share a table
        if (ripe_[u] != grown) continue;
        const Word *one = trees_.axes(trees[t]), *other = trees_.axes(trees[u]);
        if (!std::equal(one, one + trees_.axis_words(), other)) continue;
        ripe_[u] = -1;
        same_.push_back(trees[u]);
      }
      add_scope(layout, grown + 1, same_, {}, trees_.axes(trees[t]), out);
    }
  }
}

void PartGrid::replace(const Layout& layout, TreeId before, TreeId after, std::vector<std::int64_t>& out) {
  const std::span<const TreeId> plus(&after, trees_[after].is_leaf() ? 0 : 1);
  const std::span<const TreeId> minus(&before, trees_[before].is_leaf() ? 0 : 1);
  if (plus.empty() && minus.empty()) return;
  for (int w = 0; w < trees_.axis_words(); ++w) scope_[w] = trees_.axes(before)[w] | trees_.axes(after)[w];
  add_scope(layout, layout.n, plus, minus, scope_.data(), out.data());
}

void PartGrid::add_scope(const Layout& layout, int n_axes, std::span<const TreeId> plus, std::span<const TreeId> minus,
                         const Word* scope, std::int64_t* out) {
  check_halt();
  std::ptrdiff_t size = 1;
  bool whole = true;  // the scope is the grid: no table in between
  for (int i = n_axes - 1; i >= 0; --i) {
    const bool inside = has_bit(scope, layout.axis[i]);
    stride_[i] = inside ? size : 0;
    if (inside) size *= layout.size[i];
    whole &= inside;
  }
  n_own_ = 0;
  free_.clear();
  for (int i = 0; i < n_axes; ++i) {
    if (stride_[i] == 0) continue;
    const int axis = layout.axis[i];
    if (problem_.axes.chain[axis]) {
      own_at_[axis] = n_own_;
      own_[n_own_++] = {0, layout.size[i], stride_[i]};
    } else {
      free_.push_back(i);
      runs_[i].at = 0;
      now_[axis] = group_cell(axis, 0);
    }
  }
  if (!whole) {
    if (table_.size() < static_cast<std::size_t>(size)) table_.resize(size);
    std::fill_n(table_.begin(), size, 0);
  }
  std::int64_t* table = whole ? out : table_.data();
  for (std::ptrdiff_t at = 0;;) {
    for (const TreeId tree : plus) fill(tree, 1, table + at);
    for (const TreeId tree : minus) fill(tree, -1, table + at);
    int j = static_cast<int>(free_.size()) - 1;
    for (; j >= 0; --j) {
      const int i = free_[j], axis = layout.axis[i];
      at += stride_[i];
      if (++runs_[i].at < layout.size[i]) {
        now_[axis] = group_cell(axis, static_cast<int>(runs_[i].at));
        break;
      }
      at -= stride_[i] * layout.size[i];
      runs_[i].at = 0;
      now_[axis] = group_cell(axis, 0);
    }
    if (j < 0) break;
  }
  if (!whole) broadcast(layout, n_axes, table, out);
}

void PartGrid::fill(TreeId tree, std::int64_t sign, std::int64_t* table) {
  const Record& record = trees_[tree];
  if (record.is_leaf()) return fill_block(sign * record.least, table);
  const int axis = problem_.cuts.axis[record.cut];
  if (!problem_.axes.chain[axis])
    return fill(problem_.cuts.sends_to_yes(record.cut, now_[axis]) ? record.yes : record.no, sign, table);
  Own& own = own_[own_at_[axis]];
  const int middle = group_at_[record.cut], low = own.low, high = own.high;
  if (middle > low) {
    own.high = std::min(high, middle);
    fill(record.yes, sign, table);
    own.high = high;
  }
  if (middle < high) {
    own.low = std::max(low, middle);
    fill(record.no, sign, table);
    own.low = low;
  }
}

namespace {

template <class Own>
void add_along(const Own* own, int n, std::int64_t value, std::int64_t* table) {
  const int size = own->high - own->low;
  table += own->low * own->stride;
  if (n > 1) {
    for (int g = 0; g < size; ++g, table += own->stride) add_along(own + 1, n - 1, value, table);
  } else if (own->stride == 1) {
    for (int g = 0; g < size; ++g) table[g] += value;
  } else {
    for (int g = 0; g < size; ++g, table += own->stride) *table += value;
  }
}

}  // namespace

void PartGrid::fill_block(std::int64_t value, std::int64_t* table) {
  if (n_own_ == 0)
    *table += value;
  else
    add_along(own_.data(), n_own_, value, table);
}

void PartGrid::broadcast(const Layout& layout, int n_axes, const std::int64_t* table, std::int64_t* out) {
  // Neighbouring axes that are all in the scope, or all outside it, are one long axis.
  int n = 0;
  for (int i = 0; i < n_axes; ++i) {
    if (n > 0 && runs_[n - 1].stride == stride_[i] * layout.size[i]) {
      runs_[n - 1].length *= layout.size[i];
      runs_[n - 1].stride = stride_[i];
    } else {
      runs_[n++] = {layout.size[i], stride_[i], 0};
    }
  }
  for (int i = 0; i < n; ++i) runs_[i].at = 0;
  if (n == 0) {  // the grid is a single cell
    *out += *table;
    return;
  }
  const std::ptrdiff_t inner = runs_[n - 1].length;
  const bool varies = runs_[n - 1].stride != 0;
  for (;;) {
    if (varies) {
      for (std::ptrdiff_t j = 0; j < inner; ++j) out[j] += table[j];
    } else {
      const std::int64_t value = *table;
      for (std::ptrdiff_t j = 0; j < inner; ++j) out[j] += value;
    }
    out += inner;
    int i = n - 2;
    for (; i >= 0; --i) {
      table += runs_[i].stride;
      if (++runs_[i].at < runs_[i].length) break;
      table -= runs_[i].stride * runs_[i].length;
      runs_[i].at = 0;
    }
    if (i < 0) return;
  }
}

void PartGrid::spread(const Layout& inner, const std::int64_t* table, const Layout& layout, std::int64_t* out) {
  std::ptrdiff_t stride = 1;
  for (int i = layout.n - 1, j = inner.n - 1; i >= 0; --i) {
    const bool inside = j >= 0 && inner.axis[j] == layout.axis[i];
    stride_[i] = inside ? stride : 0;
    if (inside) stride *= inner.size[j--];
  }
  broadcast(layout, layout.n, table, out);
}

}  // namespace boxqte
