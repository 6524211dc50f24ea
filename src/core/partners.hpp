// Who may be whose partner, where not every exchange of sensitive values counts (docs/engine.md, Theorem 11).
//
// A combination has a place on one sensitive axis. An x of class 1 looks for partners of class 0 in a range of places, an x of
// class 0 for partners of class 1 in another one. All that matters of them is the smallest, and the largest, of their margins.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "scores.hpp"

namespace boxqte {

struct Partners {
  static constexpr std::int64_t none = std::int64_t{1}
                                       << 62;  ///< the smallest margin of nobody; the largest is its negative

  std::vector<std::int32_t> place;                  ///< combination -> its place; empty: everybody is a partner
  std::vector<std::int32_t> low_first, low_last;    ///< place -> those among whom class 0 counts; last < first: nobody
  std::vector<std::int32_t> high_first, high_last;  ///< place -> those among whom class 1 counts
  int order = 0;           ///< 1: margins should only grow with the place, -1: only fall; 0: something else is asked
  int ordered_places = 0;  ///< the first so many places have an order; behind them is the missing value
  Scores scores;           ///< if asked: not classes are compared, but scores

  bool asked() const { return !place.empty(); }
  int places() const { return static_cast<int>(low_first.size()); }

  /// low[c x n + i], high[c x n + i] for every class c: the smallest and the largest of its partners' margins value(c)[i],
  /// 0 <= i < n. Class c is the combination members[c]; without members, c.
  template <class Value>
  void extremes(std::span<const std::int32_t> members, int n, const Value& value, std::vector<std::int64_t>& low,
                std::vector<std::int64_t>& high, std::vector<std::int64_t>& work) const;

 private:
  template <class Better>
  static void over_ranges(const std::vector<std::int32_t>& first, const std::vector<std::int32_t>& last, int n,
                          const std::int64_t* of_place, std::int64_t nobody, std::int64_t* out, Better better);
};

template <class Better>
void Partners::over_ranges(const std::vector<std::int32_t>& first, const std::vector<std::int32_t>& last, int n,
                           const std::int64_t* of_place, std::int64_t nobody, std::int64_t* out, Better better) {
  // A range that only grows by places at one of its ends takes what the one before it has found.
  const int places = static_cast<int>(first.size());
  const auto take = [&](std::int64_t* to, int from, int to_place) {
    for (int p = from; p <= to_place; ++p)
      for (int i = 0; i < n; ++i) to[i] = better(to[i], of_place[static_cast<std::ptrdiff_t>(p) * n + i]);
  };
  std::vector<char> done(places, 0);
  for (int p = 0; p < places; ++p) {  // prefixes, from the left
    std::int64_t* to = out + static_cast<std::ptrdiff_t>(p) * n;
    if (p > 0 && done[p - 1] && first[p] == first[p - 1] && first[p] <= last[p - 1] && last[p] >= last[p - 1]) {
      std::copy_n(to - n, n, to);
      take(to, last[p - 1] + 1, last[p]);
    } else if (p + 1 < places && last[p] == last[p + 1] && first[p] <= first[p + 1] && first[p + 1] <= last[p + 1]) {
      continue;  // a suffix: from the right, below
    } else {
      std::fill_n(to, n, nobody);
      take(to, first[p], last[p]);
    }
    done[p] = 1;
  }
  for (int p = places - 1; p >= 0; --p) {
    if (done[p]) continue;
    std::int64_t* to = out + static_cast<std::ptrdiff_t>(p) * n;
    std::copy_n(to + n, n, to);
    take(to, first[p], first[p + 1] - 1);
    done[p] = 1;
  }
}

template <class Value>
void Partners::extremes(std::span<const std::int32_t> members, int n, const Value& value, std::vector<std::int64_t>& low,
                        std::vector<std::int64_t>& high, std::vector<std::int64_t>& work) const {
  const std::size_t size = static_cast<std::size_t>(places()) * n;
  const int n_classes = static_cast<int>(members.empty() ? place.size() : members.size());
  const auto place_of = [&](int c) { return static_cast<std::ptrdiff_t>(place[members.empty() ? c : members[c]]); };
  low.resize(static_cast<std::size_t>(n_classes) * n);
  high.resize(low.size());
  work.resize(2 * size);
  std::int64_t *of_place = work.data(), *found = work.data() + size;
  for (const bool smallest : {true, false}) {
    std::fill_n(of_place, size, smallest ? none : -none);
    for (int c = 0; c < n_classes; ++c) {
      const std::int64_t* own = value(c, smallest);
      std::int64_t* to = of_place + place_of(c) * n;
      for (int i = 0; i < n; ++i) to[i] = smallest ? std::min(to[i], own[i]) : std::max(to[i], own[i]);
    }
    if (smallest)
      over_ranges(low_first, low_last, n, of_place, none, found,
                  [](std::int64_t a, std::int64_t b) { return std::min(a, b); });
    else
      over_ranges(high_first, high_last, n, of_place, -none, found,
                  [](std::int64_t a, std::int64_t b) { return std::max(a, b); });
    std::vector<std::int64_t>& out = smallest ? low : high;
    for (int c = 0; c < n_classes; ++c)
      std::copy_n(found + place_of(c) * n, n, out.begin() + static_cast<std::ptrdiff_t>(c) * n);
  }
}

}  // namespace boxqte
