// Lists of (value, mass); once sorted, how many values are at most a limit in a few instructions.
#pragma once

#include <cstdint>
#include <vector>

namespace boxqte {

/// The distribution of a sum. Short lists are sorted and equal values merged at once, long ones when they are first looked up:
/// most are only gone through. The masses of a merged entry are added by Neumaier's sum.
class Values {
 public:
  void assign(const std::int64_t* value, const double* mass, int n);

  /// All sums of an entry of one list and an entry of the other, neither of which is this; masses multiply.
  void assign_sums(const Values& one, const Values& other);

  /// Sort, and prepare `rank`, `prefix` and `near`.
  void index();

  bool indexed() const { return !bucket_.empty(); }
  bool sorted() const { return sorted_; }

  int size() const { return n_; }
  std::int64_t value(int i) const { return key_[i + 1]; }
  double mass(int i) const { return mass_[i]; }
  std::int64_t least() const { return least_; }
  std::int64_t most() const { return most_; }
  const std::int64_t* values() const { return key_.data() + 1; }
  const double* masses() const { return mass_.data(); }

  /// How many values are at most the limit. Written without branches that a processor could guess wrong.
  int rank(std::int64_t limit) const {
    std::int64_t k = (limit - key_[1]) >> shift_;
    k = k < -1 ? -1 : k;
    k = k > top_ + 1 ? top_ + 1 : k;
    int i = bucket_[k + 1];
    if (bucket_[k + 2] - i > crowd) return rank_in_crowd(i, bucket_[k + 2], limit);
    i += key_[i + 1] <= limit;
    while (key_[i + 1] <= limit) ++i;
    return i;
  }
  /// The mass of the first so many values.
  double prefix(int rank) const { return prefix_[rank]; }
  /// The mass of the entries within `band` of the limit; `at` is the limit's rank.
  double near(int at, std::int64_t limit, std::int64_t band) const {
    if (key_[at + 1] > limit + band && key_[at] < limit - band) return 0.0;
    return prefix_[rank(limit + band)] - prefix_[rank(limit - band - 1)];
  }

  std::size_t bytes() const {
    return key_.capacity() * 8 + (mass_.capacity() + prefix_.capacity()) * 8 + bucket_.capacity() * 4;
  }

 private:
  static constexpr int crowd = 16;  ///< more entries in a bucket are searched by halving
  static constexpr int most_buckets = 1 << 13;

  void take();
  void sort();
  int rank_in_crowd(int first, int stop, std::int64_t limit) const;

  int n_ = 0;
  bool sorted_ = false;
  std::int64_t least_ = 0, most_ = 0;
  std::vector<std::int64_t> key_;  ///< [-far, values..., far]
  std::vector<double> mass_;
  std::vector<double> prefix_;        ///< entry i: the mass of the first i
  std::vector<std::int32_t> bucket_;  ///< entry k + 1: the rank at the lower end of bucket k
  int shift_ = 0;                     ///< a bucket is 2**shift wide
  std::int64_t top_ = 0;              ///< the last bucket
};

}  // namespace boxqte
