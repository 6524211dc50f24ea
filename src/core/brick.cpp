#include "brick.hpp"

#include <algorithm>

#include "masses.hpp"

namespace boxqte {

namespace {

constexpr std::size_t most_layout_bytes = std::size_t{48} << 20;
constexpr double most_cells = 1e12;
constexpr int most_bits = word_bits;  // groups of the last axis

/// Whether a cut of the set sends two cells of the axis to different sides.
bool told_apart(const Cuts& cuts, const Word* active, int axis, int one, int two) {
  for (int k = cuts.start[axis]; k < cuts.start[axis + 1]; ++k)
    if (has_bit(active, k) && cuts.sends_to_yes(k, one) != cuts.sends_to_yes(k, two)) return true;
  return false;
}

void index_windows(Windows& windows, int n_groups) {
  const int n = windows.size();
  windows.before.assign(n + 1, 0.0);
  Sum sum;  // within two roundings: a difference of two entries is then within five of the axis's mass
  for (int j = 0; j < n; ++j) {
    sum.add(windows.mass[j]);
    windows.before[j + 1] = sum.value();
    windows.widest = std::max(windows.widest, windows.high[j] - windows.low[j] + 1);
  }
  for (int g = 0, first = 0, end = 0, own = 0; g < n_groups; ++g) {
    while (first < n && windows.low[first] < g) ++first;
    while (end < n && windows.high[end] <= g) ++end;
    while (own < n && windows.base[own] < g) ++own;
    windows.first_from.push_back(first);
    windows.end_at.push_back(end);
    windows.of_base.push_back(own);
  }
  windows.of_base.push_back(n);
}

Windows windows_of(const Axes& axes, const AxisLayout& layout, bool with_base) {
  Windows windows;
  for (int r = 0; r < axes.n_refined[layout.axis]; ++r) {
    const std::size_t at = axes.refined_at(layout.axis, r);
    const std::int32_t low = layout.group[axes.near_lo[at]], high = layout.group[axes.near_hi[at]];
    const std::int32_t base = layout.group[axes.base[at]];
    const int last = windows.size() - 1;
    if (last >= 0 && windows.low[last] == low && windows.high[last] == high &&
        (!with_base || windows.base[last] == base)) {
      windows.mass[last] += axes.refined_mass[at];
      continue;
    }
    windows.low.push_back(low);
    windows.high.push_back(high);
    windows.base.push_back(base);
    windows.mass.push_back(axes.refined_mass[at]);
  }
  index_windows(windows, layout.size());
  return windows;
}

std::size_t bytes_of(const Windows& w) {
  return (w.low.capacity() + w.high.capacity() + w.base.capacity() + w.first_from.capacity() + w.end_at.capacity() +
          w.of_base.capacity()) *
             4 +
         (w.mass.capacity() + w.before.capacity()) * 8;
}

}  // namespace

std::size_t AxisLayout::bytes() const {
  return sizeof(AxisLayout) + 64 + bytes_of(merged) + bytes_of(own) + mass.capacity() * 8 + single.capacity() +
         (group.capacity() + cell.capacity() + yes_groups.capacity() + core_low.capacity() + core_high.capacity()) * 4;
}

Layouts::Layouts(const Problem& problem) : problem_(problem), known_(problem.axes.size()) {
  const Axes& axes = problem.axes;
  for (int a = 0; a < axes.size(); ++a)
    for (int r = 1; r < axes.n_refined[a] && axes.role[a] == Role::moving; ++r) {
      const std::size_t at = axes.refined_at(a, r);
      if (axes.near_lo[at] < axes.near_lo[at - 1] || axes.near_hi[at] < axes.near_hi[at - 1] ||
          axes.base[at] < axes.base[at - 1])
        throw std::invalid_argument("problem: windows must grow along a moving axis");
    }
  one_cell_.group = one_cell_.cell = one_cell_.core_low = one_cell_.core_high = {0};
  one_cell_.mass = {1.0};
  one_cell_.single = {0};
  Windows& all = one_cell_.merged;
  all.low = all.high = all.base = {0};
  all.mass = {1.0};
  index_windows(all, 1);
  one_cell_.own = all;
}

const AxisLayout& Layouts::of(int axis, const Word* cuts) {
  const std::int32_t first = problem_.cuts.start[axis], end = problem_.cuts.start[axis + 1];
  key_.assign(words_for(end - first), 0);
  for (int k = first; k < end; ++k)
    if (has_bit(cuts, k)) set_bit(key_.data(), k - first);
  const auto found = known_[axis].find(key_);
  if (found != known_[axis].end()) return found->second;
  AxisLayout layout = made(axis, cuts);
  layout.id = next_id_++;
  bytes_ += layout.bytes() + key_.size() * 8;
  return known_[axis].emplace(key_, std::move(layout)).first->second;
}

int Layouts::sequence(int layout, int rest) {
  const auto [at, is_new] = sequences_.try_emplace({layout, rest}, next_sequence_);
  if (is_new) {
    ++next_sequence_;
    bytes_ += 64;
  }
  return at->second;
}

void Layouts::tidy() {
  if (bytes_ < most_layout_bytes) return;
  for (auto& layouts : known_) layouts.clear();
  sequences_.clear();
  bytes_ = 0;
}

AxisLayout Layouts::made(int axis, const Word* cuts) const {
  const Axes& axes = problem_.axes;
  AxisLayout layout;
  layout.axis = axis;
  std::vector<int> members;
  // On a moving axis only neighbours may share a group: windows are ranges of groups.
  const bool neighbours = axes.chain[axis] || axes.role[axis] == Role::moving;
  for (int c = 0; c < axes.n_cells[axis]; ++c) {
    const int n = layout.size();
    int g = neighbours ? std::max(n - 1, 0) : 0;
    while (g < n && told_apart(problem_.cuts, cuts, axis, c, layout.cell[g])) ++g;
    if (g == n) {
      layout.cell.push_back(c);
      layout.mass.push_back(0.0);
      members.push_back(0);
    }
    layout.group.push_back(g);
    layout.mass[g] += axes.mass_of(axis)[c];
    ++members[g];
  }
  for (int g = 0; g < layout.size(); ++g)
    layout.single.push_back(members[g] == 1 && axes.is_single(axis, layout.cell[g]));
  for (int k = problem_.cuts.start[axis]; k < problem_.cuts.start[axis + 1] && axes.chain[axis]; ++k)
    layout.yes_groups.push_back(static_cast<std::int32_t>(
        std::lower_bound(layout.cell.begin(), layout.cell.end(), problem_.cuts.prefix[k]) - layout.cell.begin()));
  if (axes.role[axis] != Role::moving) return layout;
  layout.merged = windows_of(axes, layout, false);
  layout.own = windows_of(axes, layout, true);
  layout.core_low.assign(layout.size(), 0);
  layout.core_high.assign(layout.size(), layout.size() - 1);
  for (int j = 0; j < layout.own.size(); ++j) {
    const int g = layout.own.base[j];
    layout.core_low[g] = std::max(layout.core_low[g], layout.own.low[j]);
    layout.core_high[g] = std::min(layout.core_high[g], layout.own.high[j]);
  }
  return layout;
}

void Brick::lay(const Nodes& nodes, const Node& node, Layouts& layouts, bool signs_only) {
  const Problem& problem = nodes.problem();
  const ResidualTrees& trees = nodes.trees();
  layouts.tidy();
  active_.assign(trees.cut_words(), 0);
  for (int t = 0; t < node.n_common; ++t)
    for (int w = 0; w < trees.cut_words(); ++w) active_[w] |= trees.cuts(node.common[t])[w];
  const int n_axes = problem.axes.size();
  axes.clear();
  std::vector<const AxisLayout*> moving;
  bool points_matter = problem.points_matter;
  for (int a = 0; a < n_axes; ++a) {
    if (problem.axes.role[a] == Role::fixed) continue;
    const AxisLayout& layout = layouts.of(a, active_.data());
    if (problem.axes.role[a] == Role::moving) {
      if (layout.size() > 1) moving.push_back(&layout);
    } else if (layout.size() > 1) {
      axes.push_back(&layout);
    } else {
      points_matter &= layout.single[0] != 0;  // nothing is left to tell its cells apart
    }
  }
  n_sensitive = static_cast<int>(axes.size());
  std::stable_sort(moving.begin(), moving.end(),
                   [](const AxisLayout* a, const AxisLayout* b) { return a->size() < b->size(); });
  // The bits are the first of the largest axes that fit a word.
  const AxisLayout* last = nullptr;
  for (const AxisLayout* layout : moving)
    if (layout->size() <= most_bits && (last == nullptr || layout->size() > last->size())) last = layout;
  for (const AxisLayout* layout : moving)
    if (layout != last) axes.push_back(layout);
  axes.push_back(last != nullptr ? last : &layouts.one_cell());
  place.assign(n_axes, -1);
  for (int i = 0; i < static_cast<int>(axes.size()); ++i)
    if (axes[i]->axis >= 0) place[axes[i]->axis] = i;
  n_last = axes.back()->size();
  padded = (n_last + 7) / 8 * 8;
  double all = 1.0;
  for (const AxisLayout* layout : axes) all *= layout->size();
  too_large = all > most_cells;
  combinations = 1;
  rows = static_cast<std::int64_t>(std::min(all / n_last, 1e18));
  if (too_large) return;
  for (int i = 0; i < n_sensitive; ++i) combinations *= axes[i]->size();
  rows /= combinations;
  lay_combinations(points_matter, signs_only);
  sequence.assign(n_levels() + 1, 0);
  for (int i = n_levels(); i >= 0; --i)
    sequence[i] = layouts.sequence(level(i).id, i < n_levels() ? sequence[i + 1] : 0);
}

void Brick::lay_combinations(bool points_matter, bool signs_only) {
  combination_mass.assign(combinations, 1.0);
  combination_single.assign(combinations, points_matter ? 1 : 0);
  own_matters = !signs_only;
  for (int c = 0; c < combinations; ++c) {
    int rest = c;
    for (int i = n_sensitive - 1; i >= 0; --i) {
      const int g = rest % axes[i]->size();
      rest /= axes[i]->size();
      combination_mass[c] *= axes[i]->mass[g];
      combination_single[c] &= axes[i]->single[g];
    }
    own_matters |= combination_single[c] != 0;
  }
}

}  // namespace boxqte
