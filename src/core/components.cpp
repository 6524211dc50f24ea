#include "components.hpp"

#include <algorithm>

namespace boxqte {

double countable_cells(const Problem& problem, double finish_limit) {
  constexpr double grid_bytes = 1 << 28,
                   most_cells = 1 << 22;  // with more, one step of many would take too long to be halted
  return std::min(std::min(finish_limit, most_cells), std::max(grid_bytes / ((problem.partners.scores.asked() ? 200.0
                                                                              : problem.partners.asked()      ? 40.0
                                                                                                              : 8.0) *
                                                                             std::max(problem.combinations.size(), 1)),
                                                               16.0));
}

double cells_on(const Problem& problem, const Word* active, int axis, const Word* domain) {
  const int n_active = count_bits(active, problem.cuts.start[axis], problem.cuts.start[axis + 1]);
  if (problem.axes.chain[axis]) return n_active + 1;
  const int words = problem.cuts.words;
  const int held = count_bits(domain + static_cast<std::ptrdiff_t>(axis) * words, 0, words * word_bits);
  return std::min(held, 1 << std::min(n_active, 30));
}

Parts::Parts(const Problem& problem, const ResidualTrees& trees)
    : problem_(&problem),
      trees_(&trees),
      axis_words_(trees.axis_words()),
      cut_words_(trees.cut_words()),
      axes_((problem.trees.root.size() + 2) * static_cast<std::size_t>(axis_words_)),
      all_axes_(axis_words_),
      active_(cut_words_),
      parts_(problem.trees.root.size() + 2) {}

void Parts::clear() {
  std::fill(active_.begin(), active_.end(), 0);
  std::fill_n(axes_.begin(), axis_words_, 0);
  n_ = 1;
}

void Parts::copy(const Parts& other) {
  n_ = other.n_;
  std::copy_n(other.axes_.begin(), n_ * axis_words_, axes_.begin());
  std::copy_n(other.active_.begin(), cut_words_, active_.begin());
}

void Parts::join(int first, const Word* axes, Word* target) {
  // All parts from `first` on that share an axis with `axes` become part of the target, or of the first of them.
  for (int k = first; k < n_;) {
    Word* own = part(k);
    if (!overlap(own, axes, axis_words_)) {
      ++k;
    } else if (!target) {
      if (within(axes, own, axis_words_)) return;  // parts share no axis, so no other one meets it
      target = own;
      for (int w = 0; w < axis_words_; ++w) own[w] |= axes[w];
      ++k;
    } else {
      const Word* last = part(--n_);
      for (int w = 0; w < axis_words_; ++w) {
        target[w] |= own[w];
        own[w] = last[w];
      }
    }
  }
  if (!target) std::copy_n(axes, axis_words_, part(n_++));
}

void Parts::add_row(TreeId tree) {
  const Word *axes = trees_->axes(tree), *cuts = trees_->cuts(tree);
  for (int w = 0; w < cut_words_; ++w) active_[w] |= cuts[w];
  for (int w = 0; w < axis_words_; ++w) axes_[w] |= axes[w];
  join(1, axes, axes_.data());
}

void Parts::add_common(TreeId tree) {
  const Word *axes = trees_->axes(tree), *cuts = trees_->cuts(tree);
  if ((*trees_)[tree].is_leaf()) return;
  for (int w = 0; w < cut_words_; ++w) active_[w] |= cuts[w];
  join(0, axes, nullptr);
}

double Parts::cost(const Word* domain) {
  std::fill(all_axes_.begin(), all_axes_.end(), 0);
  for (int k = 0; k < n_; ++k) {
    double cells = 1.0;
    each_bit(axes(k), axis_words_, [&](int axis) { cells *= cells_on(*problem_, active_.data(), axis, domain); });
    for (int w = 0; w < axis_words_; ++w) all_axes_[w] |= axes(k)[w];
    parts_[k] = {cells, Side::vector};
  }
  double in_a = parts_[0].cells, in_b = 1.0;
  for (int placed = 1; placed < n_; ++placed) {
    Part* largest = nullptr;
    for (int k = 1; k < n_; ++k)
      if (parts_[k].side == Side::vector && (!largest || parts_[k].cells > largest->cells)) largest = &parts_[k];
    if (in_a * largest->cells + 4 * in_b <= in_a + 4 * in_b * largest->cells) {
      largest->side = Side::a;
      in_a *= largest->cells;
    } else {
      largest->side = Side::b;
      in_b *= largest->cells;
    }
  }
  return in_a + 4 * in_b;
}

double Parts::find(const Node& node) {
  clear();
  for (int r = 0; r < node.n_rows; ++r) {
    const TreeId* row = node.row(r);
    for (int c = 0; c < node.n_classes; ++c)
      if (c == 0 || row[c] != row[c - 1]) add_row(row[c]);  // neighbouring classes often share a tree
  }
  for (int t = 0; t < node.n_common; ++t) add_common(node.common[t]);
  return cost(node.domain.data());
}

}  // namespace boxqte
