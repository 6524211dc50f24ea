#include "enclose.hpp"

#include <algorithm>

namespace boxqte {

namespace {
constexpr double bucket_cells = 1000;
constexpr int open_buckets = 4;  // so many are tried for a tree
}  // namespace

Encloser::Encloser(Nodes& nodes, Finisher& finisher, double finish_limit)
    : problem_(nodes.problem()),
      nodes_(nodes),
      trees_(nodes.trees()),
      finisher_(finisher),
      finish_limit_(finish_limit),
      node_(nodes.room()),
      kept_(nodes.room()),
      parts_(nodes.problem(), nodes.trees()),
      trial_(nodes.problem(), nodes.trees()),
      joint_axes_(nodes.trees().axis_words()),
      joint_cuts_(nodes.trees().cut_words()) {}

void Encloser::rank_trees() {
  candidates_.clear();
  for (int t = 0; t < node_.n_common; ++t) candidates_.push_back({trees_[node_.common[t]].spread(), t, false});
  for (int r = 0; r < node_.n_rows; ++r) {
    std::int64_t spread = 0;
    for (int c = 0; c < node_.n_classes; ++c) spread = std::max(spread, trees_[node_.row(r)[c]].spread());
    candidates_.push_back({spread, r, true});
  }
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& one, const Candidate& two) {
    return one.spread != two.spread ? one.spread > two.spread : one.row != two.row ? one.row : one.at < two.at;
  });
}

bool Encloser::keep(const Candidate& candidate) {
  trial_.copy(parts_);
  if (candidate.row) {
    const TreeId* row = node_.row(candidate.at);
    for (int c = 0; c < node_.n_classes; ++c)
      if (c == 0 || row[c] != row[c - 1]) trial_.add_row(row[c]);
  } else {
    trial_.add_common(node_.common[candidate.at]);
  }
  if (trial_.cost(node_.domain.data()) > finish_limit_) return false;
  std::swap(parts_, trial_);
  return true;
}

double Encloser::joint_cells(const Bucket& bucket, TreeId tree) {
  double cells = 1.0;
  for (std::size_t w = 0; w < joint_axes_.size(); ++w) joint_axes_[w] = bucket.axes[w] | trees_.axes(tree)[w];
  for (std::size_t w = 0; w < joint_cuts_.size(); ++w) joint_cuts_[w] = bucket.cuts[w] | trees_.cuts(tree)[w];
  each_bit(joint_axes_.data(), trees_.axis_words(),
           [&](int axis) { cells *= cells_on(problem_, joint_cuts_.data(), axis, node_.domain.data()); });
  return cells;
}

void Encloser::put_into_bucket(TreeId tree) {
  Bucket* best = nullptr;
  double growth = 0.0;
  for (int i = std::max(n_buckets_ - open_buckets, 0); i < n_buckets_; ++i) {
    const double cells = joint_cells(buckets_[i], tree);
    if (cells > bucket_cells || (best && cells / buckets_[i].cells >= growth)) continue;
    best = &buckets_[i];
    growth = cells / best->cells;
  }
  if (!best) {
    if (n_buckets_ == static_cast<int>(buckets_.size())) buckets_.emplace_back();
    best = &buckets_[n_buckets_++];
    best->trees.clear();
    best->axes.assign(joint_axes_.size(), 0);
    best->cuts.assign(joint_cuts_.size(), 0);
  }
  best->cells = joint_cells(*best, tree);
  best->axes = joint_axes_;
  best->cuts = joint_cuts_;
  best->trees.push_back(tree);
}

void Encloser::keep_widest() {
  parts_.clear();
  kept_.domain = node_.domain;
  kept_.axis_mass = node_.axis_mass;
  kept_.offset = node_.offset;
  kept_.residue = node_.residue;
  kept_.class_mass = node_.class_mass;
  kept_.n_classes = node_.n_classes;
  kept_.n_common = kept_.n_rows = n_buckets_ = 0;
  // A sign is certain only beyond the library's rounding error and our own.
  const std::int64_t margin = problem_.thresholds.band + problem_.thresholds.fuzz;
  slack_.assign(node_.n_classes, {-margin, margin});
  for (const Candidate& candidate : candidates_) {
    const bool kept = keep(candidate);
    if (!candidate.row) {
      if (kept)
        kept_.common[kept_.n_common++] = node_.common[candidate.at];
      else
        put_into_bucket(node_.common[candidate.at]);
      continue;
    }
    const TreeId* row = node_.row(candidate.at);
    if (kept)
      std::copy_n(row, node_.n_classes, kept_.row(kept_.n_rows++));
    else
      for (int c = 0; c < node_.n_classes; ++c) slack_[c].add(trees_[row[c]]);
  }
  for (int i = 0; i < n_buckets_; ++i) {
    const Interval sums = finisher_.range(node_, buckets_[i].trees, buckets_[i].axes.data(), buckets_[i].cuts.data());
    for (Interval& slack : slack_) {
      slack.low += sums.low;
      slack.high += sums.high;
    }
  }
}

Certain Encloser::enclose(const Word* box) {
  nodes_.load(box, node_);
  rank_trees();
  keep_widest();
  parts_.cost(node_.domain.data());
  return finisher_.count_certain(kept_, parts_, slack_);
}

}  // namespace boxqte
