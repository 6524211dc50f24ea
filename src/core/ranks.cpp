#include "ranks.hpp"

#include <algorithm>

namespace boxqte {

namespace {

constexpr std::int64_t most_windows = 1 << 21;  // more than these are left to bitmaps
constexpr int lane = 32;

int logs_of(int widest) { return std::bit_width(static_cast<unsigned>(widest)); }

/// Smallest and largest of 1, 2, 4, ... neighbouring slices, table after table.
void double_up(const std::uint8_t* low, const std::uint8_t* high, std::int64_t size, std::int64_t step, int widest,
               std::uint8_t* sparse_low, std::uint8_t* sparse_high) {
  std::copy_n(low, size, sparse_low);
  std::copy_n(high, size, sparse_high);
  std::int64_t n = size;
  for (int width = 2; width <= widest; width *= 2) {
    n -= step;
    for (std::int64_t i = 0; i < n; ++i) sparse_low[size + i] = std::min(sparse_low[i], sparse_low[i + step]);
    for (std::int64_t i = 0; i < n; ++i) sparse_high[size + i] = std::max(sparse_high[i], sparse_high[i + step]);
    sparse_low += size;
    sparse_high += size;
    step *= 2;
  }
}

/// Four sums at a time: one alone would wait for its own additions.
double between(const std::uint8_t* low, const std::uint8_t* high, const double* weight, const double* cumulated, int n) {
  double total[4] = {};
  int j = 0;
  for (; j + 4 <= n; j += 4)
    for (int i = 0; i < 4; ++i) total[i] += weight[j + i] * (cumulated[high[j + i]] - cumulated[low[j + i]]);
  for (; j < n; ++j) total[0] += weight[j] * (cumulated[high[j]] - cumulated[low[j]]);
  return (total[0] + total[1]) + (total[2] + total[3]);
}

}  // namespace

Margin Shape::exact(int copy, std::int64_t row, int cell) const {
  if (!extremes) return exact_of(copy, row, cell);
  std::vector<Margin> sums;
  for (int s = 0; s < combinations; ++s) sums.push_back(exact_of(s, row, cell));
  std::sort(sums.begin(), sums.end(), [&](const Margin& a, const Margin& b) { return compare(a, b, 2 * fuzz) < 0; });
  return copy == 0 ? sums[0] : copy == 1 ? sums.back() : copy == 2 ? sums[1] : sums[sums.size() - 2];
}

Ranks::Ranks(Memory& memory, const Limits& limits)
    : limits_(limits),
      cumulated_(most_offsets + 1),
      cut_(most_offsets),
      neg_(memory),
      pos_(memory),
      sure_neg_(memory),
      sure_pos_(memory),
      all_low_(memory),
      all_high_(memory),
      second_low_(memory),
      second_high_(memory),
      low_(memory),
      high_(memory),
      window_low_(memory),
      window_high_(memory),
      next_low_(memory),
      next_high_(memory),
      sparse_low_(memory),
      sparse_high_(memory),
      own_low_(memory),
      own_high_(memory) {}

void Ranks::lay(const Brick& brick) {
  brick_ = &brick;
  prepared_ = false;
  const int m = brick.n_levels();
  const auto windows = [&](int i) -> const Windows& {
    return brick.own_matters ? brick.level(i).own : brick.level(i).merged;
  };
  padded_ = (windows(m).size() + lane - 1) / lane * lane;
  double here = static_cast<double>(brick.rows) * padded_, largest = here;
  double sparse = static_cast<double>(brick.rows) * brick.padded * logs_of(windows(m).widest), rows = 1.0;
  for (int i = m - 1; i >= 0; --i) {
    sparse = std::max(sparse, here * logs_of(windows(i).widest));
    here = here / brick.level(i).size() * windows(i).size();
    largest = std::max(largest, here);
    rows *= windows(i).size();
  }
  cost_ = rows * padded_ + 4.0 * brick.cells();
  bitmap_cost_ = 3.0 * (rows + static_cast<double>(brick.all_rows())) + 500.0;
  if (largest > most_windows || sparse > 8.0 * most_windows) {
    cost_ = 1e300;
    return;
  }
  window_rows_ = static_cast<std::int64_t>(rows);
  largest_ = static_cast<std::int64_t>(largest);
  sparse_ = static_cast<std::int64_t>(sparse);
}

void Ranks::prepare() {
  if (prepared_) return;
  prepared_ = true;
  const Brick& brick = *brick_;
  const int m = brick.n_levels();
  steps_.resize(m + 1);
  std::int64_t inner = 1, outer = brick.rows * brick.padded;
  for (int i = m; i >= 0; --i) {
    const Windows& windows = brick.own_matters ? brick.level(i).own : brick.level(i).merged;
    Step& step = steps_[i];
    step.n_groups = i == m ? brick.padded : brick.level(i).size();
    step.n_windows = windows.size();
    step.widest = windows.widest;
    const std::int64_t size = outer;
    step.one.clear();
    step.two.clear();
    for (int j = 0; j < step.n_windows; ++j) {
      const int log = logs_of(windows.high[j] - windows.low[j] + 1) - 1;
      step.one.push_back(log * size + windows.low[j] * inner);
      step.two.push_back(log * size + (windows.high[j] + 1 - (1 << log)) * inner);
    }
    const std::int64_t places = i == m ? padded_ : step.n_windows;
    inner *= places;
    outer = outer / step.n_groups * places;
  }
  const Windows& last = brick.own_matters ? brick.last().own : brick.last().merged;
  last_weight_.assign(padded_, 0.0);
  std::copy(last.mass.begin(), last.mass.end(), last_weight_.begin());
  row_weight_.assign(1, 1.0);
  row_base_.assign(1, 0);
  for (int i = 0; i < m; ++i) {
    const Windows& windows = brick.own_matters ? brick.level(i).own : brick.level(i).merged;
    std::vector<double> weight;
    std::vector<std::int32_t> base;
    for (std::size_t o = 0; o < row_weight_.size(); ++o)
      for (int j = 0; j < windows.size(); ++j) {
        weight.push_back(row_weight_[o] * windows.mass[j]);
        base.push_back(row_base_[o] * brick.level(i).size() + windows.base[j]);
      }
    row_weight_.swap(weight);
    row_base_.swap(base);
  }
  const auto cells = static_cast<std::size_t>(brick.rows * brick.padded), all = cells * brick.combinations;
  for (Room<Rank>* room : {&neg_, &pos_, &sure_neg_, &sure_pos_}) room->of(all);
  for (Room<Rank>* room : {&all_low_, &all_high_, &second_low_, &second_high_, &low_, &high_}) room->of(cells);
  for (Room<Rank>* room : {&window_low_, &window_high_, &next_low_, &next_high_}) room->of(largest_);
  for (Room<Rank>* room : {&sparse_low_, &sparse_high_}) room->of(sparse_);
  for (Room<Rank>* room : {&own_low_, &own_high_}) room->of(brick.rows * padded_);
}

/// to[c] = how many offsets are within the limit at cell c.
template <int Vectors>
void Ranks::rank_rows(const Shape& shape, const Scale& scale, std::span<const Offset> offsets, const Limit& limit,
                      int copies, Rank* to) {
  const int n = static_cast<int>(offsets.size());
  for (int k = 0; k < n; ++k) cut_[k] = scale.limit(limit, offsets[k].margin);  // they fall with k
  const auto cuts_from = [&](std::int64_t least) {                              // how many cuts are at least this
    return static_cast<int>(
        std::partition_point(cut_.begin(), cut_.begin() + n, [&](Cells cut) { return cut >= least; }) - cut_.begin());
  };
  const std::int64_t rows = brick_->rows * copies;
  const Cells guard = scale.guard;
  for (std::int64_t r = 0; r < rows; ++r, to += 8 * Vectors) {
    const Cells* row = shape.sums + r * 8 * Vectors;
    Eight sums[Vectors], count[Vectors];
    for (int v = 0; v < Vectors; ++v) sums[v] = load(row + 8 * v);
    Eight least = sums[0], most = sums[0];
    for (int v = 1; v < Vectors; ++v) {
      least = smaller(least, sums[v]);
      most = larger(most, sums[v]);
    }
    // only the offsets from `first` to `end` tell the row's cells apart, or come near one
    const int first = cuts_from(std::int64_t{most_of(most)} + guard),
              end = cuts_from(std::int64_t{least_of(least)} - guard);
    if (first == end) {
      std::fill_n(to, 8 * Vectors, static_cast<Rank>(first));
      continue;
    }
    for (int v = 0; v < Vectors; ++v) count[v] = Eight{} + first;
    EightUnsigned near = EightUnsigned{} + 0xFFFFFFFFu;
    for (int k = first; k < end; ++k) {
      const Eight cut = Eight{} + cut_[k], shift = Eight{} + guard;
      for (int v = 0; v < Vectors; ++v) {
        const Eight beyond = sums[v] - cut;
        count[v] += beyond <= 0 ? Eight{} + 1 : Eight{};
        near = smaller(near, reinterpret_cast<EightUnsigned>(beyond - 1 + shift));
      }
    }
    for (int v = 0; v < Vectors; ++v)
      for (int i = 0; i < 8; ++i) to[8 * v + i] = static_cast<Rank>(count[v][i]);
    if (least_of(near) >= 2 * static_cast<std::uint32_t>(guard)) continue;
    for (int z = 0; z < 8 * Vectors; ++z) {  // Narrow sums: what lies within the guard is looked up exactly
      const int cell = std::min(z, brick_->n_last - 1);
      int within = 0;
      const Margin margin = shape.exact(static_cast<int>(r / brick_->rows), r % brick_->rows, cell);
      for (int k = first; k < end; ++k) within += limits_.holds(margin + offsets[k].margin, limit);
      to[z] = static_cast<Rank>(first + within);
    }
  }
}

void Ranks::rank(const Shape& shape, const Scale& scale, std::span<const Offset> offsets, const Limit& limit,
                 int copies, Rank* to) {
  switch (brick_->padded / 8) {
    case 1:
      return rank_rows<1>(shape, scale, offsets, limit, copies, to);
    case 2:
      return rank_rows<2>(shape, scale, offsets, limit, copies, to);
    case 3:
      return rank_rows<3>(shape, scale, offsets, limit, copies, to);
    case 4:
      return rank_rows<4>(shape, scale, offsets, limit, copies, to);
    case 5:
      return rank_rows<5>(shape, scale, offsets, limit, copies, to);
    case 6:
      return rank_rows<6>(shape, scale, offsets, limit, copies, to);
    case 7:
      return rank_rows<7>(shape, scale, offsets, limit, copies, to);
    default:
      return rank_rows<8>(shape, scale, offsets, limit, copies, to);
  }
}

/// The smallest of `low` and the largest of `high` over every window, axis by axis.
void Ranks::find_windows(const Rank* low, const Rank* high) {
  const int m = brick_->n_levels();
  const int n = brick_->padded;
  const Step& last = steps_[m];
  Rank *to_low = window_low_.data(), *to_high = window_high_.data();
  const Rank *sparse_low = sparse_low_.data(), *sparse_high = sparse_high_.data();
  double_up(low, high, brick_->rows * n, 1, last.widest, sparse_low_.data(), sparse_high_.data());
  for (std::int64_t r = 0; r < brick_->rows; ++r, to_low += padded_, to_high += padded_) {
    const std::int64_t begin = r * n;
    Rank differ = 0;
    for (int z = 0; z < n; ++z)
      differ |= static_cast<Rank>((low[begin + z] ^ low[begin]) | (high[begin + z] ^ high[begin]));
    if (differ == 0) {
      std::fill_n(to_low, padded_, low[begin]);
      std::fill_n(to_high, padded_, high[begin]);
      continue;
    }
    for (int j = 0; j < last.n_windows; ++j) {
      const std::int64_t one = begin + last.one[j], two = begin + last.two[j];
      to_low[j] = std::min(sparse_low[one], sparse_low[two]);
      to_high[j] = std::max(sparse_high[one], sparse_high[two]);
    }
    std::fill(to_low + last.n_windows, to_low + padded_, Rank{0});
    std::fill(to_high + last.n_windows, to_high + padded_, Rank{0});
  }
  found_low_ = window_low_.data();
  found_high_ = window_high_.data();
  std::int64_t outer = brick_->rows, inner = padded_;
  for (int i = m - 1; i >= 0; --i) {
    const Step& step = steps_[i];
    outer /= step.n_groups;
    double_up(found_low_, found_high_, outer * step.n_groups * inner, inner, step.widest, sparse_low_.data(),
              sparse_high_.data());
    to_low = found_low_ == window_low_.data() ? next_low_.data() : window_low_.data();
    to_high = found_low_ == window_low_.data() ? next_high_.data() : window_high_.data();
    found_low_ = to_low;
    found_high_ = to_high;
    for (std::int64_t o = 0; o < outer; ++o)
      for (int j = 0; j < step.n_windows; ++j, to_low += inner, to_high += inner) {
        const std::int64_t one = o * step.n_groups * inner + step.one[j], two = o * step.n_groups * inner + step.two[j];
        for (std::int64_t k = 0; k < inner; ++k) to_low[k] = std::min(sparse_low[one + k], sparse_low[two + k]);
        for (std::int64_t k = 0; k < inner; ++k) to_high[k] = std::max(sparse_high[one + k], sparse_high[two + k]);
      }
    inner *= step.n_windows;
  }
}

/// The mass of (x, offset) whose window holds both signs; x's own sign is one of them.
double Ranks::spread() const {
  double total = 0.0;
  const Rank *low = found_low_, *high = found_high_;
  for (std::int64_t r = 0; r < window_rows_; ++r, low += padded_, high += padded_)
    if (std::memcmp(low, high, padded_) != 0)
      total += row_weight_[r] * between(low, high, last_weight_.data(), cumulated_.data(), padded_);
  return total;
}

/// The mass of (x, offset) that are not both confident and fair, given the ranks of one combination.
double Ranks::spread_of(const Rank* sure_low, const Rank* sure_high) {
  const Windows& last = brick_->last().own;
  Rank *own_low = own_low_.data(), *own_high = own_high_.data();
  for (std::int64_t r = 0; r < brick_->rows; ++r)
    for (int j = 0; j < padded_; ++j) {
      const std::int64_t at = r * brick_->padded + (j < last.size() ? last.base[j] : 0);
      own_low[r * padded_ + j] = j < last.size() ? sure_low[at] : Rank{0};
      own_high[r * padded_ + j] = j < last.size() ? sure_high[at] : Rank{0};
    }
  double total = 0.0;
  std::vector<Rank> least(padded_), most(padded_);
  for (std::int64_t r = 0; r < window_rows_; ++r) {
    const Rank *low = found_low_ + r * padded_, *high = found_high_ + r * padded_;
    const Rank *mine_low = own_low + row_base_[r] * padded_, *mine_high = own_high + row_base_[r] * padded_;
    Rank differ = 0;
    for (int j = 0; j < padded_; ++j) {
      least[j] = std::min(low[j], mine_low[j]);
      most[j] = std::max(high[j], mine_high[j]);
      // without a class the largest 'F <= neg' may lie below the smallest 'F < pos'
      differ |= static_cast<Rank>(least[j] ^ most[j]);
    }
    if (differ != 0)
      total += row_weight_[r] * between(least.data(), most.data(), last_weight_.data(), cumulated_.data(), padded_);
  }
  return total;
}

/// The mass of (x, offset) that are not confident.
double Ranks::unsure(const Rank* low, const Rank* high) const {
  const int n = brick_->padded;
  double total = 0.0;
  for (std::int64_t r = 0; r < brick_->rows * brick_->combinations; ++r) {
    if (std::memcmp(low + r * n, high + r * n, n) == 0) continue;
    double part = between(low + r * n, high + r * n, brick_->last().mass.data(), cumulated_.data(), brick_->n_last) *
                  brick_->combination_mass[r / brick_->rows];
    std::int64_t rest = r % brick_->rows;
    for (int i = brick_->n_levels() - 1; i >= 0; --i) {
      part *= brick_->level(i).mass[rest % brick_->level(i).size()];
      rest /= brick_->level(i).size();
    }
    total += part;
  }
  return total;
}

/// low_ and high_ become the ranks that combinations other than this one reach; whether that makes a difference.
bool Ranks::without(const Rank* low, const Rank* high) {
  const std::int64_t n = brick_->rows * brick_->padded;
  Rank differ = 0;
  const Rank *all_low = all_low_.data(), *all_high = all_high_.data();
  const Rank *second_low = second_low_.data(), *second_high = second_high_.data();
  Rank *to_low = low_.data(), *to_high = high_.data();
  for (std::int64_t c = 0; c < n; ++c) {
    to_low[c] = low[c] == all_low[c] ? second_low[c] : all_low[c];
    to_high[c] = high[c] == all_high[c] ? second_high[c] : all_high[c];
    differ |= static_cast<Rank>((to_low[c] ^ all_low[c]) | (to_high[c] ^ all_high[c]));
  }
  return differ != 0;
}

Fractions Ranks::measure(const Shape& shape, const Scale& scale, std::span<const Offset> offsets) {
  prepare();
  const int n = static_cast<int>(offsets.size());
  const std::int64_t cells = brick_->rows * brick_->padded;
  Sum sum;
  for (int k = 0; k < n; ++k) {
    sum.add(offsets[k].weight);
    cumulated_[k + 1] = sum.value();
  }
  const double whole = cumulated_[n];
  Fractions found;
  if (shape.extremes) {  // Theorem 8b: the smallest and the largest sum over S are all there is
    rank(shape, scale, offsets, limits_.neg, 2, neg_.data());
    find_windows(neg_.data() + cells, neg_.data());
    found.unfair = spread();
    found.fair = std::max(whole - found.unfair, 0.0);
    return found;
  }
  const int combinations = brick_->combinations;
  const Rank *neg = neg_.data(), *pos = neg, *sure_neg = neg, *sure_pos = neg;
  rank(shape, scale, offsets, limits_.neg, combinations, neg_.data());
  if (!limits_.no_ties) {
    rank(shape, scale, offsets, limits_.pos, combinations, pos_.data());
    pos = pos_.data();
  }
  if (!limits_.simple) {
    rank(shape, scale, offsets, limits_.sure_neg, combinations, sure_neg_.data());
    rank(shape, scale, offsets, limits_.sure_pos, combinations, sure_pos_.data());
    sure_neg = sure_neg_.data();
    sure_pos = sure_pos_.data();
  }
  Rank *all_low = all_low_.data(), *all_high = all_high_.data();
  Rank *second_low = second_low_.data(), *second_high = second_high_.data();
  std::copy_n(pos, cells, all_low);
  std::copy_n(neg, cells, all_high);
  std::fill_n(second_low, cells, static_cast<Rank>(n));
  std::fill_n(second_high, cells, Rank{0});
  for (int s = 1; s < combinations; ++s) {
    const Rank *low = pos + s * cells, *high = neg + s * cells;
    for (std::int64_t c = 0; c < cells; ++c) {
      second_low[c] = std::min(second_low[c], std::max(all_low[c], low[c]));
      all_low[c] = std::min(all_low[c], low[c]);
    }
    for (std::int64_t c = 0; c < cells; ++c) {
      second_high[c] = std::max(second_high[c], std::min(all_high[c], high[c]));
      all_high[c] = std::max(all_high[c], high[c]);
    }
  }
  double bad = 0.0, common = -1.0;
  bool all_found = false;  // the windows over all combinations are the ones that were found last
  for (int s = 0; s < combinations; ++s) {
    const double mass = brick_->combination_mass[s];
    if (brick_->combination_single[s] && without(pos + s * cells, neg + s * cells)) {  // Theorem 8
      find_windows(low_.data(), high_.data());
      all_found = false;
      bad += mass * spread_of(sure_neg + s * cells, sure_pos + s * cells);
      continue;
    }
    if (!all_found && !(limits_.simple && common >= 0.0)) find_windows(all_low, all_high);
    all_found = true;
    if (limits_.simple) {
      if (common < 0.0) common = spread();
      all_found = false;
      bad += mass * common;
    } else {
      bad += mass * spread_of(sure_neg + s * cells, sure_pos + s * cells);
    }
  }
  found.low = limits_.simple ? 0.0 : unsure(sure_neg, sure_pos);
  found.fair = std::max(whole - bad, 0.0);
  found.unfair = std::max(bad - found.low, 0.0);
  return found;
}

}  // namespace boxqte
