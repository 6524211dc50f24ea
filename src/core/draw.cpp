#include "draw.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace boxqte {

namespace {

constexpr std::int64_t far = std::int64_t{1} << 62;
constexpr std::int32_t nobody = -1;  // the class of a combination that is forbidden in the box

/// The last index i in [first, stop) with sums[i] <= at.
std::ptrdiff_t search_sum(const std::vector<double>& sums, std::ptrdiff_t first, std::ptrdiff_t stop, double at) {
  const auto found = std::upper_bound(sums.begin() + first + 1, sums.begin() + stop, at);
  return found - sums.begin() - 1;
}

}  // namespace

Drawer::Drawer(const Problem& problem, double finish_limit)
    : problem_(problem),
      finish_limit_(countable_cells(problem, finish_limit)),
      nodes_(problem, true),
      parts_(problem, nodes_.trees()),
      grid_(problem, nodes_.trees()),
      node_(nodes_.room()),
      member_(static_cast<std::size_t>(std::max(problem.combinations.size(), 1))),
      layouts_(problem.trees.root.size() + 2),
      cell_(static_cast<std::size_t>(problem.axes.size()) * problem.axes.longest),
      group_start_(static_cast<std::size_t>(problem.axes.size()) * (problem.axes.longest + 2)) {}

void Drawer::check_boxes(std::size_t n_axes, std::size_t words) const {
  if (n_axes != static_cast<std::size_t>(problem_.axes.size()) || words != static_cast<std::size_t>(problem_.cuts.words))
    throw std::invalid_argument("boxes: expected box x axis x word");
}

double Drawer::uniform() {  // splitmix64
  random_ += 0x9E3779B97F4A7C15ull;
  std::uint64_t z = random_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

// --- the lists of a box ------------------------------------------------------------------------------------------------

void Drawer::list_cells(int axis, bool grouped) {
  // The box's cells on the axis, group by group; all in one group if nothing asks about the axis.
  const Cuts& cuts = problem_.cuts;
  std::int32_t* cell = cell_.data() + static_cast<std::ptrdiff_t>(axis) * problem_.axes.longest;
  std::int32_t* start = group_start_.data() + static_cast<std::ptrdiff_t>(axis) * (problem_.axes.longest + 2);
  const int groups = grouped ? grid_.groups(axis) : 1;
  const auto same_group = [&](int one, int two) {
    for (int k = cuts.start[axis]; k < cuts.start[axis + 1]; ++k)
      if (has_bit(parts_.active(), k) && cuts.sends_to_yes(k, one) != cuts.sends_to_yes(k, two)) return false;
    return true;
  };
  int n = 0;
  for (int g = 0; g < groups; ++g) {
    start[g] = n;
    each_bit(&node_.domain[static_cast<std::size_t>(axis) * cuts.words], cuts.words, [&](int c) {
      if (!grouped || same_group(c, grid_.group_cell(axis, g))) cell[n++] = c;
    });
  }
  start[groups] = n;
}

void Drawer::list_sums(Side side, Sums& out) {
  out.value.assign(1, 0);
  out.mass.assign(1, 1.0);
  const ResidualTrees& trees = nodes_.trees();
  for (int k = 1; k < parts_.size(); ++k) {
    if (parts_.side(k) != side) continue;
    chosen_.clear();
    for (int t = 0; t < node_.n_common; ++t)
      if (overlap(trees.axes(node_.common[t]), parts_.axes(k), trees.axis_words())) chosen_.push_back(node_.common[t]);
    grid_.masses(layouts_[k], 0, layouts_[k].n, masses_);
    grid_.sums(layouts_[k], chosen_, values_);
    const auto size = static_cast<std::size_t>(layouts_[k].cells), n = out.value.size();
    out.value.resize(n * size);
    out.mass.resize(n * size);
    for (std::size_t i = n; i-- > 0;) {  // from the end, so that entries are read before they are overwritten
      const std::int64_t value = out.value[i];
      const double mass = out.mass[i];
      for (std::size_t j = 0; j < size; ++j) {
        out.value[i * size + j] = value + values_[j];
        out.mass[i * size + j] = mass * masses_[j];
      }
    }
  }
}

void Drawer::sort_b() {
  const std::size_t n = b_.value.size();
  b_entry_.resize(n);
  std::iota(b_entry_.begin(), b_entry_.end(), 0);
  std::stable_sort(b_entry_.begin(), b_entry_.end(), [&](int one, int two) { return b_.value[one] < b_.value[two]; });
  b_key_.resize(n);
  prefix_.assign(n + 1, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    b_key_[i] = b_.value[b_entry_[i]];
    prefix_[i + 1] = prefix_[i] + b_.mass[b_entry_[i]];
  }
}

void Drawer::margins() {
  const ResidualTrees& trees = nodes_.trees();
  const Layout& layout = layouts_[0];
  grid_.lay_out_within(layout, grid_.row_axes(), rows_);
  grid_.masses(layout, 0, layout.n, cell_mass_);
  chosen_.clear();
  for (int t = 0; t < node_.n_common; ++t)
    if (overlap(trees.axes(node_.common[t]), parts_.axes(0), trees.axis_words())) chosen_.push_back(node_.common[t]);
  grid_.sums(layout, chosen_, values_);
  if (margins_.size() < static_cast<std::size_t>(node_.n_classes)) margins_.resize(node_.n_classes);
  for (int c = 0; c < node_.n_classes; ++c) {
    std::int64_t constant = node_.offset[c];
    chosen_.clear();
    for (int r = 0; r < node_.n_rows; ++r) {
      const TreeId tree = node_.row(r)[c];
      if (trees[tree].is_leaf())
        constant += trees[tree].least;
      else
        chosen_.push_back(tree);
    }
    grid_.sums(rows_, chosen_, own_);
    margins_[c].resize(layout.cells);
    for (int i = 0; i < layout.cells; ++i) margins_[c][i] = values_[i] + constant;
    grid_.spread(rows_, own_.data(), layout, margins_[c].data());
  }
  if (problem_.partners.asked()) {
    problem_.partners.extremes(
        node_.members, layout.cells, [&](int c, bool) { return margins_[c].data(); }, partner_low_, partner_high_,
        partner_work_);
    return;
  }
  least_ = most_ = margins_[0];
  for (int c = 1; c < node_.n_classes; ++c)
    for (int i = 0; i < layout.cells; ++i) {
      least_[i] = std::min(least_[i], margins_[c][i]);
      most_[i] = std::max(most_[i], margins_[c][i]);
    }
}

bool Drawer::prepare(const Word* box) {
  if (problem_.thresholds.counted != 0) return false;
  if (!nodes_.loads(box)) return false;
  nodes_.load(box, node_);
  std::iota(member_.begin(), member_.end(), 0);
  if (!problem_.partners.asked())  // otherwise every combination has partners of its own
    nodes_.merge_classes(node_, member_.data());
  for (int c = static_cast<int>(member_.size()), k = static_cast<int>(node_.members.size());
       !node_.members.empty() && c-- > 0;) {
    const bool left = k > 0 && node_.members[k - 1] == c;  // from the end: class k - 1 is not behind combination c
    member_[c] = left ? member_[--k] : nobody;
  }
  if (parts_.find(node_) > finish_limit_) return false;
  grid_.begin(node_);
  for (int axis = 0; axis < problem_.axes.size(); ++axis) {
    const bool inside = parts_.holds(axis);
    if (inside) grid_.group(node_, parts_.active(), axis);
    list_cells(axis, inside);
  }
  for (int k = 0; k < parts_.size(); ++k) grid_.lay_out(parts_.axes(k), layouts_[k]);
  list_sums(Side::b, b_);
  sort_b();
  list_sums(Side::a, a_);
  margins();
  return true;
}

// --- counterexamples by ranks of B -------------------------------------------------------------------------------------

int Drawer::rank(std::int64_t limit) const {
  return static_cast<int>(std::upper_bound(b_key_.begin(), b_key_.end(), limit) - b_key_.begin());
}

bool Drawer::close_to_some(std::int64_t limit) const {
  // An entry of B so close to the limit that rounded values cannot tell on which side it is.
  const std::int64_t fuzz = problem_.thresholds.fuzz;
  return rank(limit - fuzz - 1) != rank(limit + fuzz);
}

/// The smallest margin, without what A and B add, among those that class c looks at for class 0 ...
std::int64_t Drawer::least_seen(int cell, int c) const {
  return problem_.partners.asked() ? partner_low_[static_cast<std::size_t>(c) * layouts_[0].cells + cell] : least_[cell];
}

/// ... and the largest among those that it looks at for class 1.
std::int64_t Drawer::most_seen(int cell, int c) const {
  return problem_.partners.asked() ? partner_high_[static_cast<std::size_t>(c) * layouts_[0].cells + cell] : most_[cell];
}

bool Drawer::unsure(std::int64_t a, int cell, int c) const {
  const Thresholds& t = problem_.thresholds;
  if (problem_.partners.scores.asked()) {
    for (const bool above : {false, true})
      if (far_ranks(a, cell, c, above, true).size() != far_ranks(a, cell, c, above, false).size()) return true;
    if (t.all_confident) return false;
  }
  if (t.fuzz == 0) return false;
  if (by_signs()) return close_to_some(t.neg - a - least_[cell]) || close_to_some(t.neg - a - most_[cell]);
  const std::int64_t v = margins_[c][cell] + a;
  return close_to_some(t.neg - v) || close_to_some(t.pos - 1 - v) || close_to_some(t.conf_pos - 1 - v) ||
         close_to_some(t.conf_neg - v);
}

Drawer::Interval Drawer::signs(std::int64_t a, int cell) const {
  const std::int64_t limit = problem_.thresholds.neg - a;
  return {rank(limit - most_[cell]), rank(limit - least_[cell])};
}

Drawer::Interval Drawer::far_ranks(std::int64_t a, int cell, int c, bool above, bool surely) const {
  const std::int64_t own = margins_[c][cell];
  const std::int64_t d = above ? most_seen(cell, c) - own : own - least_seen(cell, c);
  const MarginRange range = problem_.partners.scores.too_far(d, above, problem_.thresholds.fuzz, surely);
  return range.empty() ? Interval{} : Interval{rank(range.first - 1 - own - a), rank(range.last - own - a)};
}

Drawer::Intervals Drawer::score_intervals(std::int64_t a, int cell, int c) const {
  // Where x is confident, and too far from the smallest of its partners, or else from the largest.
  const Thresholds& t = problem_.thresholds;
  const std::int64_t v = margins_[c][cell] + a;
  const int all = static_cast<int>(b_key_.size());
  const Interval below = far_ranks(a, cell, c, false, true), above = far_ranks(a, cell, c, true, true);
  Intervals found;
  int n = 0;
  const int low = t.all_confident ? 0 : rank(t.conf_neg - v), high = t.all_confident ? 0 : rank(t.conf_pos - 1 - v);
  for (const Interval side : {Interval{0, low}, Interval{high, all}}) {
    const auto inside = [&](Interval part) {
      return Interval{std::max(part.first, side.first), std::min(part.last, side.last)};
    };
    const Interval one = inside(below), two = inside(above);
    found[n++] = one;
    found[n++] = one.empty() ? two : Interval{two.first, std::min(two.last, one.first)};
    found[n++] = one.empty() ? Interval{} : Interval{std::max(two.first, one.last), two.last};
  }
  return found;
}

Drawer::Intervals Drawer::intervals(std::int64_t a, int cell, int c) const {
  // Where the class is confident with class 1 and sees class 0, and the other way round.
  if (problem_.partners.scores.asked()) return score_intervals(a, cell, c);
  const Thresholds& t = problem_.thresholds;
  const std::int64_t v = margins_[c][cell] + a, least = least_seen(cell, c), most = most_seen(cell, c);
  return {Interval{rank(t.conf_pos - 1 - v), rank(t.neg - a - least)},
          Interval{rank(t.pos - 1 - a - most), rank(t.conf_neg - v)}};
}

double Drawer::weigh() {
  // The sum of all, or -1 if 64 bits cannot place some margin exactly.
  const auto n_cells = static_cast<std::size_t>(layouts_[0].cells);
  behind_.resize(a_.value.size() * n_cells);
  double total = 0.0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < a_.value.size(); ++i)
    for (int cell = 0; cell < layouts_[0].cells; ++cell) {
      behind_[at++] = total;
      const std::int64_t a = a_.value[i];
      const double w = cell_mass_[cell] * a_.mass[i];
      if (by_signs()) {
        if (unsure(a, cell, 0)) return -1.0;
        if (least_[cell] != most_[cell]) total += w * mass_of(signs(a, cell));
        continue;
      }
      for (int c = 0; c < node_.n_classes; ++c) {
        if (unsure(a, cell, c)) return -1.0;
        for (const Interval ranks : intervals(a, cell, c)) total += w * node_.class_mass[c] * mass_of(ranks);
      }
    }
  return total;
}

Drawer::Found Drawer::exists(const Word* box) {
  if (!prepare(box)) return Found::unsure;
  for (const std::int64_t a : a_.value)
    for (int cell = 0; cell < layouts_[0].cells; ++cell) {
      if (by_signs()) {
        if (unsure(a, cell, 0)) return Found::unsure;
        if (!signs(a, cell).empty()) return Found::some;
        continue;
      }
      for (int c = 0; c < node_.n_classes; ++c) {
        if (unsure(a, cell, c)) return Found::unsure;
        if (node_.class_mass[c] == 0.0) continue;  // not among the x that are asked about
        for (const Interval ranks : intervals(a, cell, c))
          if (!ranks.empty()) return Found::some;
      }
    }
  return Found::none;
}

// --- one draw ----------------------------------------------------------------------------------------------------------

int Drawer::pick_cell(int axis, int group) {
  const std::int32_t* cell = cell_.data() + static_cast<std::ptrdiff_t>(axis) * problem_.axes.longest;
  const std::int32_t* start = group_start_.data() + static_cast<std::ptrdiff_t>(axis) * (problem_.axes.longest + 2);
  const double* mass = problem_.axes.role[axis] == Role::fixed ? problem_.axes.mass_of(axis) : nullptr;
  const int first = start[group], stop = start[group + 1];
  if (stop - first == 1 || !mass) return cell[first];  // sensitive cells are the combination's business
  double total = 0.0;
  for (int i = first; i < stop; ++i) total += mass[cell[i]];
  double left = uniform() * total;
  int chosen = first;
  for (int i = first; i < stop && left >= 0.0; ++i)
    if (mass[cell[i]] > 0.0) {
      chosen = i;
      left -= mass[cell[i]];
    }
  return cell[chosen];
}

void Drawer::spell_out(Side side, std::int64_t entry, std::int32_t* cells) {
  for (int k = parts_.size() - 1; k >= 0; --k) {
    if (parts_.side(k) != side) continue;
    const Layout& layout = layouts_[k];
    std::int64_t own = entry % layout.cells;
    entry /= layout.cells;
    for (int i = layout.n - 1; i >= 0; --i) {
      cells[layout.axis[i]] = pick_cell(layout.axis[i], static_cast<int>(own % layout.size[i]));
      own /= layout.size[i];
    }
  }
}

int Drawer::pick_combination(int cell, std::int64_t add, std::int64_t least, std::int64_t most, int only,
                             Interval places) {
  // By mass, among those whose margin is in [least, most], whose class is `only` (-1: any), and at these places (-1: all).
  const Combinations& all = problem_.combinations;
  const auto fits = [&](int c) {
    if (member_[c] == nobody) return false;
    if (places.first >= 0 && (problem_.partners.place[c] < places.first || problem_.partners.place[c] > places.last))
      return false;
    const std::int64_t margin = margins_[member_[c]][cell] + add;
    return least <= margin && margin <= most && (only < 0 || only == member_[c]);
  };
  double total = 0.0;
  int count = 0;
  for (int c = 0; c < all.size(); ++c)
    if (fits(c)) {
      total += all.mass[c];
      ++count;
    }
  const bool even = total <= 0.0;  // such values have no mass of their own; as an x' they exist
  double left = uniform() * (even ? count : total);
  int chosen = -1;
  for (int c = 0; c < all.size() && left >= 0.0; ++c)
    if (fits(c) && (even || all.mass[c] > 0.0)) {
      chosen = c;
      left -= even ? 1.0 : all.mass[c];
    }
  return chosen;
}

int Drawer::pick_partner(int cell, std::int64_t add, int own) {
  // A combination that makes `own` a counterexample; -1 if rounded values cannot tell: the caller has to look for an x'.
  const Thresholds& t = problem_.thresholds;
  const Partners& p = problem_.partners;
  const std::int64_t margin = margins_[member_[own]][cell] + add;
  Interval low{-1, -1}, high{-1, -1};
  if (p.asked()) {
    const int place = p.place[own];
    low = {p.low_first[place], p.low_last[place]};
    high = {p.high_first[place], p.high_last[place]};
  }
  if (p.scores.asked()) {
    for (const bool above : {false, true}) {  // the farthest will do
      const int c = member_[own];
      const std::int64_t end = above ? most_seen(cell, c) + add : least_seen(cell, c) + add;
      const std::int64_t d = above ? end - margin : margin - end;
      if (p.scores.too_far(d, above, t.fuzz, true).holds(margin, margin))
        return pick_combination(cell, add, end, end, -1, above ? high : low);
    }
    return -1;
  }
  if (margin <= t.conf_neg - t.fuzz) return pick_combination(cell, add, t.pos + t.fuzz, far, -1, high);
  if (margin >= t.conf_pos + t.fuzz) return pick_combination(cell, add, -far, t.neg - t.fuzz, -1, low);
  return -1;
}

void Drawer::draw_one(double total, std::int32_t* cells, std::int32_t* combination) {
  const int n_cells = layouts_[0].cells;
  Interval ranks;
  int only = -1, cell = 0;
  std::int64_t entry = 0, a = 0;
  while (ranks.empty()) {  // a rounded sum may point at an empty interval; then draw again
    const std::int64_t at = search_sum(behind_, 0, static_cast<std::ptrdiff_t>(behind_.size()), uniform() * total);
    entry = at / n_cells;
    cell = static_cast<int>(at % n_cells);
    a = a_.value[entry];
    if (by_signs()) {
      const Interval both = signs(a, cell);
      if (mass_of(both) > 0.0) ranks = both;
      continue;
    }
    double mass = 0.0;
    for (int c = 0; c < node_.n_classes; ++c)
      for (const Interval part : intervals(a, cell, c)) mass += node_.class_mass[c] * mass_of(part);
    double left = uniform() * mass;
    for (int c = 0; c < node_.n_classes && ranks.empty(); ++c)
      for (const Interval part : intervals(a, cell, c)) {
        const double own = node_.class_mass[c] * mass_of(part);
        if (left < own) {
          ranks = part;
          only = c;
          break;
        }
        left -= own;
      }
  }
  const double at = prefix_[ranks.first] + uniform() * (prefix_[ranks.last] - prefix_[ranks.first]);
  const std::ptrdiff_t rank = search_sum(prefix_, ranks.first, ranks.last, at);
  std::fill_n(cells, problem_.axes.size(), -1);
  spell_out(Side::vector, cell, cells);
  spell_out(Side::a, entry, cells);
  spell_out(Side::b, b_entry_[rank], cells);
  for (int axis = 0; axis < problem_.axes.size(); ++axis)
    if (cells[axis] < 0) cells[axis] = pick_cell(axis, 0);
  const std::int64_t add = a + b_key_[rank];
  combination[0] = pick_combination(cell, add, -far, far, only);
  combination[1] = pick_partner(cell, add, combination[0]);
}

bool Drawer::draw(const Word* box, std::span<const std::int64_t> rows, std::int32_t* cells, std::int32_t* combinations) {
  if (!prepare(box)) return false;
  const double total = weigh();
  if (!(total > 0.0)) return false;
  for (const std::int64_t row : rows) draw_one(total, cells + row * problem_.axes.size(), combinations + 2 * row);
  return true;
}

}  // namespace boxqte
