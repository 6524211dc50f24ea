#include "components.hpp"

#include <algorithm>

namespace boxqte {

Parts::Parts(const Problem& problem, const ResidualTrees& trees)
    : problem_(problem),
      trees_(trees),
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

void Parts::add_row(TreeId tree) {
  const Word *axes = trees_.axes(tree), *cuts = trees_.cuts(tree);
  for (int w = 0; w < axis_words_; ++w) axes_[w] |= axes[w];
  for (int w = 0; w < cut_words_; ++w) active_[w] |= cuts[w];
}

void Parts::add_common(TreeId tree) {
  const Word *axes = trees_.axes(tree), *cuts = trees_.cuts(tree);
  for (int w = 0; w < cut_words_; ++w) active_[w] |= cuts[w];
  Word* target = nullptr;
  Word* part = axes_.data();
  for (int k = 0; k < n_;) {
    if (!overlap(part, axes, axis_words_)) {
      ++k;
      part += axis_words_;
    } else if (!target) {
      target = part;
      for (int w = 0; w < axis_words_; ++w) part[w] |= axes[w];
      ++k;
      part += axis_words_;
    } else {  // the tree connects two components
      const Word* last = axes_.data() + static_cast<std::ptrdiff_t>(--n_) * axis_words_;
      for (int w = 0; w < axis_words_; ++w) {
        target[w] |= part[w];
        part[w] = last[w];
      }
    }
  }
  if (target) return;
  std::copy_n(axes, axis_words_, part);
  ++n_;
}

double Parts::cells_on(int axis, const Word* domain) const {
  const int n_active = count_bits(active_.data(), problem_.cuts.start[axis], problem_.cuts.start[axis + 1]);
  if (problem_.axes.chain[axis]) return n_active + 1;
  // An upper bound: how many groups sets tell apart is counted only when the box is finished.
  const int words = problem_.cuts.words;
  const int held = count_bits(domain + static_cast<std::ptrdiff_t>(axis) * words, 0, words * word_bits);
  return std::min(held, 1 << std::min(n_active, 30));
}

double Parts::cost(const Word* domain) {
  std::fill(all_axes_.begin(), all_axes_.end(), 0);
  for (int k = 0; k < n_; ++k) {
    double cells = 1.0;
    each_bit(axes(k), axis_words_, [&](int axis) { cells *= cells_on(axis, domain); });
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
