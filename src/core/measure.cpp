#include "measure.hpp"

#include <algorithm>

namespace boxqte {

Margin Shape::exact(int copy, std::int64_t row, int cell) const {
  if (!extremes) return exact_of(copy, row, cell);
  std::vector<Margin> sums;
  sums.reserve(static_cast<std::size_t>(combinations));
  for (int s = 0; s < combinations; ++s) sums.push_back(exact_of(s, row, cell));
  std::sort(sums.begin(), sums.end(), [&](const Margin& a, const Margin& b) { return compare(a, b, 2 * fuzz) < 0; });
  return copy == 0 ? sums[0] : copy == 1 ? sums.back() : copy == 2 ? sums[1] : sums[sums.size() - 2];
}

template <class W>
Bitmaps<W>::Bitmaps(Memory& memory, Memo& memo, const Limits& limits, const std::atomic<bool>& halted)
    : limits_(limits),
      halted_(halted),
      erosion_(memory, memo, halted),
      neg_(memory),
      pos_(memory),
      sure_pos_(memory),
      sure_neg_(memory),
      gone_(memory),
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
  words_ = erosion_.words();
  stride_ = words_ * std::max(brick.combinations, 4);
  const auto clear = [&](Room<W>& room, std::int64_t n) {
    constexpr std::int64_t piece = 1 << 20;  // so that a halt is heard
    W* words = room.of(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n && erosion_.line_gap() > 0 && !halted_.load(std::memory_order_relaxed); i += piece)
      std::fill_n(words + i, std::min(piece, n - i), W{0});  // all but the words between lines will be written
  };
  clear(neg_, stride_ * count);
  clear(pos_, stride_ * (limits_.no_ties ? 1 : count));
  if (!limits_.signs_only) {
    clear(sure_pos_, stride_ * count);
    clear(sure_neg_, stride_ * count);
  }
  if (limits_.capped) clear(gone_, stride_ * count);
  if (brick.combinations > 1 || brick.own_matters)
    for (Room<W>* room : {&seen_, &twice_, &other_, &bad_}) room->of(static_cast<std::size_t>(words_));
}

template <class W>
Targets<W> Bitmaps<W>::targets(int k) const {
  Targets<W> to;
  to.all[to.n++] = {&limits_.neg, neg_.data() + k * stride_, false};
  if (!limits_.no_ties) to.all[to.n++] = {&limits_.pos, pos_.data() + k * stride_, true};
  if (!limits_.signs_only) {
    to.all[to.n++] = {&limits_.sure_neg, sure_neg_.data() + k * stride_, false};
    to.all[to.n++] = {&limits_.sure_pos, sure_pos_.data() + k * stride_, true};
  }
  if (limits_.capped) to.all[to.n++] = {&limits_.cap, gone_.data() + k * stride_, true};
  return to;
}

namespace {

/// Writes a bit for every sum and limit: whether it is within. `near` is how close one came, from the lower end of the guard on.
template <class W, int Vectors, int N>
struct SignWriter {
  Eight beyond[N] = {}, guard{};  ///< the least sum that is not within the limit
  EightUnsigned near = EightUnsigned{} + 0xFFFFFFFFu;
  std::uint64_t full = 0, flip[N] = {};
  W* to[N] = {};
  std::int64_t at = 0, gap = 0;  ///< words written, and between lines

  void row(const Eight (&sums)[Vectors]) {
    for (int i = 0; i < N; ++i) {
      std::uint64_t bits = 0;
      for (int v = 0; v < Vectors; ++v) {
        const Eight sign = sums[v] - beyond[i];
        near = smaller(near, reinterpret_cast<EightUnsigned>(sign + guard));
        bits |= std::uint64_t{negative_bits(sign)} << (8 * v);
      }
      to[i][at] = static_cast<W>((bits & full) ^ flip[i]);
    }
    ++at;
  }
  void end_line() { at += gap; }
};

}  // namespace

template <class W>
void Bitmaps<W>::settle(const Shape& shape, const Scale& scale, const Margin& offset, const Target<W>& target) {
  const Cells cut = scale.limit(*target.limit, offset);
  const std::uint32_t band = 2 * static_cast<std::uint32_t>(scale.guard);
  const Cells* sums = shape.sums;
  for (int copy = 0; copy < shape.copies; ++copy)
    for (std::int64_t row = 0; row < brick_->rows; ++row, sums += brick_->padded)
      for (int z = 0; z < brick_->n_last; ++z) {
        if (static_cast<std::uint32_t>(sums[z] - cut - 1 + scale.guard) >= band) continue;
        const Margin margin = shape.exact(copy, row, z);
        const bool holds = limits_.holds(margin + offset, *target.limit) != target.flip;
        put(target.words[at(copy, row)], z, holds);
        if (!shape.extremes || copy > 1 || shape.copies < 4) continue;
        for (int s = 0; s < brick_->combinations; ++s)  // who has the extreme was told by narrow sums as well
          put((copy == 0 ? who_low_ : who_high_).data()[at(s, row)], z,
              compare(shape.exact_of(s, row, z), margin, 2 * limits_.fuzz) == 0);
      }
}

template <class W>
void Bitmaps<W>::write(const Shape& shape, const Scale& scale, const Margin& offset) {
  Tile tile;
  tile.n_y = erosion_.n_line();
  tile.n_x = static_cast<int>(brick_->rows / tile.n_y);
  bool clear = true;
  for (int copy = 0; copy < shape.copies; ++copy) {
    tile.dense = shape.sums + copy * brick_->rows * brick_->padded;
    clear &= write(tile, copy * brick_->rows, scale, offset, targets(0));
  }
  if (clear) return;
  for (const Target<W>& target : targets(0)) settle(shape, scale, offset, target);
}

template <class W>
bool Bitmaps<W>::write(const Tile& tile, std::int64_t row, const Scale& scale, const Margin& offset,
                       const Targets<W>& targets) const {
  const int copy = static_cast<int>(row / brick_->rows);
  std::uint32_t near = 0;
  with_vectors<W>(brick_->padded / 8, [&]<int Vectors> {
    const auto write_all = [&]<int N> {
      SignWriter<W, Vectors, N> writer;
      for (int i = 0; i < N; ++i) {
        const Target<W>& target = targets.all[i];
        writer.beyond[i] += scale.limit(*target.limit, offset) + 1;
        writer.flip[i] = target.flip ? erosion_.full() : 0;
        writer.to[i] = target.words;
      }
      writer.guard += scale.guard;
      writer.full = erosion_.full();
      writer.at = at(copy, row % brick_->rows);
      writer.gap = erosion_.line_gap();
      near = least_of(each_row<Vectors>(tile, writer).near);
    };
    // signs alone, or with rules, or with confidence, or with ties or rules as well, or with both
    targets.n == 1   ? write_all.template operator()<1>()
    : targets.n == 2 ? write_all.template operator()<2>()
    : targets.n == 3 ? write_all.template operator()<3>()
    : targets.n == 4 ? write_all.template operator()<4>()
                     : write_all.template operator()<5>();
  });
  return near >= 2 * static_cast<std::uint32_t>(scale.guard);
}

template <class W>
void Bitmaps<W>::note_extremes(const Cells* sums, const Cells* smallest, const Cells* largest) {
  const std::int64_t n = words_ * brick_->combinations;
  W *low = who_low_.of(static_cast<std::size_t>(n)), *high = who_high_.of(static_cast<std::size_t>(n));
  std::fill_n(low, n, W{0});
  std::fill_n(high, n, W{0});
  const int vectors = brick_->padded / 8;
  for (int s = 0; s < brick_->combinations; ++s)
    for (std::int64_t r = 0; r < brick_->rows; ++r) {
      std::uint64_t least = 0, most = 0;
      for (int v = 0; v < vectors; ++v, sums += 8) {
        const std::int64_t cell = (r * vectors + v) * 8;
        const Eight mine = load(sums);
        least |= std::uint64_t{negative_bits(mine == load(smallest + cell))} << (8 * v);
        most |= std::uint64_t{negative_bits(mine == load(largest + cell))} << (8 * v);
      }
      low[at(s, r)] = static_cast<W>(least & erosion_.full());
      high[at(s, r)] = static_cast<W>(most & erosion_.full());
    }
}

/// Two combinations, and x' must take the one that x does not have.
template <class W>
bool Bitmaps<W>::two_points() const {
  return brick_->combinations == 2 && brick_->combination_single[0] && brick_->combination_single[1];
}

namespace {

template <class W>
Chunk* chunks_of(W* words) {
  return reinterpret_cast<Chunk*>(words);
}
template <class W>
const Chunk* chunks_of(const W* words) {
  return reinterpret_cast<const Chunk*>(words);
}

}  // namespace

/// seen_ and twice_ = the bits of any, and of more than one, combination; nothing where `fair_side` does not look.
template <class W>
void Bitmaps<W>::count(const W* bits) {
  if ((brick_->combinations == 1 && !brick_->combination_single[0]) || two_points()) return;
  const std::int64_t n = erosion_.chunks();
  Chunk *seen = chunks_of(seen_.data()), *twice = chunks_of(twice_.data());
  std::copy_n(chunks_of(bits), n, seen);
  std::fill_n(twice, n, 0);
  for (int s = 1; s < brick_->combinations; ++s) {
    const Chunk* mine = chunks_of(bits + s * words_);
    for (std::int64_t i = 0; i < n; ++i) {
      twice[i] |= seen[i] & mine[i];
      seen[i] |= mine[i];
    }
  }
}

/// The mass of (s, x) that are sure and whose admissible windows hold no bit.
///
/// own: which combination has the bit where it is the only one. At simple limits sure, which is then null, is who has no bit. The answer is all x with
/// a clear window, without those that are not sure themselves: they lie at the border, and are few (Theorem 8a).
template <class W>
double Bitmaps<W>::fair_side(const W* seen, const W* twice, const W* own, const W* sure) {
  const std::int64_t n = erosion_.chunks();
  Chunk *bad = chunks_of(bad_.data()), *other = chunks_of(other_.data());
  double total = 0.0, common = -1.0;  // the erosion of what any combination sees, made once
  for (int s = 0; s < brick_->combinations && !halted_.load(std::memory_order_relaxed); ++s) {
    const W* view = brick_->combinations > 1 ? seen : own;
    std::uint64_t alone = 0, some = 0;
    if (two_points()) {  // the other combination is all that x' can take
      view = own + (1 - s) * words_;
      const Chunk *mine = chunks_of(own + s * words_), *theirs = chunks_of(view);
      for (std::int64_t i = 0; i < n; ++i) {
        bad[i] = mine[i] & ~theirs[i];
        alone |= bad[i];
      }
    } else if (brick_->combination_single[s]) {  // Theorem 8: what x's own combination alone sees does not count
      const Chunk *mine = chunks_of(own + s * words_), *any = chunks_of(seen), *more = chunks_of(twice);
      for (std::int64_t i = 0; i < n; ++i) {
        bad[i] = any[i] & ~more[i] & mine[i];
        other[i] = any[i] & ~bad[i];
        alone |= bad[i];
      }
      view = other_.data();
    }
    some = alone;
    if (sure != nullptr) {
      const Chunk *confident = chunks_of(sure + s * words_), *theirs = chunks_of(view), *pattern = erosion_.pattern();
      for (std::int64_t i = 0; i < n; ++i) {
        bad[i] = pattern[i] & ~(theirs[i] | confident[i]);
        some |= bad[i];
      }
    }
    double clear = common;
    if (alone != 0 || common < 0.0) {
      clear = erosion_.clear(view);
      if (alone == 0) common = clear;
    }
    if (clear > 0.0 && some != 0 && erosion_.clear_cores(bad_.data(), view))
      clear = std::max(clear - erosion_.clear_of(bad_.data(), view), 0.0);
    total += brick_->combination_mass[s] * clear;
  }
  return total;
}

/// What is forbidden has margins beyond all others: it is not of class 0 as it is, and now neither of class 1 (Theorem 14).
template <class W>
void Bitmaps<W>::take_out_forbidden(int k, int copies) {
  for (int copy = 0; copy < copies; ++copy) {
    const std::int64_t at = copy * words_;
    const Chunk* gone = chunks_of(gone_.data() + k * stride_ + at);
    Chunk* pos = chunks_of(pos_.data() + (limits_.no_ties ? 0 : k * stride_) + at);
    for (std::int64_t i = 0; i < erosion_.chunks(); ++i) pos[i] &= ~gone[i];
    if (limits_.signs_only) continue;
    Chunk* sure = chunks_of(sure_pos_.data() + k * stride_ + at);
    for (std::int64_t i = 0; i < erosion_.chunks(); ++i) sure[i] &= ~gone[i];
  }
}

template <class W>
Fractions Bitmaps<W>::measure(int k, int copies, bool extremes) {
  const std::int64_t n = erosion_.chunks();
  const Chunk* pattern = erosion_.pattern();
  W *neg = neg_.data() + k * stride_, *pos = pos_.data() + (limits_.no_ties ? 0 : k * stride_);
  for (int copy = 0; copy < copies && limits_.no_ties; ++copy) {
    const Chunk* from = chunks_of(neg + copy * words_);
    Chunk* to = chunks_of(pos + copy * words_);
    for (std::int64_t i = 0; i < n; ++i) to[i] = ~from[i] & pattern[i];
  }
  if (limits_.capped) take_out_forbidden(k, copies);
  // who surely has a class; where signs are all that matters, whoever has one
  const W *is_pos = limits_.signs_only ? pos : sure_pos_.data() + k * stride_,
          *is_neg = limits_.signs_only ? neg : sure_neg_.data() + k * stride_;
  Fractions found;
  for (const bool negative : {true, false}) {
    if (halted_.load(std::memory_order_relaxed)) return found;
    const W* bits = negative ? neg : pos;
    if (extremes) {  // Theorem 8b: the smallest sum tells whether any is negative, the largest whether any is positive
      const W* seen = bits + (negative ? 0 : words_);
      const bool points = copies == 4;
      found.fair += fair_side(seen, points ? seen + 2 * words_ : seen,
                              points ? (negative ? who_low_ : who_high_).data() : seen, nullptr);
    } else {
      count(bits);
      const W* sure = limits_.simple ? nullptr : negative ? is_pos : is_neg;
      found.fair += fair_side(seen_.data(), twice_.data(), bits, sure);
    }
  }
  for (int s = 0; s < brick_->combinations && !limits_.simple && !halted_.load(std::memory_order_relaxed); ++s) {
    const Chunk *sure_pos = chunks_of(is_pos + s * words_), *sure_neg = chunks_of(is_neg + s * words_);
    Chunk* unsure = chunks_of(pos);  // its work is done: of its own combination it is read as it is overwritten
    for (std::int64_t i = 0; i < n; ++i) unsure[i] = pattern[i] & ~(sure_pos[i] | sure_neg[i]);
    found.low += brick_->combination_mass[s] * erosion_.mass(pos);
  }
  found.unfair = std::max(1.0 - found.fair - found.low, 0.0);
  return found;
}

template class Bitmaps<std::uint16_t>;
template class Bitmaps<std::uint32_t>;
template class Bitmaps<std::uint64_t>;

}  // namespace boxqte
