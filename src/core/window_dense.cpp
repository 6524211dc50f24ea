// Small boxes of a window, all cells at once.
#include <algorithm>
#include <limits>

#include "window_search.hpp"

namespace boxqte {

/// The active axes as sides of a dense box; false if it has too many cells.
bool WindowSearch::lay_out(const Frame& frame) {
  sides_.clear();
  std::int64_t size = 1;
  for (const bool ranged : {false, true})
    for (int j = 0; j < static_cast<int>(wide_.size()); ++j) {
      const int a = wide_[j];
      if (is_active(j) && masks_->rows(a).ranged == ranged) {
        const int length = frame.high[a] - frame.low[a] + 1;
        sides_.push_back({a, j, frame.low[a], length, 0});
        size *= length;
        if (size > dense_limit_) return false;
      }
    }
  int stride = static_cast<int>(size);
  for (Side& side : sides_) {
    stride /= side.length;
    side.stride = stride;
  }
  dense_.assign(static_cast<std::size_t>(size), 0);
  return true;
}

/// A leaf's value at the corners of its cells: running sums along all sides
/// spread it over them.
void WindowSearch::add_corners(const Frame& frame, std::size_t leaf, std::size_t side, std::size_t place,
                               std::uint32_t value) {
  if (side < sides_.size() && !masks_->rows(sides_[side].axis).ranged) {
    const Side& s = sides_[side];
    bool before = false;
    for (int c = 0; c < s.length; ++c) {
      const bool here = has_bit(masks_->at(s.axis, s.low + c), static_cast<int>(leaf));
      if (here != before)
        add_corners(frame, leaf, side + 1, place + static_cast<std::size_t>(c) * s.stride, here ? value : 0u - value);
      before = here;
    }
    return;
  }
  std::uint32_t steps[32];
  int n_steps = 0;
  const CellRange* ranges = &masks_->ranges[leaf * masks_->n_wide];
  for (; side < sides_.size(); ++side) {
    const Side& s = sides_[side];
    const LeafMasks::Rows& rows = masks_->rows(s.axis);
    const CellRange range = ranges[rows.wide];
    const int begin = std::max(range.low + rows.first - s.low, 0),
              end = std::min(range.high + rows.first - s.low + 1, s.length);
    place += static_cast<std::size_t>(begin) * s.stride;
    if (end < s.length) steps[n_steps++] = static_cast<std::uint32_t>((end - begin) * s.stride);
  }
  for (std::uint32_t corner = 0; corner < 1u << n_steps; ++corner) {
    std::size_t at = place;
    for (int k = 0; k < n_steps; ++k)
      if ((corner >> k) & 1) at += steps[k];
    dense_[at] += std::popcount(corner) & 1 ? 0u - value : value;
  }
}

void WindowSearch::fill_dense(const Frame& frame) {
  const std::int64_t half = (std::int64_t{1} << masks_->narrow_shift) >> 1;
  for (const Side& side : sides_) {
    std::uint32_t before = 0;
    for (int c = 0; c < side.length; ++c) {
      const std::int64_t entry = frame.lines[line_start_[side.wide] + side.low - window_->low[side.axis] + c];
      const auto here = static_cast<std::uint32_t>((entry + half) >> masks_->narrow_shift);
      dense_[static_cast<std::size_t>(c) * side.stride] += here - before;
      before = here;
    }
  }
  const Word* words = frame.words.data();
  for (const Item& item : frame.items) {
    each_bit(words, item.words, [&](int bit) {
      const std::size_t leaf = static_cast<std::size_t>(item.word) * word_bits + bit;
      const std::int32_t v = up_             ? narrow_up_[leaf] - narrow_down_[leaf]
                             : item.sign > 0 ? narrow_[leaf]
                                             : -narrow_[leaf];
      add_corners(frame, leaf, 0, 0, static_cast<std::uint32_t>(v));
    });
    words += item.words;
  }
  for (const Side& side : sides_) {
    const std::size_t block = static_cast<std::size_t>(side.length) * side.stride, stride = side.stride;
    for (std::size_t at = 0; at < dense_.size(); at += block)
      for (std::size_t row = at + stride; row < at + block; row += stride) {
        const std::uint32_t* before = &dense_[row - stride];
        std::uint32_t* here = &dense_[row];
        for (std::size_t i = 0; i < stride; ++i) here[i] += before[i];
      }
  }
}

/// Narrow sums (docs/engine.md, guard band): each tree's value is within one
/// unit, so a cell with G <= limit has a narrow sum of at most limit / unit +
/// trees + 1. The few such cells are evaluated exactly.
Found WindowSearch::try_dense(const Frame& frame, const Question& question, Effort& effort) {
  fill_dense(frame);
  effort.work += static_cast<std::int64_t>(dense_.size()) * static_cast<std::int64_t>(sides_.size() + 1) / 4 +
                 static_cast<std::int64_t>(frame.items.size()) * 16;
  std::int64_t constant = frame.constant;  // and the lines of the axes that have one cell left
  for (int j = 0; j < static_cast<int>(wide_.size()); ++j)
    if (!is_active(j)) constant += line_least(frame, j, frame.low[wide_[j]], frame.low[wide_[j]]);
  const std::int64_t limit = ((question.target + question.slack - constant) >> masks_->narrow_shift) +
                             static_cast<std::int64_t>(frame.items.size() + sides_.size()) + 1;
  const auto most = static_cast<std::int32_t>(std::clamp<std::int64_t>(limit, -(1 << 30), 1 << 30));
  std::int32_t smallest = std::numeric_limits<std::int32_t>::max();
  for (const std::uint32_t sum : dense_) smallest = std::min(smallest, static_cast<std::int32_t>(sum));
  if (smallest > most) return Found::none;
  bool close = false;
  for (std::size_t i = 0; i < dense_.size(); ++i) {
    if (static_cast<std::int32_t>(dense_[i]) > most) continue;
    cell_ = frame.low;
    for (const Side& side : sides_) cell_[side.axis] += static_cast<std::int32_t>(i / side.stride % side.length);
    if (window_->must_differ && is_own(cell_)) continue;
    effort.work += static_cast<std::int64_t>(frame.items.size());
    const std::int64_t value = value_at(frame, cell_);
    if (value <= question.target - question.slack) {
      best = cell_;
      return Found::some;
    }
    close |= value <= question.target + question.slack;
  }
  return close ? Found::close : Found::none;
}

}  // namespace boxqte
