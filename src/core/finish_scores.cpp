// Counting scores that are too far apart (docs/engine.md, Theorem 12): who is too far from whom is seen from the rows alone, on
// the smaller grid of their axes; all that the common trees add is where that happens.
#include <algorithm>
#include <numeric>

#include "finish.hpp"

namespace boxqte {

namespace {

constexpr int block = 64;
constexpr int known_bits = 12;
constexpr std::size_t n_known = std::size_t{1} << known_bits;

/// Entries of a sorted list, from rank to rank.
struct Ranks {
  int first = 0, last = 0;

  int size() const { return std::max(last - first, 0); }
};

Ranks meet(Ranks one, Ranks two) { return {std::max(one.first, two.first), std::min(one.last, two.last)}; }

double mass(const Values& list, Ranks ranks) {
  return ranks.size() > 0 ? list.prefix(ranks.last) - list.prefix(ranks.first) : 0.0;
}

Ranks ranks(const Values& list, const MarginRange& range, std::int64_t add) {
  return range.empty() ? Ranks{} : Ranks{list.rank(range.first - 1 - add), list.rank(range.last - add)};
}

}  // namespace

const Finisher::Reaches& Finisher::reaches_of(std::int64_t d) {
  // The same distances come again and again, with the same trees.
  const Thresholds& t = problem_.thresholds;
  const Scores& scores = problem_.partners.scores;
  known_.resize(n_known);
  Reaches& known = known_[(static_cast<std::uint64_t>(d) * 0x9E3779B97F4A7C15U) >> (64 - known_bits)];
  if (known.d == d) return known;
  known.d = d;
  for (const bool above : {false, true})
    known.of[above] = {scores.too_far(d, above, t.fuzz, true), scores.too_far(d, above, t.fuzz, false),
                       scores.too_far(d, above, t.band + t.fuzz, true),
                       scores.too_far(d, above, t.band + t.fuzz, false)};
  return known;
}

void Finisher::row_reaches(const Node& node) {
  const std::size_t n = rows_.cells;
  reaches_.resize(n * node.n_classes);
  hulls_.assign(n, MarginRange{});
  for (int c = 0; c < node.n_classes; ++c)
    for (std::size_t row = 0; row < n; ++row) {
      const std::size_t at = c * n + row;
      const std::int64_t own = row_sum_[at];
      for (const bool above : {false, true}) {
        const std::int64_t d = above ? partner_high_[at] - own : own - partner_low_[at];
        Reach& reach = reaches_[at][above];
        reach = d > -2 * (problem_.thresholds.band + problem_.thresholds.fuzz) ? reaches_of(d).of[above] : Reach{};
        for (MarginRange* range : {&reach.sure, &reach.maybe, &reach.narrow, &reach.wide})
          if (!range->empty()) *range = {range->first - own, range->last - own};
        MarginRange& hull = hulls_[row];
        if (!reach.wide.empty())
          hull = hull.empty()
                     ? reach.wide
                     : MarginRange{std::min(hull.first, reach.wide.first), std::max(hull.last, reach.wide.last)};
      }
    }
}

Finisher::Count Finisher::count_scores(const Node& node, const Parts& parts, Values& a, Values& b) {
  const Partners& partners = problem_.partners;
  lay_out_vector(node, parts);
  row_sums(node);
  const int n_rows = rows_.cells;
  partners.extremes(
      node.members, n_rows, [&](int c, bool) { return row_sum_.data() + static_cast<std::ptrdiff_t>(c) * n_rows; },
      partner_low_, partner_high_, partner_work_);
  grid_.masses(layout_, 0, layout_.n, cell_mass_);
  n_cells_ = layout_.cells;
  std::vector<std::int64_t>& index = least_;  // of a cell of the rows
  index.resize(n_rows);
  std::iota(index.begin(), index.end(), 0);
  row_of_.assign(n_cells_, 0);
  grid_.spread(rows_, index.data(), layout_, row_of_.data());
  if (!partners.scores.probabilities() && problem_.thresholds.all_confident) return count_apart(node, a, b);
  grid_.sums(layout_, trees_of_part(node, parts.axes(0)), values_);
  row_reaches(node);
  b.index(work_, cache_.arena());
  return count_ranges(node, a, b);
}

Finisher::Count Finisher::count_apart(const Node& node, const Values& a, const Values& b) const {
  // Two margins that are at least a gap apart: what all classes add has no say, only its mass counts.
  const Thresholds& t = problem_.thresholds;
  const std::int64_t gap = problem_.partners.scores.gap;
  Count count;
  Sum all;
  for (int i = 0; i < a.size(); ++i)
    for (int j = 0; j < b.size(); ++j) all.add(a.mass(i) * b.mass(j));
  double unfair = 0.0;
  for (int cell = 0; cell < n_cells_; ++cell) {
    double share = 0.0, near = 0.0;
    for (int c = 0; c < node.n_classes; ++c) {
      const std::size_t at = static_cast<std::size_t>(c) * rows_.cells + row_of_[cell];
      const std::int64_t down = row_sum_[at] - partner_low_[at], up = partner_high_[at] - row_sum_[at];
      if (down >= gap || up >= gap) share += node.class_mass[c];
      const std::int64_t closest = std::min(std::abs(down - gap), std::abs(up - gap));
      if (closest <= 2 * t.band) near += node.class_mass[c];
      count.fuzzy |= t.fuzz > 0 && closest <= 2 * t.fuzz;
    }
    unfair += cell_mass_[cell] * share;
    count.near += cell_mass_[cell] * near * all.value();
    if (cell % block == block - 1 || cell == n_cells_ - 1) {
      count.unfair.add(unfair * all.value());
      unfair = 0.0;
    }
  }
  return count;
}

Finisher::Count Finisher::count_ranges(const Node& node, const Values& a, const Values& b) {
  // Differences of ranks in B, but for the margins that are not confident.
  const Thresholds& t = problem_.thresholds;
  Count count;
  int kept = 0;
  for (int cell = 0; cell < n_cells_; ++cell) {
    values_[kept] = values_[cell];
    cell_mass_[kept] = cell_mass_[cell];
    row_of_[kept] = row_of_[cell];
    const std::int64_t low = values_[cell] + a.least() + b.least(), high = values_[cell] + a.most() + b.most();
    kept += !t.all_confident || hulls_[row_of_[cell]].meets(low, high);
  }
  n_cells_ = kept;
  for (int i = 0; i < a.size(); ++i) {
    double unfair = 0.0, low = 0.0;
    for (int cell = 0; cell < n_cells_; ++cell) {
      grid_.check_halt();
      const std::int64_t add = values_[cell] + a.value(i);
      double cell_unfair = 0.0, cell_low = 0.0, near = 0.0;
      for (int c = 0; c < node.n_classes; ++c) {
        const std::size_t at = static_cast<std::size_t>(c) * rows_.cells + row_of_[cell];
        const double share = node.class_mass[c];
        Ranks unsure;
        if (!t.all_confident) {
          const std::int64_t v = row_sum_[at] + add, edges[] = {t.conf_neg - v, t.conf_pos - 1 - v};
          unsure = {b.rank(edges[0]), b.rank(edges[1])};
          for (const int k : {0, 1}) {
            const int rank = k == 0 ? unsure.first : unsure.last;
            near += share * b.near(rank, edges[k], t.band);
            if (t.fuzz > 0) count.fuzzy |= b.near(rank, edges[k], t.fuzz) > 0.0;
          }
          cell_low += share * mass(b, unsure);
        }
        Ranks far[2];
        for (const int k : {0, 1}) {
          const Reach& reach = reaches_[at][k];
          if (!reach.wide.meets(add + b.least(), add + b.most())) continue;
          far[k] = ranks(b, reach.sure, add);
          const auto [first, last] = far[k];
          const bool clear = !reach.narrow.empty() && b.value(first - 1) + add < reach.wide.first &&
                             b.value(first) + add >= reach.narrow.first && b.value(last) + add > reach.wide.last &&
                             b.value(last - 1) + add <= reach.narrow.last;
          if (clear) continue;
          count.fuzzy |= far[k].size() != ranks(b, reach.maybe, add).size();
          near += share * (mass(b, ranks(b, reach.wide, add)) - mass(b, ranks(b, reach.narrow, add)));
        }
        const Ranks both = meet(far[0], far[1]);
        double found = mass(b, far[0]) + mass(b, far[1]) - mass(b, both);
        if (unsure.size() > 0)
          found -= mass(b, meet(far[0], unsure)) + mass(b, meet(far[1], unsure)) - mass(b, meet(both, unsure));
        cell_unfair += share * found;
      }
      count.near += cell_mass_[cell] * a.mass(i) * near;
      unfair += cell_mass_[cell] * cell_unfair;
      low += cell_mass_[cell] * cell_low;
      if (cell % block == block - 1 || cell == n_cells_ - 1) {
        count.unfair.add(a.mass(i) * unfair);
        count.low.add(a.mass(i) * low);
        unfair = low = 0.0;
      }
    }
  }
  return count;
}

}  // namespace boxqte
