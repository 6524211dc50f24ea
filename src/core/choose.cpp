#include "choose.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace boxqte {

namespace {
constexpr int n_candidates = 8;
}

Chooser::Shared::Shared(const Problem& problem, const ResidualTrees& trees)
    : parts(problem, trees), margins(static_cast<std::size_t>(std::max(problem.combinations.size(), 1))) {}

Chooser::Chooser(Nodes& nodes, const Halt& halt)
    : problem_(nodes.problem()),
      nodes_(nodes),
      halt_(halt),
      trees_(nodes.trees()),
      decision_(nodes.problem()),
      shared_(nodes.problem(), nodes.trees()),
      child_(nodes.problem(), nodes.trees()),
      row_(shared_.margins.size()),
      spare_(nodes.room()),
      score_(nodes.problem().cuts.size()) {}

int Chooser::find_candidates(const Node& node) {
  // Most first. The 1 is for trees whose range was rounded to nothing: a box is a single point per class only without any
  // tree.
  scored_.clear();
  const auto score = [&](TreeId tree, double times) {
    const Record& record = trees_[tree];
    if (record.is_leaf()) return;
    if (score_[record.cut] == 0.0) scored_.push_back(record.cut);
    score_[record.cut] += (1.0 + static_cast<double>(record.spread())) * times;
  };
  for (int t = 0; t < node.n_common; ++t) score(node.common[t], 1.0);
  const double share = 1.0 / node.n_classes;
  for (int r = 0; r < node.n_rows; ++r) {
    const TreeId* row = node.row(r);
    for (int c = 0, next; c < node.n_classes; c = next) {
      for (next = c + 1; next < node.n_classes && row[next] == row[c];) ++next;
      score(row[c], share * (next - c));
    }
  }
  const int n = std::min<int>(n_candidates, static_cast<int>(scored_.size()));
  best_.assign(scored_.begin(), scored_.end());
  std::partial_sort(best_.begin(), best_.begin() + n, best_.end(), [&](int one, int two) {
    return score_[one] != score_[two] ? score_[one] > score_[two] : one < two;
  });
  for (const std::int32_t cut : scored_) score_[cut] = 0.0;
  return n;
}

void Chooser::share(const Node& node, int axis) {
  shared_.parts.clear();
  shared_.common = {};
  for (int c = 0; c < node.n_classes; ++c) shared_.margins[c] = {node.offset[c], node.offset[c]};
  touched_rows_.clear();
  for (int r = 0; r < node.n_rows; ++r) {
    const TreeId* row = node.row(r);
    bool touched = false;
    for (int c = 0; c < node.n_classes && !touched; ++c)
      touched = (c == 0 || row[c] != row[c - 1]) && trees_.tests(row[c], axis);
    if (touched) {
      touched_rows_.push_back(r);
      continue;
    }
    for (int c = 0; c < node.n_classes; ++c) {
      if (c == 0 || row[c] != row[c - 1]) shared_.parts.add_row(row[c]);
      shared_.margins[c].add(trees_[row[c]]);
    }
  }
  touched_common_.clear();
  for (int t = 0; t < node.n_common; ++t) {
    const TreeId tree = node.common[t];
    if (trees_.tests(tree, axis)) {
      touched_common_.push_back(t);
    } else {
      shared_.parts.add_common(tree);
      shared_.common.add(trees_[tree]);
    }
  }
}

double Chooser::child_cost(const Node& node, int cut, int side) {
  if (!problem_.axes.chain[problem_.cuts.axis[cut]]) return made_child_cost(node, cut, side);
  const int n = node.n_classes;
  Interval common = shared_.common;
  Parts& parts = child_.parts;
  parts.copy(shared_.parts);
  Interval* margins = child_.margins.data();
  std::copy_n(shared_.margins.begin(), n, margins);
  bool differs = static_cast<int>(touched_rows_.size()) < node.n_rows;  // classes are not all the same function
  for (const int r : touched_rows_) {
    halt_.check();  // there may be 2**16 classes
    const TreeId* row = node.row(r);
    bool equal = true;
    for (int c = 0; c < n; ++c) {
      row_[c] = c > 0 && row[c] == row[c - 1] ? row_[c - 1] : trees_.restrict(row[c], cut, side);
      margins[c].add(trees_[row_[c]]);
      equal &= row_[c] == row_[0];
    }
    if (equal) {
      parts.add_common(row_[0]);
      continue;
    }
    differs = true;
    for (int c = 0; c < n; ++c)
      if (c == 0 || row_[c] != row_[c - 1]) parts.add_row(row_[c]);
  }
  for (const int t : touched_common_) {
    const TreeId tree = trees_.restrict(node.common[t], cut, side);
    common.add(trees_[tree]);
    parts.add_common(tree);
  }
  for (int c = 1; c < n && !differs; ++c) differs = node.offset[c] != node.offset[0];
  if ((problem_.thresholds.all_confident && !differs) ||
      decision_.decide({margins, static_cast<std::size_t>(n)}, common, node.members))
    return 0.0;
  return parts.cost(node.domain.data());
}

double Chooser::made_child_cost(const Node& node, int cut, int side) {
  nodes_.child(node, spare_, cut, side);
  return decision_.decide(spare_, trees_) ? 0.0 : child_.parts.find(spare_);
}

int Chooser::choose(const Node& node) {
  const int n = find_candidates(node);
  if (n == 0) return nothing_to_split;
  if (n == 1) return best_[0];
  // Cuts of one axis share a part of their children, so they are looked at one after the other.
  order_.resize(n);
  std::iota(order_.begin(), order_.end(), 0);
  std::sort(order_.begin(), order_.end(), [&](int one, int two) { return best_[one] < best_[two]; });
  int chosen = n, axis = -1;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < n; ++i) {
    const int cut = best_[order_[i]];
    if (problem_.cuts.axis[cut] != axis) share(node, axis = problem_.cuts.axis[cut]);
    double cost = child_cost(node, cut, 0);
    if (cost <= least) cost += child_cost(node, cut, 1);
    if (cost < least || (cost == least && order_[i] < chosen)) {
      least = cost;
      chosen = order_[i];
    }
  }
  return best_[chosen];
}

}  // namespace boxqte
