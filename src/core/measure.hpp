// What a shape is worth for one offset: bitmaps of signs, and the masses of the x that are fair, unfair and not confident.
#pragma once

#include <atomic>
#include <cstdint>

#include "erosion.hpp"
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

/// One limit's bitmap while it is written: which sums count, where the words go, whether to turn the bits.
template <class W>
struct Target {
  const Limit* limit;
  W* words;
  bool flip;
};

/// Set a bit of a word, or clear it.
template <class W>
void put(W& word, int bit, bool set) {
  const W mask = static_cast<W>(W{1} << bit);
  word = static_cast<W>(set ? word | mask : word & ~mask);
}

template <class W>
struct Targets {
  Target<W> all[5];
  int n = 0;

  const Target<W>* begin() const { return all; }
  const Target<W>* end() const { return all + n; }
};

template <class W>
class Bitmaps {
 public:
  Bitmaps(Memory& memory, Memo& memo, const Limits& limits, const std::atomic<bool>& halted);

  /// Room for so many bitmaps of every kind.
  void lay(const Brick& brick, int count);

  /// The bitmaps to be written for the k-th offset: a bit says F <= neg; F >= pos; surely of class 0; surely of class 1;
  /// forbidden.
  Targets<W> targets(int k) const;

  /// Write the signs of a shape of a small brick.
  void write(const Shape& shape, const Scale& scale, const Margin& offset);

  /// Write the signs of a tile from a row on; whether none lies within the guard of a limit.
  bool write(const Tile& tile, std::int64_t row, const Scale& scale, const Margin& offset,
             const Targets<W>& targets) const;

  /// Where the extremes over S are (Theorem 8b): which combination has the smallest and which the largest sum.
  void note_extremes(const Cells* sums, const Cells* smallest, const Cells* largest);

  /// The masses of the bitmaps of the k-th offset.
  Fractions measure(int k, int copies, bool extremes);

  /// The word of a row in a bitmap.
  std::int64_t at(int copy, std::int64_t row) const { return copy * words_ + erosion_.at(row); }

 private:
  void count(const W* bits);
  double fair_side(const W* seen, const W* twice, const W* own, const W* sure);
  void settle(const Shape& shape, const Scale& scale, const Margin& offset, const Target<W>& target);
  void take_out_forbidden(int k, int copies);
  bool two_points() const;

  const Limits& limits_;
  const std::atomic<bool>& halted_;
  Erosion<W> erosion_;
  const Brick* brick_ = nullptr;
  std::int64_t words_ = 1;   ///< of one combination's bitmap
  std::int64_t stride_ = 0;  ///< words of a bitmap of all copies
  Room<W> neg_, pos_, sure_pos_, sure_neg_, gone_, seen_, twice_, other_, bad_, who_low_, who_high_;
};

extern template class Bitmaps<std::uint16_t>;
extern template class Bitmaps<std::uint32_t>;
extern template class Bitmaps<std::uint64_t>;

/// Call act.template operator()<vectors>() for a brick's number of vectors in a row that a word of W holds.
template <class W, class Act>
void with_vectors(int vectors, Act act) {
  if constexpr (sizeof(W) == 2) {
    vectors == 1 ? act.template operator()<1>() : act.template operator()<2>();
  } else if constexpr (sizeof(W) == 4) {
    vectors == 3 ? act.template operator()<3>() : act.template operator()<4>();
  } else {
    switch (vectors) {
      case 5:
        return act.template operator()<5>();
      case 6:
        return act.template operator()<6>();
      case 7:
        return act.template operator()<7>();
      default:
        return act.template operator()<8>();
    }
  }
}

}  // namespace boxqte
