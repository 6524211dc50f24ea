// Lists of (value, mass); once sorted, how many values are at most a limit in a few instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace boxqte {

/// Memory for what is forgotten all at once. Grows in blocks, which stay: lists come and go by the thousand, and memory that
/// went back to the system would have to be cleared again.
class Arena {
 public:
  /// Room for n, uninitialised, until `clear`.
  template <class T>
  T* take(std::size_t n) {
    static_assert(alignof(T) <= alignof(std::max_align_t));
    return static_cast<T*>(
        take_bytes((n * sizeof(T) + alignof(std::max_align_t) - 1) & ~(alignof(std::max_align_t) - 1)));
  }
  void clear();
  std::size_t used() const { return used_; }
  std::size_t held() const { return held_; }

 private:
  struct Block {
    std::unique_ptr<std::byte[]> data;
    std::size_t size = 0;
  };

  void* take_bytes(std::size_t n);

  std::vector<Block> blocks_;
  std::size_t block_ = 0, at_ = 0;  ///< the first free byte
  std::size_t used_ = 0, held_ = 0;
};

/// The distribution of a sum. Short lists are sorted and equal values merged at once, long ones when they are first looked up:
/// most are only gone through. The masses of a merged entry are added by Neumaier's sum.
class Values {
 public:
  /// What lists are made of, and memory for sorting; one per thread.
  struct Entry {
    std::int64_t value;
    double mass;
  };
  struct Workspace {
    std::vector<Entry> entries, spare;
    std::vector<std::int32_t> start;

    void assign(const std::int64_t* value, const double* mass, int n);
    /// All sums of one of the entries and one of the list's; masses multiply.
    void add(const Values& list);
    /// In order, equal values merged.
    void sort();
    void sort_if_short();
  };

  /// The workspace's entries as a list.
  Values(Workspace& work, Arena& arena);
  /// Room for n entries, to be filled, and then to be settled.
  Values(int n, Arena& arena);
  void settle(Workspace& work);

  /// Sort, and prepare `rank`, `prefix` and `near`.
  void index(Workspace& work, Arena& arena);

  bool indexed() const { return bucket_ != nullptr; }
  bool sorted() const { return sorted_; }

  int size() const { return n_; }
  std::int64_t value(int i) const { return key_[i]; }
  double mass(int i) const { return mass_[i]; }
  std::int64_t least() const { return least_; }
  std::int64_t most() const { return most_; }
  std::int64_t* values() { return key_; }
  const std::int64_t* values() const { return key_; }
  double* masses() { return mass_; }

  /// How many values are at most the limit. Written without branches that a processor could guess wrong.
  int rank(std::int64_t limit) const {
    std::int64_t k = (limit - least_) >> shift_;
    k = k < -1 ? -1 : k;
    k = k > top_ + 1 ? top_ + 1 : k;
    int i = bucket_[k + 1];
    if (bucket_[k + 2] - i > crowd) return rank_in_crowd(i, bucket_[k + 2], limit);
    i += key_[i] <= limit;
    while (key_[i] <= limit) ++i;
    return i;
  }
  /// The mass of the first so many values.
  double prefix(int rank) const { return prefix_[rank]; }
  /// The mass of the entries within `band` of the limit; `at` is the limit's rank.
  double near(int at, std::int64_t limit, std::int64_t band) const {
    if (key_[at] > limit + band && key_[at - 1] < limit - band) return 0.0;
    return prefix_[rank(limit + band)] - prefix_[rank(limit - band - 1)];
  }

 private:
  static constexpr int crowd = 16;  ///< more entries in a bucket are searched by halving
  static constexpr int most_buckets = 1 << 13;

  void sort(Workspace& work);
  void store(const std::vector<Entry>& entries);
  int rank_in_crowd(int first, int stop, std::int64_t limit) const;

  int n_ = 0;
  bool sorted_ = false;
  std::int64_t least_ = 0, most_ = 0;
  std::int64_t* key_;  ///< between two that are out of reach
  double* mass_;
  double* prefix_ = nullptr;        ///< entry i: the mass of the first i
  std::int32_t* bucket_ = nullptr;  ///< entry k + 1: the rank at the lower end of bucket k
  int shift_ = 0;                   ///< a bucket is 2**shift wide
  std::int64_t top_ = 0;            ///< the last bucket
};

/// Lists that were made before, looked up by all that they depend on: trees and cells, compared in full, never by hash alone.
class ListCache {
 public:
  using Key = std::vector<std::uint64_t>;

  ListCache() : slots_(std::size_t{1} << 12) {}

  /// The list of the key if there is one.
  Values* find(const Key& key);
  /// A list of a key that has none, made of what comes after the key; it stays where it is until `clear`.
  template <class... What>
  Values& add(const Key& key, What&&... what) {
    auto* list = new (arena_.take<Values>(1)) Values(std::forward<What>(what)..., arena_);
    keep(key, list);
    return *list;
  }
  void clear();

  Arena& arena() { return arena_; }
  std::size_t bytes() const { return arena_.used() + slots_.size() * sizeof(Slot); }
  /// The same with what `clear` kept for later.
  std::size_t held() const { return arena_.held() + slots_.size() * sizeof(Slot); }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    const std::uint64_t* key = nullptr;  ///< null: free
    std::size_t n = 0;
    Values* list = nullptr;
  };

  Slot& slot(const Key& key, std::uint64_t hash);
  void keep(const Key& key, Values* list);
  void grow();

  Arena arena_;
  std::vector<Slot> slots_;  ///< open addressing
  std::size_t n_ = 0;
};

}  // namespace boxqte
