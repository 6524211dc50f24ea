#include "combination_sums.hpp"

#include <algorithm>

namespace boxqte {

namespace {

constexpr int tile_words = 64;
constexpr std::int64_t most_totals = 4096;

}  // namespace

bool CombinationSums::fits(const Forest& forest) {
  std::int64_t n = forest.n_outputs();
  for (int a = 0; a < forest.n_axes(); ++a) {
    if (!forest.of(a).sensitive && forest.of(a).wide()) return false;
    if (forest.of(a).sensitive) n *= forest.of(a).n_cells;
    if (n > most_totals) return false;
  }
  return true;
}

CombinationSums::CombinationSums(const Forest& forest, const LeafMasks& masks)
    : forest_(forest), masks_(masks), n_outputs_(forest.n_outputs()) {
  for (int a = 0; a < forest.n_axes(); ++a) {
    if (forest.of(a).sensitive)
      axes_.push_back(a);
    else if (masks.rows(a).n > 0)
      others_.push_back(a);
  }
  stride_.resize(axes_.size());
  for (std::size_t i = axes_.size(); i-- > 0;) {
    stride_[i] = n_;
    n_ *= forest.of(axes_[i]).n_cells;
  }
  corners_.assign(masks.n_leaves(), {});
  more_start_.assign(masks.n_leaves() + 1, 0);
  for (int t = 0; t < static_cast<int>(masks.trees.size()); ++t) {
    const MaskedTree& tree = masks.trees[t];
    note_corners(forest, t);
    const bool simple = tree.words == 1 && masks.sorted;
    Tile* tile = tiles_.empty() ? nullptr : &tiles_.back();
    if (!tile || tile->words + tree.words > tile_words || tile->simple != simple ||
        (simple && tile->output != tree.output)) {
      tiles_.push_back({t, t, tree.word, 0, tree.output, simple});
      tile = &tiles_.back();
    }
    tile->last_tree = t + 1;
    tile->words += tree.words;
  }
}

void CombinationSums::note_corners(const Forest& forest, int t) {
  const MaskedTree& tree = masks_.trees[t];
  std::vector<int> corners, longer;
  for (int id = tree.word * word_bits; id < (tree.word + tree.words) * word_bits; ++id) {
    if (has_bit(masks_.all.data(), id)) {
      corners.assign(1, 0);
      for (std::size_t i = 0; i < axes_.size(); ++i) {
        const int a = axes_[i];
        longer.clear();
        bool before = false;
        for (int cell = 0; cell < forest.of(a).n_cells; ++cell) {
          const bool here = has_bit(masks_.at(a, cell), id);
          if (here != before)
            for (const int corner : corners)
              longer.push_back((corner + (cell * stride_[i] << how_bits)) ^ (here ? plus : minus));
          before = here;
        }
        corners.swap(longer);
      }
      const int second = corners.size() > 1 ? corners[1] : static_cast<int>(nothing);
      corners_[id] = {static_cast<std::uint16_t>(corners[0]),
                      static_cast<std::uint16_t>(second | (corners.size() > 2 ? int{and_more} : 0))};
      if (corners.size() > 2) more_.insert(more_.end(), corners.begin() + 2, corners.end());
    }
    more_start_[id + 1] = static_cast<std::uint32_t>(more_.size());
  }
}

int CombinationSums::combination_of(const std::int32_t* cells) const {
  int at = 0;
  for (std::size_t i = 0; i < axes_.size(); ++i) at += cells[axes_[i]] * stride_[i];
  return at;
}

void CombinationSums::take_cells(int combination, std::int32_t* cells) const {
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    cells[axes_[i]] = combination / stride_[i];
    combination %= stride_[i];
  }
}

void CombinationSums::sum(const std::int32_t* cells, int n_points, std::int64_t* totals) const {
  const std::size_t width = static_cast<std::size_t>(n_outputs_) * n_;
  std::fill_n(totals, width * n_points, 0);
  for (int i = 0; i < n_points; ++i)
    for (int k = 0; k < n_outputs_; ++k) totals[i * width + k * n_] = masks_.constant[k];
  for (const Tile& tile : tiles_) add_tile(tile, cells, n_points, totals);
  for (std::size_t j = 0; j < axes_.size(); ++j) {
    const int length = forest_.of(axes_[j]).n_cells, stride = stride_[j], block = length * stride;
    for (std::size_t at = 0; at < width * n_points; at += block)
      for (int i = stride; i < block; ++i) totals[at + i] += totals[at + i - stride];
  }
}

void CombinationSums::add_tile(const Tile& tile, const std::int32_t* cells, int n_points, std::int64_t* totals) const {
  const int n_axes = forest_.n_axes(), n_rows = static_cast<int>(others_.size());
  const std::size_t width = static_cast<std::size_t>(n_outputs_) * n_;
  const int whole = std::min((tile.words + 3) / 4 * 4,
                             masks_.stride() - tile.word);  // no rest behind the last vector
  std::vector<Word> words(whole);
  std::vector<const Word*> rows(n_rows), first(n_rows);
  std::vector<std::int32_t> several(tile.last_tree - tile.first_tree + 1);
  for (int r = 0; r < n_rows; ++r) first[r] = masks_.at(others_[r], 0) + tile.word;
  const std::int64_t* value = masks_.value.data() + static_cast<std::size_t>(tile.word) * word_bits;
  for (int i = 0; i < n_points; ++i) {
    const std::int32_t* cell = cells + static_cast<std::ptrdiff_t>(i) * n_axes;
    for (int r = 0; r < n_rows; ++r)
      rows[r] = first[r] + static_cast<std::ptrdiff_t>(cell[others_[r]]) * masks_.stride();
    meet_rows(rows.data(), n_rows, whole, words.data());
    std::int64_t* total = totals + i * width;
    if (!tile.simple) {
      for (int t = tile.first_tree; t < tile.last_tree; ++t)
        add_leaves(masks_.trees[t], words.data() - tile.word, total);
      continue;
    }
    // Most trees have one leaf left, which all combinations share: count the
    // first leaf, and look at the others again.
    std::int64_t sum = 0;
    int n_several = 0;
    for (int w = 0; w < tile.words; ++w) {
      sum += value[w * word_bits + first_bit(words[w])];
      several[n_several] = w;
      n_several += (words[w] & (words[w] - 1)) != 0;
    }
    for (int k = 0; k < n_several; ++k) {
      const int w = several[k];
      sum -= value[w * word_bits + first_bit(words[w])];
      add_leaves(masks_.trees[tile.first_tree + w], words.data() - tile.word, total);
    }
    total[static_cast<std::ptrdiff_t>(tile.output) * n_] += sum;
  }
}

inline void CombinationSums::add_leaves(const MaskedTree& tree, const Word* words, std::int64_t* total) const {
  for (int w = tree.word; w < tree.word + tree.words; ++w) {
    if (words[w] == 0) continue;
    const std::size_t first = static_cast<std::size_t>(w) * word_bits;
    add_leaf(tree, first + first_bit(words[w]), total);
    Word word = words[w] & (words[w] - 1);
    if (word == 0) continue;
    const int last = last_bit(word);
    add_leaf(tree, first + last, total);
    for (word ^= Word{1} << last; word != 0; word &= word - 1) add_leaf(tree, first + first_bit(word), total);
  }
}

inline void CombinationSums::add_leaf(const MaskedTree& tree, std::size_t leaf, std::int64_t* total) const {
  if (masks_.sorted)
    add_corners(leaf, masks_.value[leaf], total + static_cast<std::ptrdiff_t>(tree.output) * n_);
  else
    for (int k = 0; k < n_outputs_; ++k)
      add_corners(leaf, masks_.values(k)[leaf], total + static_cast<std::ptrdiff_t>(k) * n_);
}

inline void CombinationSums::add_corners(std::size_t leaf, std::int64_t value, std::int64_t* total) const {
  const Corners c = corners_[leaf];
  total[c.one >> how_bits] += counted(value, c.one);
  total[c.two >> how_bits] += counted(value, c.two);
  if (c.two & and_more)
    for (std::uint32_t i = more_start_[leaf]; i < more_start_[leaf + 1]; ++i)
      total[more_[i] >> how_bits] += counted(value, more_[i]);
}

}  // namespace boxqte
