// What a shape is worth for one offset: bitmaps of signs, and the masses of the x that are fair, unfair and not confident.
#pragma once

#include <atomic>
#include <cstdint>

#include "erosion.hpp"
#include "ranks.hpp"

namespace boxqte {

/// One limit's bitmap while it is written: which sums count, where the words go, whether to turn the bits.
template <class W>
struct Target {
  const Limit* limit;
  W* words;
  bool flip;
};

template <class W>
struct Targets {
  Target<W> all[4];
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

  /// The bitmaps to be written for the k-th offset: a bit says F <= neg; F >= pos; surely of class 0; surely of class 1.
  Targets<W> targets(int k) const;

  /// Write the signs of a shape of a small brick.
  void write(const Shape& shape, const Scale& scale, const Margin& offset);

  /// Where the extremes over S are (Theorem 8b): which combination has the smallest and which the largest sum.
  void note_extremes(const Cells* sums, const Cells* smallest, const Cells* largest);

  /// The masses of the bitmaps of the k-th offset.
  Fractions measure(int k, int copies, bool extremes);

  W full() const { return erosion_.full(); }

 private:
  void count(const W* bits);
  double fair_side(const W* seen, const W* twice, const W* own, const W* sure);
  template <int Vectors>
  void write_rows(const Shape& shape, const Scale& scale, const Margin& offset, const Target<W>& target);
  bool two_points() const;

  const Limits& limits_;
  const std::atomic<bool>& halted_;
  Erosion<W> erosion_;
  const Brick* brick_ = nullptr;
  std::size_t stride_ = 0;  ///< words of a bitmap
  Room<W> neg_, pos_, sure_pos_, sure_neg_, seen_, twice_, other_, bad_, who_low_, who_high_;
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
