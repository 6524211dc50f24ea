#include "halves.hpp"

#include <algorithm>
#include <cmath>

namespace boxqte {

namespace {
// What a tree that lies in both halves costs, as a share of its spread: most of it is a sum of two functions.
constexpr double crossing = 0.5, row_crossing = 1.2;
// A node below the root counts for so much of its subtree's spread; a first cut doubles the grid, further ones lengthen it less.
constexpr double deeper = 0.35, few_cells = 3.0;
}  // namespace

Halves::Halves(const Problem& problem, const ResidualTrees& trees)
    : problem_(problem),
      trees_(trees),
      influence_(problem.cuts.size()),
      axes_(word_bits),
      place_(problem.axes.size()),
      half_of_(problem.axes.size()),
      n_groups_(problem.axes.size()),
      group_mass_(static_cast<std::size_t>(problem.axes.size()) * word_bits),
      can_(2 * static_cast<std::size_t>(problem.cuts.size())) {}

void Halves::weigh_tree(TreeId tree, double weight) {
  const Record& record = trees_[tree];
  if (record.is_leaf()) return;
  if (influence_[record.cut] == 0.0) weighed_.push_back(record.cut);
  influence_[record.cut] += (1.0 + static_cast<double>(record.spread())) * weight;
  weigh_tree(record.yes, deeper * weight);
  weigh_tree(record.no, deeper * weight);
}

void Halves::weigh(const Node& node) {
  weighed_.clear();
  for (int t = 0; t < node.n_common; ++t) weigh_tree(node.common[t], 1.0);
  const double share = 1.0 / node.n_classes;
  for (int r = 0; r < node.n_rows; ++r)
    for (int c = 0, next; c < node.n_classes; c = next) {
      for (next = c + 1; next < node.n_classes && node.row(r)[next] == node.row(r)[c];) ++next;
      weigh_tree(node.row(r)[c], share * (next - c));
    }
  std::sort(weighed_.begin(), weighed_.end());
  std::fill(place_.begin(), place_.end(), -1);
  n_axes_ = 0;
  for (std::size_t i = 0; i < weighed_.size(); ++i) {
    const int axis = problem_.cuts.axis[weighed_[i]];
    if (place_[axis] < 0) {
      if (n_axes_ == word_bits) continue;  // no grid has so many axes
      place_[axis] = n_axes_;
      Candidate& fresh = axes_[n_axes_++];
      fresh.axis = axis;
      fresh.cuts.clear();
      fresh.influence = 0.0;
      fresh.row = false;
    }
    Candidate& candidate = axes_[place_[axis]];
    candidate.cuts.emplace_back(influence_[weighed_[i]], weighed_[i]);
    candidate.influence += influence_[weighed_[i]];
    influence_[weighed_[i]] = 0.0;
  }
  for (int i = 0; i < n_axes_; ++i)
    std::sort(axes_[i].cuts.begin(), axes_[i].cuts.end(), [](const auto& one, const auto& two) {
      return one.first != two.first ? one.first > two.first : one.second < two.second;
    });
  ties_.clear();
  const auto tie = [&](TreeId tree) {
    Word axes = 0;
    each_bit(trees_.axes(tree), trees_.axis_words(), [&](int axis) {
      if (place_[axis] >= 0) axes |= Word{1} << place_[axis];
    });
    return axes;
  };
  for (int t = 0; t < node.n_common; ++t)
    ties_.push_back({tie(node.common[t]), static_cast<double>(trees_[node.common[t]].spread()), false});
  for (int r = 0; r < node.n_rows; ++r) {
    Word axes = 0;
    double spread = 0.0;
    for (int c = 0; c < node.n_classes; ++c) {
      if (c == 0 || node.row(r)[c] != node.row(r)[c - 1]) axes |= tie(node.row(r)[c]);
      spread += share * static_cast<double>(trees_[node.row(r)[c]].spread());
    }
    for (Word word = axes; word != 0; word &= word - 1) axes_[first_bit(word)].row = true;
    ties_.push_back({axes, spread, true});
  }
}

double Halves::keep_cuts(Word axes) {
  // Greedily the cut with the most influence for the factor by which it lengthens the grid; returns the influence that is lost.
  double size = 1.0, lost = 0.0;
  for (Word word = axes; word != 0; word &= word - 1) {
    Candidate& candidate = axes_[first_bit(word)];
    candidate.kept = 0;
    lost += candidate.influence;
  }
  for (Word growing = axes; growing != 0;) {
    Candidate* best = nullptr;
    double most = -1.0;
    for (Word word = growing; word != 0; word &= word - 1) {
      Candidate& candidate = axes_[first_bit(word)];
      const int kept = candidate.kept;
      if (kept == static_cast<int>(candidate.cuts.size()) || kept + 2 > word_bits ||
          size * (kept + 2) > cells_ * (kept + 1)) {
        growing &= ~(word & -word);
        continue;
      }
      const double density = candidate.cuts[kept].first * (kept + few_cells);
      if (density > most) {
        most = density;
        best = &candidate;
      }
    }
    if (!best) break;
    size *= (best->kept + 2.0) / (best->kept + 1.0);
    lost -= best->cuts[best->kept++].first;
  }
  return lost;
}

double Halves::cost(Word in_vector) {
  const Word all = n_axes_ == 0 ? 0 : low_bits(n_axes_);
  double total = keep_cuts(in_vector) + keep_cuts(all & ~in_vector);
  for (const Tie& tie : ties_)
    if ((tie.axes & in_vector) && (tie.axes & ~in_vector))
      total += tie.spread * (tie.row ? row_crossing : crossing);
    else if (tie.row && !(tie.axes & in_vector))
      total += tie.spread;
  return total;
}

void Halves::group(const Node& node, const Candidate& candidate) {
  // Cells that no kept cut tells apart are one group.
  const int axis = candidate.axis, words = problem_.cuts.words;
  const Word* held = &node.domain[static_cast<std::size_t>(axis) * words];
  const double* mass = problem_.axes.mass_of(axis);
  double* group_mass = group_mass_.data() + static_cast<std::size_t>(axis) * word_bits;
  for (const auto& [influence, cut] : candidate.cuts) can_[2 * cut] = can_[2 * cut + 1] = 0;
  signature_.clear();
  each_bit(held, words, [&](int cell) {
    Word signature = 0;
    for (int i = 0; i < candidate.kept; ++i)
      signature |= static_cast<Word>(problem_.cuts.sends_to_yes(candidate.cuts[i].second, cell)) << i;
    auto g = static_cast<std::size_t>(std::find(signature_.rbegin(), signature_.rend(), signature).base() -
                                      signature_.begin());
    if (g-- == 0) {
      if (signature_.size() < word_bits) {
        signature_.push_back(signature);
        group_mass[signature_.size() - 1] = 0.0;
      }
      g = signature_.size() - 1;  // beyond 64 groups, which only sets can make: the last one takes the rest
    }
    group_mass[g] += mass[cell];
    for (const auto& [influence, cut] : candidate.cuts)
      can_[2 * cut + (problem_.cuts.sends_to_yes(cut, cell) ? 1 : 0)] |= Word{1} << g;
  });
  n_groups_[axis] = static_cast<int>(signature_.size());
}

void Halves::choose(const Node& node, double cells) {
  cells_ = cells;
  weigh(node);
  Word in_vector = 0;
  for (int i = 0; i < n_axes_; ++i)
    if (axes_[i].row) in_vector |= Word{1} << i;
  double least = cost(in_vector);
  for (bool better = true; better;) {
    better = false;
    for (int i = 0; i < n_axes_; ++i) {
      const double other = cost(in_vector ^ (Word{1} << i));
      if (!(other < least)) continue;
      least = other;
      in_vector ^= Word{1} << i;
      better = true;
    }
  }
  cost(in_vector);
  std::fill(half_of_.begin(), half_of_.end(), -1);
  for (Half& half : halves_) {
    half.axis.clear();
    half.size.clear();
    half.cells = 1;
  }
  row_axes_ = 0;
  for (const bool row : {false, true})
    for (int i = 0; i < n_axes_; ++i) {
      const Candidate& candidate = axes_[i];
      if (candidate.row != row) continue;
      group(node, candidate);
      const int size = n_groups_[candidate.axis];
      const int at = (in_vector >> i & 1) != 0 ? vector : scalar;
      Half& half = halves_[at];
      // Sets may make more groups than one a cut; a grid beyond twice the limit is not begun.
      if (size == 1 || half.cells * static_cast<double>(size) > 2 * cells_) continue;
      half_of_[candidate.axis] = at;
      half.axis.push_back(candidate.axis);
      half.size.push_back(size);
      half.cells *= size;
      row_axes_ += row && at == vector;
    }
}

}  // namespace boxqte
