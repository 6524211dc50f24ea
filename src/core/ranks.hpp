// All offsets of one shape at once: ranks instead of signs (docs/engine.md, Theorem 9).
//
// 'G + o <= t' holds for a first part of the sorted offsets: the cell's rank is how long that part is. A window is settled for
// all offsets by its smallest and its largest rank, and ranks fit a byte.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "masses.hpp"
#include "tables.hpp"

namespace boxqte {

/// What a tree over the fixed axes adds to a shape, and the mass of the boxes where it does.
struct Offset {
  Margin margin;
  double weight;
};

/// A shape's sums over all cells: `copies` of a combination's rows. Below the guard, the exact ones can be asked for.
struct Shape {
  const Cells* sums = nullptr;
  int copies = 1;  ///< one a combination, or the extremes over them (Theorem 8b): smallest, largest, second of each
  bool extremes = false;
  int combinations = 1;
  std::int64_t fuzz = 0;

  /// The exact sum of a combination at a cell.
  virtual Margin exact_of(int combination, std::int64_t row, int cell) const = 0;
  /// The exact sum of a copy.
  Margin exact(int copy, std::int64_t row, int cell) const;

 protected:
  ~Shape() = default;
};

struct Fractions {
  double fair = 0.0, unfair = 0.0, low = 0.0;
};

class Ranks {
 public:
  static constexpr int most_offsets = 255;

  Ranks(Memory& memory, const Limits& limits);

  void lay(const Brick& brick);

  /// Whether ranks are cheaper than one bitmap for each of so many offsets.
  bool pays_for(int n_offsets) const { return static_cast<double>(n_offsets) * bitmap_cost_ >= cost_; }

  /// The masses over all offsets (sorted, at most most_offsets), each times its weight.
  Fractions measure(const Shape& shape, const Scale& scale, std::span<const Offset> offsets);

 private:
  using Rank = std::uint8_t;
  struct Step {
    std::vector<std::int64_t> one, two;  ///< window -> the two places of a table of neighbours that together cover it
    int n_groups = 1, n_windows = 1, widest = 1;
  };

  void prepare();
  void rank(const Shape& shape, const Scale& scale, std::span<const Offset> offsets, const Limit& limit, int copies,
            Rank* to);
  template <int Vectors>
  void rank_rows(const Shape& shape, const Scale& scale, std::span<const Offset> offsets, const Limit& limit,
                 int copies, Rank* to);
  void find_windows(const Rank* low, const Rank* high);
  double spread() const;
  double spread_of(const Rank* sure_low, const Rank* sure_high);
  double unsure(const Rank* low, const Rank* high) const;
  bool without(const Rank* low, const Rank* high);

  const Limits& limits_;
  const Brick* brick_ = nullptr;
  double cost_ = 0.0, bitmap_cost_ = 0.0;
  bool prepared_ = false;
  std::int64_t window_rows_ = 1, largest_ = 0, sparse_ = 0;
  int padded_ = 32;          ///< windows of the last axis, to whole vectors
  std::vector<Step> steps_;  ///< moving axis, the last one too
  std::vector<double> row_weight_, last_weight_;
  std::vector<std::int32_t> row_base_;
  std::vector<double> cumulated_;  ///< rank -> the weight of so many first offsets
  std::vector<Cells> cut_;         ///< offset -> the largest sum within the limit
  Room<Rank> neg_, pos_, sure_neg_, sure_pos_, all_low_, all_high_, second_low_, second_high_, low_, high_;
  Room<Rank> window_low_, window_high_, next_low_, next_high_, sparse_low_, sparse_high_, own_low_, own_high_;
  const Rank *found_low_ = nullptr, *found_high_ = nullptr;
};

}  // namespace boxqte
