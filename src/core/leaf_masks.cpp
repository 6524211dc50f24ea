#include "leaf_masks.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace boxqte {

namespace {

constexpr int row_words = 8;  // rows begin at a multiple of so many words: whole vectors

}  // namespace

void meet_rows(const Word* const* rows, int n_rows, int n, Word* out) {
  int r = 0;
  if (n_rows == 0) std::fill_n(out, n, ~Word{0});
  if (n_rows >= 4) {
    const Word *a = rows[0], *b = rows[1], *c = rows[2], *d = rows[3];
    for (int i = 0; i < n; ++i) out[i] = a[i] & b[i] & c[i] & d[i];
    r = 4;
  } else if (n_rows > 0) {
    std::copy_n(rows[0], n, out);
    r = 1;
  }
  for (; r + 4 <= n_rows; r += 4) {
    const Word *a = rows[r], *b = rows[r + 1], *c = rows[r + 2], *d = rows[r + 3];
    for (int i = 0; i < n; ++i) out[i] &= a[i] & b[i] & c[i] & d[i];
  }
  for (; r < n_rows; ++r) {
    const Word* a = rows[r];
    for (int i = 0; i < n; ++i) out[i] &= a[i];
  }
}

std::size_t LeafMasks::bytes_needed(const Forest& forest) {
  std::vector<std::int32_t> ends(forest.root.begin(), forest.root.end());
  ends.push_back(static_cast<std::int32_t>(forest.axis.size()));
  std::sort(ends.begin(), ends.end());
  std::size_t words = 0, rows = 0, wide = 0;
  for (std::size_t t = 0; t + 1 < ends.size(); ++t)
    words += ((static_cast<std::size_t>(ends[t + 1] - ends[t]) + 1) / 2 + word_bits - 1) / word_bits;
  for (int a = 0; a < forest.n_axes(); ++a) {
    const bool ranged = forest.of(a).wide() && !forest.ragged[a];
    rows += static_cast<std::size_t>(forest.of(a).n_cells) * (ranged ? 3 : 1);
    wide += ranged;
  }
  const std::size_t leaf = wide * sizeof(CellRange) + static_cast<std::size_t>(forest.width) * 12;
  return words * (rows * sizeof(Word) + word_bits * leaf);
}

void LeafMasks::build(const Forest& forest, const std::int32_t* low, const std::int32_t* high) {
  lay_out_axes(forest, low, high);
  walk_trees(forest);
  sorted = forest.width == 1;
  constant = forest.base;
  trees.clear();
  output_start.assign(static_cast<std::size_t>(forest.n_outputs()) + 1, 0);
  words_used = 0;
  for (const Walked& w : walked_) {
    if (w.leaves == 1) {
      for (int k = 0; k < forest.n_outputs(); ++k) constant[k] += forest.adds(w.tree, leaf_node_[w.leaf], k);
      continue;
    }
    const int words = (w.leaves + word_bits - 1) / word_bits;
    trees.push_back({words_used, words, forest.output[w.tree], w.dependent});
    words_used += words;
    for (int k = std::max(forest.output[w.tree] + 1, 0); k <= forest.n_outputs(); ++k)
      output_start[k] = static_cast<int>(trees.size());
  }
  stride_ = (words_used + row_words - 1) / row_words * row_words;
  all.assign(stride_, 0);
  for (Rows& r : rows_) {
    const std::size_t size = static_cast<std::size_t>(r.n) * stride_;
    r.upto.assign(r.ragged ? 0 : size, ~Word{0});
    r.from.assign(r.upto.size(), ~Word{0});
    r.at.assign(size - r.upto.size(), ~Word{0});
  }
  value.assign(n_leaves() * forest.width, 0);
  for (Rows& r : rows_) r.range.resize(r.ranged ? n_leaves() : 0);
  const MaskedTree* tree = trees.data();
  for (const Walked& w : walked_)
    if (w.leaves > 1) place_tree(forest, w, *tree++);
  run_rows(forest);
  make_narrow();
}

void LeafMasks::lay_out_axes(const Forest& forest, const std::int32_t* low, const std::int32_t* high) {
  const int n = forest.n_axes();
  box_low_.assign(low, low + n);
  box_high_.assign(high, high + n);
  low_ = box_low_;
  high_ = box_high_;
  rows_.resize(n);
  narrows_.assign(n, 0);
  n_ranged_ = 0;
  for (int a = 0; a < n; ++a) {
    const PointAxis& axis = forest.of(a);
    Rows& r = rows_[a];
    r.first = low[a];
    r.n = low[a] < high[a] ? high[a] - low[a] + 1 : 0;
    r.ragged = forest.ragged[a] || r.n > 0xFFFF;
    r.ranged = r.n > 0 && !r.ragged && axis.wide();
    n_ranged_ += r.ranged;
    narrows_[a] = !forest.ragged[a] && (axis.ordered == axis.n_cells || high[a] < axis.ordered);
  }
}

void LeafMasks::walk_trees(const Forest& forest) {
  walked_.clear();
  inner_.clear();
  leaf_node_.clear();
  leaf_ranges_.clear();
  for (int t = 0; t < static_cast<int>(forest.root.size()); ++t) {
    Walked w{t, static_cast<std::int32_t>(leaf_node_.size()), 0, static_cast<std::int32_t>(inner_.size()), 0, false};
    walk(forest, forest.root[t]);
    w.leaves = static_cast<std::int32_t>(leaf_node_.size()) - w.leaf;
    w.inners = static_cast<std::int32_t>(inner_.size()) - w.inner;
    for (int i = 0; i < w.inners; ++i) w.dependent |= forest.of(forest.axis[inner_[w.inner + i].node]).sensitive;
    walked_.push_back(w);
  }
  std::stable_sort(walked_.begin(), walked_.end(), [&](const Walked& one, const Walked& two) {
    const int first = forest.output[one.tree], second = forest.output[two.tree];
    return first != second ? first < second : one.dependent < two.dependent;
  });
}

void LeafMasks::walk(const Forest& forest, int node) {
  while (forest.axis[node] >= 0) {
    const int a = forest.axis[node];
    const int side = narrows_[a] ? forest.side(node, low_[a], high_[a]) : forest.side(node, box_low_[a], box_high_[a]);
    if (side >= 0) {
      node = side ? node + 1 : forest.no[node];
      continue;
    }
    const std::size_t here = inner_.size();
    inner_.push_back({node, static_cast<std::int32_t>(leaf_node_.size()), 0, 0});
    const std::int32_t low = low_[a], high = high_[a], limit = forest.limit[node];
    if (limit >= 0) high_[a] = std::min(high, limit - 1);
    walk(forest, node + 1);
    inner_[here].middle = static_cast<std::int32_t>(leaf_node_.size());
    high_[a] = high;
    if (limit >= 0) low_[a] = std::max(low, limit);
    walk(forest, forest.no[node]);
    low_[a] = low;
    inner_[here].end = static_cast<std::int32_t>(leaf_node_.size());
    return;
  }
  leaf_node_.push_back(node);
  for (int a = 0; a < static_cast<int>(rows_.size()); ++a)
    if (rows_[a].ranged)  // an empty range stays empty: its high end is below
                          // its low end, which is then not the first cell
      leaf_ranges_.push_back({static_cast<std::uint16_t>(low_[a] - rows_[a].first),
                              static_cast<std::uint16_t>(std::max(high_[a] - rows_[a].first, 0))});
}

void LeafMasks::place_tree(const Forest& forest, const Walked& w, const MaskedTree& tree) {
  order_.resize(w.leaves);
  std::iota(order_.begin(), order_.end(), 0);
  const auto value_of = [&](int leaf) {
    return forest.value[static_cast<std::size_t>(leaf_node_[w.leaf + leaf]) * forest.width];
  };
  if (sorted)
    std::stable_sort(order_.begin(), order_.end(), [&](int one, int two) { return value_of(one) < value_of(two); });
  bit_.resize(w.leaves);
  for (int bit = 0; bit < w.leaves; ++bit) {
    const int leaf = w.leaf + order_[bit];
    bit_[order_[bit]] = bit;
    set_bit(&all[tree.word], bit);
    const std::size_t id = static_cast<std::size_t>(tree.word) * word_bits + bit;
    for (int k = 0; k < forest.width; ++k)
      value[k * n_leaves() + id] = sorted ? value_of(order_[bit]) : forest.adds(w.tree, leaf_node_[leaf], k);
    const CellRange* range = leaf_ranges_.data() + static_cast<std::ptrdiff_t>(leaf) * n_ranged_;
    for (int a = 0; a < static_cast<int>(rows_.size()); ++a) {
      Rows& r = rows_[a];
      if (!r.ranged) continue;
      r.range[id] = *range++;
      if (r.range[id].low <= r.range[id].high) continue;
      // Only the missing value gets here. An empty range would seem to meet windows around it; run_rows carries this
      // down.
      const int last = std::min(r.first + r.n, forest.of(a).ordered) - 1 - r.first;
      r.upto[static_cast<std::size_t>(last) * stride_ + id / word_bits] &= ~(Word{1} << (id % word_bits));
    }
  }
  for (int i = 0; i < w.inners; ++i) {
    const Inner& inner = inner_[w.inner + i];
    keep_yes_.assign(tree.words, ~Word{0});
    keep_no_.assign(tree.words, ~Word{0});
    const auto drop = [&](std::vector<Word>& keep, int leaf) {
      const int bit = bit_[leaf - w.leaf];
      keep[bit / word_bits] &= ~(Word{1} << (bit % word_bits));
    };
    for (int leaf = inner.begin; leaf < inner.middle; ++leaf) drop(keep_no_, leaf);
    for (int leaf = inner.middle; leaf < inner.end; ++leaf) drop(keep_yes_, leaf);
    cross_out(forest, inner, tree);
  }
}

/// Cells that a test sends to yes do not reach the leaves on its no side, and the other way round.
void LeafMasks::cross_out(const Forest& forest, const Inner& inner, const MaskedTree& tree) {
  const int a = forest.axis[inner.node], limit = forest.limit[inner.node];
  Rows& r = rows_[a];
  const auto meet = [&](std::vector<Word>& rows, int cell, const std::vector<Word>& keep) {
    Word* to = rows.data() + static_cast<std::ptrdiff_t>(cell - r.first) * stride_ + tree.word;
    for (int w = 0; w < tree.words; ++w) to[w] &= keep[w];
  };
  const int end = r.first + r.n;
  if (r.ragged) {
    for (int cell = r.first; cell < end; ++cell)
      meet(r.at, cell, forest.goes_yes(inner.node, cell) ? keep_yes_ : keep_no_);
    return;
  }
  const int last = std::min(end,
                            forest.of(a).ordered);  // run_rows carries both on to the cells behind
  if (limit > r.first) meet(r.upto, std::min(limit, last) - 1, keep_yes_);
  if (std::max(limit, r.first) < last) meet(r.from, std::max(limit, r.first), keep_no_);
  for (int cell = std::max(last, r.first); cell < end; ++cell)
    meet(r.upto, cell, forest.goes_yes(inner.node, cell) ? keep_yes_ : keep_no_);
}

void LeafMasks::run_rows(const Forest& forest) {
  const auto meet = [&](Word* to, const Word* with) {
    for (int w = 0; w < stride_; ++w) to[w] &= with[w];
  };
  const auto row = [&](std::vector<Word>& rows, int c) {  // rows are empty where every tree is a constant
    return rows.data() + static_cast<std::ptrdiff_t>(c) * stride_;
  };
  for (int a = 0; a < static_cast<int>(rows_.size()); ++a) {
    Rows& r = rows_[a];
    if (r.n == 0) continue;
    const int last = std::min(r.first + r.n, forest.of(a).ordered) - r.first;
    if (!r.ragged) {
      for (int c = last - 2; c >= 0; --c) meet(row(r.upto, c), row(r.upto, c + 1));
      for (int c = 1; c < last; ++c) meet(row(r.from, c), row(r.from, c - 1));
    }
    for (std::vector<Word>* rows : {&r.upto, &r.from, &r.at})
      for (std::size_t at = 0; at < rows->size(); at += stride_) meet(rows->data() + at, all.data());
    if (r.ragged) continue;
    r.at = r.upto;  // one row for a single cell is read faster than two
    for (std::size_t i = 0; i < r.at.size(); ++i) r.at[i] &= r.from[i];
    if (r.ranged) continue;
    r.upto.clear();
    r.from.clear();
  }
}

void LeafMasks::make_narrow() {
  std::int64_t largest = 0;
  const std::size_t rows = n_leaves() ? value.size() / n_leaves() : 0;
  for (const MaskedTree& tree : trees) {
    std::int64_t most = 0;
    for (std::size_t k = 0; k < rows; ++k)
      for (int i = 0; i < tree.words * word_bits; ++i)
        most = std::max(most, std::abs(value[k * n_leaves() + static_cast<std::size_t>(tree.word) * word_bits + i]));
    largest += most + 1;
  }
  narrow_shift = 0;
  // A difference of two outputs is at most twice as large, and each value is rounded by at most one unit.
  while ((largest >> narrow_shift) + static_cast<std::int64_t>(trees.size()) + 1 >= std::int64_t{1} << 29)
    ++narrow_shift;
  const std::int64_t half = (std::int64_t{1} << narrow_shift) >> 1;
  narrow.resize(value.size());
  for (std::size_t i = 0; i < value.size(); ++i)
    narrow[i] = static_cast<std::int32_t>((value[i] + half) >> narrow_shift);
}

}  // namespace boxqte
