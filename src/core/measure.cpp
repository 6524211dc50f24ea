#include "measure.hpp"

#include <algorithm>

namespace boxqte {

template <class W>
Bitmaps<W>::Bitmaps(Memory& memory, Memo& memo, const Limits& limits, const std::atomic<bool>& halted)
    : limits_(limits),
      halted_(halted),
      erosion_(memory, memo, halted),
      neg_(memory),
      pos_(memory),
      sure_pos_(memory),
      sure_neg_(memory),
      seen_(memory),
      twice_(memory),
      other_(memory),
      bad_(memory),
      who_low_(memory),
      who_high_(memory) {}

template <class W>
void Bitmaps<W>::lay(const Brick& brick, int count) {
  brick_ = &brick;
  erosion_.lay(brick);
  const auto rows = static_cast<std::size_t>(brick.rows);
  stride_ = rows * std::max(brick.combinations, 4);
  neg_.of(stride_ * count);
  pos_.of(stride_ * (limits_.no_ties ? 1 : count));
  if (!limits_.simple) {
    sure_pos_.of(stride_ * count);
    sure_neg_.of(stride_ * count);
  }
  if (brick.combinations > 1 || brick.own_matters)
    for (Room<W>* room : {&seen_, &twice_, &other_, &bad_}) room->of(rows);
}

template <class W>
Targets<W> Bitmaps<W>::targets(int k) const {
  Targets<W> to;
  to.all[to.n++] = {&limits_.neg, neg_.data() + k * stride_, false};
  if (!limits_.no_ties) to.all[to.n++] = {&limits_.pos, pos_.data() + k * stride_, true};
  if (!limits_.simple) {
    to.all[to.n++] = {&limits_.sure_neg, sure_neg_.data() + k * stride_, false};
    to.all[to.n++] = {&limits_.sure_pos, sure_pos_.data() + k * stride_, true};
  }
  return to;
}

template <class W>
template <int Vectors>
void Bitmaps<W>::write_rows(const Shape& shape, const Scale& scale, const Margin& offset, const Target<W>& target) {
  const Cells cut = scale.limit(*target.limit, offset);
  const Eight beyond = Eight{} + cut + 1, shift = Eight{} + scale.guard;
  EightUnsigned near = EightUnsigned{} + 0xFFFFFFFFu;
  const std::int64_t rows = brick_->rows * shape.copies;
  const W full = erosion_.full(), flip = target.flip ? full : W{0};
  const Cells* sums = shape.sums;
  for (std::int64_t r = 0; r < rows; ++r, sums += 8 * Vectors) {
    std::uint64_t bits = 0;
    for (int v = 0; v < Vectors; ++v) {
      const Eight sign = load(sums + 8 * v) - beyond;
      near = smaller(near, reinterpret_cast<EightUnsigned>(sign + shift));
      bits |= std::uint64_t{negative_bits(sign)} << (8 * v);
    }
    target.words[r] = static_cast<W>((bits & full) ^ flip);
  }
  const std::uint32_t band = 2 * static_cast<std::uint32_t>(scale.guard);
  if (least_of(near) >= band) return;
  sums = shape.sums;
  for (std::int64_t r = 0; r < rows; ++r, sums += 8 * Vectors)  // Narrow sums: within the guard the exact sum decides
    for (int z = 0; z < brick_->n_last; ++z) {
      if (static_cast<std::uint32_t>(sums[z] - cut - 1 + scale.guard) >= band) continue;
      const int copy = static_cast<int>(r / brick_->rows);
      const std::int64_t row = r % brick_->rows;
      const bool holds = limits_.holds(shape.exact(copy, row, z) + offset, *target.limit) != target.flip;
      const W bit = static_cast<W>(W{1} << z);
      target.words[r] = static_cast<W>(holds ? target.words[r] | bit : target.words[r] & ~bit);
      if (!shape.extremes || copy > 1 || shape.copies < 4) continue;
      // who has the extreme was told by narrow sums as well
      const Margin extreme = shape.exact(copy, row, z);
      for (int s = 0; s < brick_->combinations; ++s) {
        W& who = (copy == 0 ? who_low_ : who_high_).data()[s * brick_->rows + row];
        const bool has = compare(shape.exact_of(s, row, z), extreme, 2 * limits_.fuzz) == 0;
        who = static_cast<W>(has ? who | bit : who & ~bit);
      }
    }
}

template <class W>
void Bitmaps<W>::write(const Shape& shape, const Scale& scale, const Margin& offset) {
  with_vectors<W>(brick_->padded / 8, [&]<int Vectors>() {
    for (const Target<W>& target : targets(0)) write_rows<Vectors>(shape, scale, offset, target);
  });
}

template <class W>
void Bitmaps<W>::note_extremes(const Cells* sums, const Cells* smallest, const Cells* largest) {
  const std::int64_t rows = brick_->rows;
  const auto n = static_cast<std::size_t>(rows) * brick_->combinations;
  W *low = who_low_.of(n), *high = who_high_.of(n);
  const int vectors = brick_->padded / 8;
  for (int s = 0; s < brick_->combinations; ++s)
    for (std::int64_t r = 0; r < rows; ++r, ++low, ++high) {
      std::uint64_t least = 0, most = 0;
      for (int v = 0; v < vectors; ++v, sums += 8) {
        const std::int64_t at = (r * vectors + v) * 8;
        const Eight mine = load(sums);
        least |= std::uint64_t{negative_bits(mine == load(smallest + at))} << (8 * v);
        most |= std::uint64_t{negative_bits(mine == load(largest + at))} << (8 * v);
      }
      *low = static_cast<W>(least & full());
      *high = static_cast<W>(most & full());
    }
}

/// Two combinations, and x' must take the one that x does not have.
template <class W>
bool Bitmaps<W>::two_points() const {
  return brick_->combinations == 2 && brick_->combination_single[0] && brick_->combination_single[1];
}

/// seen_ and twice_ = the bits of any, and of more than one, combination; nothing where `fair_side` does not look.
template <class W>
void Bitmaps<W>::count(const W* bits) {
  if ((brick_->combinations == 1 && !brick_->combination_single[0]) || two_points()) return;
  const std::int64_t rows = brick_->rows;
  W *seen = seen_.data(), *twice = twice_.data();
  std::copy_n(bits, rows, seen);
  std::fill_n(twice, rows, W{0});
  for (int s = 1; s < brick_->combinations; ++s)
    for (std::int64_t i = 0; i < rows; ++i) {
      twice[i] |= static_cast<W>(seen[i] & bits[s * rows + i]);
      seen[i] |= bits[s * rows + i];
    }
}

/// The mass of (s, x) that are sure and whose admissible windows hold no bit.
///
/// own: which combination has the bit where it is the only one. At simple limits sure is who has no bit. The answer is all x with
/// a clear window, without those that are not sure themselves: they lie at the border, and are few (Theorem 8a).
template <class W>
double Bitmaps<W>::fair_side(const W* seen, const W* twice, const W* own, const W* sure) {
  const std::int64_t rows = brick_->rows;
  const W full = erosion_.full();
  W *bad = bad_.data(), *other = other_.data();
  double total = 0.0, common = -1.0;  // the erosion of what any combination sees, made once
  for (int s = 0; s < brick_->combinations; ++s) {
    const W* mine = own + s * rows;
    const W* view = brick_->combinations > 1 ? seen : own;
    W alone = 0, some = 0;
    if (two_points()) {  // the other combination is all that x' can take
      view = own + (1 - s) * rows;
      for (std::int64_t i = 0; i < rows; ++i) {
        bad[i] = static_cast<W>(mine[i] & ~view[i]);
        alone |= bad[i];
      }
    } else if (brick_->combination_single[s]) {  // Theorem 8: what x's own combination alone sees does not count
      for (std::int64_t i = 0; i < rows; ++i) {
        bad[i] = static_cast<W>(seen[i] & ~twice[i] & mine[i]);
        other[i] = static_cast<W>(seen[i] & ~bad[i]);
        alone |= bad[i];
      }
      view = other;
    }
    some = alone;
    if (!limits_.simple) {
      const W* confident = sure + s * rows;
      for (std::int64_t i = 0; i < rows; ++i) {
        bad[i] = static_cast<W>(full & ~(view[i] | confident[i]));
        some |= bad[i];
      }
    }
    double clear = common;
    if (alone != 0 || common < 0.0) {
      clear = erosion_.clear(view);
      if (alone == 0) common = clear;
    }
    if (clear > 0.0 && some != 0 && erosion_.clear_cores(bad, view))
      clear = std::max(clear - erosion_.clear_of(bad, view), 0.0);
    total += brick_->combination_mass[s] * clear;
  }
  return total;
}

template <class W>
Fractions Bitmaps<W>::measure(int k, int copies, bool extremes) {
  const std::int64_t rows = brick_->rows, all = rows * copies;
  const W full = erosion_.full();
  W *neg = neg_.data() + k * stride_, *pos = pos_.data() + (limits_.no_ties ? 0 : k * stride_);
  if (limits_.no_ties)
    for (std::int64_t i = 0; i < all; ++i) pos[i] = static_cast<W>(~neg[i] & full);
  Fractions found;
  for (const bool negative : {true, false}) {
    const W* bits = negative ? neg : pos;
    if (extremes) {  // Theorem 8b: the smallest sum tells whether any is negative, the largest whether any is positive
      const W* seen = bits + (negative ? 0 : rows);
      const bool points = copies == 4;
      found.fair += fair_side(seen, points ? seen + 2 * rows : seen,
                              points ? (negative ? who_low_ : who_high_).data() : seen, nullptr);
    } else {
      count(bits);
      const W* sure = limits_.simple ? nullptr : (negative ? sure_pos_ : sure_neg_).data() + k * stride_;
      found.fair += fair_side(seen_.data(), twice_.data(), bits, sure);
    }
  }
  if (!limits_.simple) {
    const W *sure_pos = sure_pos_.data() + k * stride_, *sure_neg = sure_neg_.data() + k * stride_;
    for (std::int64_t i = 0; i < all; ++i) pos[i] = static_cast<W>(full & ~(sure_pos[i] | sure_neg[i]));
    for (int s = 0; s < brick_->combinations; ++s)
      found.low += brick_->combination_mass[s] * erosion_.mass(pos + s * rows);
  }
  found.unfair = std::max(1.0 - found.fair - found.low, 0.0);
  return found;
}

template class Bitmaps<std::uint16_t>;
template class Bitmaps<std::uint32_t>;
template class Bitmaps<std::uint64_t>;

}  // namespace boxqte
