#include "bounds.hpp"

#include <algorithm>

namespace boxqte {

Decision::Decision(const Problem& problem)
    : partners_(problem.partners),
      thresholds_(problem.thresholds),
      margin_(problem.thresholds.band + problem.thresholds.fuzz),
      margins_(static_cast<std::size_t>(std::max(problem.combinations.size(), 1))),
      verdict_(margins_.size()) {}

bool Decision::decide(const Node& node, const ResidualTrees& trees) {
  const int n = node.n_classes;
  // Theorem 1: one class left, exchanging sensitive values changes nothing at all.
  if (thresholds_.simple && n == 1 && !partners_.asked()) {
    verdict_[0] = Kind::fair;
    return true;
  }
  if (partners_.asked() && thresholds_.all_confident && node.n_rows == 0 &&
      std::all_of(node.offset.begin(), node.offset.begin() + n, [&](std::int64_t o) { return o == node.offset[0]; }) &&
      std::all_of(node.residue.begin(), node.residue.begin() + n, [&](auto r) { return r == node.residue[0]; })) {
    std::fill_n(verdict_.begin(), n, Kind::fair);
    return true;
  }
  Interval common;
  for (int t = 0; t < node.n_common; ++t) common.add(trees[node.common[t]]);
  for (int c = 0; c < n; ++c) margins_[c] = {node.offset[c], node.offset[c]};
  for (int r = 0; r < node.n_rows; ++r) {
    const TreeId* row = node.row(r);
    for (int c = 0; c < n; ++c) margins_[c].add(trees[row[c]]);
  }
  return decide(std::span<const Interval>(margins_).first(n), common, node.members);
}

bool Decision::decide_scores(int c, Interval own, Interval common) {
  // Theorem 12: what all classes add has no say in how far two margins are apart, only in where they are.
  const Thresholds& t = thresholds_;
  const std::int64_t low = own.low + common.low, high = own.high + common.high;
  if (high < t.conf_pos - margin_ && low > t.conf_neg + margin_) {
    verdict_[c] = Kind::low;
    return true;
  }
  if (!t.all_confident && low < t.conf_pos + margin_ && high > t.conf_neg - margin_) return false;
  const Scores& scores = partners_.scores;
  bool surely = false, maybe = false;
  for (const bool above : {false, true}) {
    const std::int64_t least = above ? high_[c] - own.high : own.low - low_end_[c];
    const std::int64_t most = above ? high_end_[c] - own.low : own.high - low_[c];
    surely |= scores.too_far(least, above, margin_, true).holds(low, high);
    maybe |= scores.too_far(most, above, margin_, false).meets(low, high);
  }
  verdict_[c] = surely ? Kind::unfair : Kind::fair;
  return surely || !maybe;
}

bool Decision::decide_related(std::span<const Interval> margins, Interval common,
                              std::span<const std::int32_t> members) {
  // Theorem 11: as Theorem 3, each class with the extremes of its own partners.
  const Thresholds& t = thresholds_;
  const int n = static_cast<int>(margins.size());
  ends_.resize(2 * margins.size());
  for (int c = 0; c < n; ++c) {
    ends_[c] = margins[c].low;
    ends_[n + c] = margins[c].high;
  }
  partners_.extremes(members, 1, [&](int c, bool) { return &ends_[c]; }, low_, high_, work_);
  partners_.extremes(members, 1, [&](int c, bool) { return &ends_[n + c]; }, low_end_, high_end_, work_);
  for (int c = 0; c < n; ++c) {
    if (partners_.scores.asked()) {
      if (!decide_scores(c, margins[c], common)) return false;
      continue;
    }
    const std::int64_t low = margins[c].low + common.low, high = margins[c].high + common.high;
    const bool surely_neg = low_end_[c] + common.high <= t.neg - margin_,
               never_neg = low_[c] + common.low > t.neg + margin_;
    const bool surely_pos = high_[c] + common.low >= t.pos + margin_,
               never_pos = high_end_[c] + common.high < t.pos - margin_;
    const bool is_pos = low >= t.conf_pos + margin_, is_neg = high <= t.conf_neg - margin_;
    if (high < t.conf_pos - margin_ && low > t.conf_neg + margin_)
      verdict_[c] = Kind::low;
    else if ((is_pos && surely_neg) || (is_neg && surely_pos))
      verdict_[c] = Kind::unfair;
    else if ((is_pos && never_neg) || (is_neg && never_pos) || (t.simple && never_neg && never_pos))
      verdict_[c] = Kind::fair;
    else
      return false;
  }
  return true;
}

bool Decision::decide(std::span<const Interval> margins, Interval common, std::span<const std::int32_t> members) {
  const Thresholds& t = thresholds_;
  if (partners_.asked()) return decide_related(margins, common, members);
  Interval least = margins[0], most = margins[0];  // the smallest, and the largest, of the lower and of the upper bounds
  for (const Interval& m : margins.subspan(1)) {
    least = {std::min(least.low, m.low), std::min(least.high, m.high)};
    most = {std::max(most.low, m.low), std::max(most.high, m.high)};
  }
  if (t.counted > 0) most = margins[0];  // Theorem 2a: whoever is of class 1 is x
  if (t.counted < 0) least = margins[0];
  for (Interval* extreme : {&least, &most}) *extreme = {extreme->low + common.low, extreme->high + common.high};
  const bool surely_neg = least.high <= t.neg - margin_;  // some class is certainly of class 0
  const bool surely_pos = most.low >= t.pos + margin_;
  if (t.simple) {
    // Theorem 2: all classes of one sign, or two surely of opposite signs.
    const bool one_sign = least.low >= t.pos + margin_ || most.high <= t.neg - margin_;
    verdict_[0] = one_sign ? Kind::fair : Kind::unfair;
    return one_sign || (surely_neg && surely_pos);
  }
  // Theorem 3: class by class. All or none: an open box is kept as its cells alone, so no part of it may be counted early.
  const bool never_neg = least.low > t.neg + margin_, never_pos = most.high < t.pos - margin_;
  for (std::size_t c = 0; c < margins.size(); ++c) {
    const std::int64_t low = margins[c].low + common.low, high = margins[c].high + common.high;
    if (high < t.conf_pos - margin_ && low > t.conf_neg + margin_)
      verdict_[c] = Kind::low;
    else if (low >= t.conf_pos + margin_ && (surely_neg || never_neg))
      verdict_[c] = surely_neg ? Kind::unfair : Kind::fair;
    else if (high <= t.conf_neg - margin_ && (surely_pos || never_pos))
      verdict_[c] = surely_pos ? Kind::unfair : Kind::fair;
    else
      return false;
  }
  return true;
}

void Decision::count(const Node& node, Masses& masses) const {
  const double mass = node.mass();
  if (thresholds_.simple && !partners_.asked())
    masses.add(verdict_[0], mass * node.allowed);
  else
    for (int c = 0; c < node.n_classes; ++c) masses.add(verdict_[c], mass * node.class_mass[c]);
  if (node.forbidden > 0.0) masses.add(Kind::low, mass * node.forbidden);
}

}  // namespace boxqte
