#include "values.hpp"

#include <algorithm>
#include <utility>

#include "masses.hpp"

namespace boxqte {

namespace {

constexpr std::int64_t far = std::int64_t{1} << 62;
constexpr int sorted_at_once = 64;

struct Entry {
  std::int64_t value;
  double mass;
};

bool below(const Entry& one, const Entry& other) { return one.value < other.value; }

void insert_sorted(Entry* first, Entry* stop) {
  for (Entry* at = first + 1; at < stop; ++at) {
    const Entry entry = *at;
    Entry* hole = at;
    for (; hole > first && entry.value < hole[-1].value; --hole) *hole = hole[-1];
    *hole = entry;
  }
}

/// Count into buckets of equal width, then one insertion pass over each.
void sort_entries(std::vector<Entry>& entries, std::vector<Entry>& spare, std::vector<std::int32_t>& start) {
  const int n = static_cast<int>(entries.size());
  if (n <= 32) return insert_sorted(entries.data(), entries.data() + n);
  std::int64_t low = entries[0].value, high = low;
  for (const Entry& entry : entries) {
    low = std::min(low, entry.value);
    high = std::max(high, entry.value);
  }
  int shift = 0;
  while ((high - low) >> shift >= 2 * std::int64_t{n}) ++shift;
  const auto top = static_cast<std::size_t>((high - low) >> shift);
  start.assign(top + 2, 0);
  for (const Entry& entry : entries) ++start[((entry.value - low) >> shift) + 1];
  for (std::size_t k = 0; k <= top; ++k) start[k + 1] += start[k];
  spare.resize(n);
  for (const Entry& entry : entries) spare[start[(entry.value - low) >> shift]++] = entry;
  for (std::size_t k = 0, first = 0; k <= top; ++k) {  // every entry advanced its bucket's start to its end
    const auto stop = static_cast<std::size_t>(start[k]);
    if (stop - first > 24)
      std::sort(spare.begin() + first, spare.begin() + stop, below);
    else if (stop - first > 1)
      insert_sorted(spare.data() + first, spare.data() + stop);
    first = stop;
  }
  entries.swap(spare);
}

/// Working memory of sorting, one per thread: lists are short-lived, these stay.
struct Workspace {
  std::vector<Entry> entries, spare;
  std::vector<std::int32_t> start;
};

Workspace& workspace() {
  static thread_local Workspace own;
  return own;
}

}  // namespace

void Values::take() {
  // The workspace's entries become the list, in order and merged.
  Workspace& own = workspace();
  sort_entries(own.entries, own.spare, own.start);
  const std::vector<Entry>& entries = own.entries;
  const int n = static_cast<int>(entries.size());
  key_.resize(n + 2);
  mass_.resize(n);
  int kept = 0;
  for (int i = 0; i < n;) {
    const std::int64_t value = entries[i].value;
    double mass = entries[i++].mass;
    if (i < n && entries[i].value == value) {
      Sum sum{mass, 0.0};
      for (; i < n && entries[i].value == value; ++i) sum.add(entries[i].mass);
      mass = sum.value();
    }
    key_[kept + 1] = value;
    mass_[kept++] = mass;
  }
  n_ = kept;
  key_[0] = -far;
  key_[kept + 1] = far;
  least_ = key_[1];
  most_ = key_[kept];
  sorted_ = true;
}

void Values::sort() {
  if (sorted_) return;
  std::vector<Entry>& entries = workspace().entries;
  entries.resize(n_);
  for (int i = 0; i < n_; ++i) entries[i] = {value(i), mass_[i]};
  take();
}

void Values::assign(const std::int64_t* value, const double* mass, int n) {
  bucket_.clear();
  if (n <= sorted_at_once) {
    std::vector<Entry>& entries = workspace().entries;
    entries.resize(n);
    for (int i = 0; i < n; ++i) entries[i] = {value[i], mass[i]};
    return take();
  }
  n_ = n;
  sorted_ = false;
  key_.resize(n + 2);
  std::copy_n(value, n, key_.begin() + 1);
  mass_.assign(mass, mass + n);
  least_ = *std::min_element(value, value + n);
  most_ = *std::max_element(value, value + n);
}

void Values::assign_sums(const Values& one, const Values& other) {
  bucket_.clear();
  const int n = one.n_ * other.n_;
  if (n <= sorted_at_once) {
    std::vector<Entry>& entries = workspace().entries;
    entries.resize(n);
    Entry* out = entries.data();
    for (int i = 0; i < one.n_; ++i)
      for (int j = 0; j < other.n_; ++j) *out++ = {one.value(i) + other.value(j), one.mass_[i] * other.mass_[j]};
    return take();
  }
  n_ = n;
  sorted_ = false;
  key_.resize(n + 2);
  mass_.resize(n);
  std::int64_t* value = key_.data() + 1;
  double* mass = mass_.data();
  for (int i = 0; i < one.n_; ++i, value += other.n_, mass += other.n_)
    for (int j = 0; j < other.n_; ++j) {
      value[j] = one.value(i) + other.value(j);
      mass[j] = one.mass_[i] * other.mass_[j];
    }
  least_ = one.least_ + other.least_;
  most_ = one.most_ + other.most_;
}

void Values::index() {
  if (indexed()) return;
  sort();
  prefix_.resize(n_ + 1);
  Sum sum;  // Neumaier: each prefix sum is within two roundings
  prefix_[0] = 0.0;
  for (int i = 0; i < n_; ++i) {
    sum.add(mass_[i]);
    prefix_[i + 1] = sum.value();
  }
  std::int64_t n_buckets = 8;
  while (n_buckets < 2 * n_ && n_buckets < most_buckets) n_buckets *= 2;
  const std::int64_t range = most_ - least_;
  for (shift_ = 0; range >> shift_ >= n_buckets;) ++shift_;
  top_ = range >> shift_;
  bucket_.resize(top_ + 4);
  bucket_[0] = 0;
  std::int64_t k = 0;
  for (int i = 0; i < n_; ++i)
    for (const std::int64_t own = (value(i) - least_) >> shift_; k <= own; ++k) bucket_[k + 1] = i;
  bucket_[top_ + 2] = bucket_[top_ + 3] = n_;
}

int Values::rank_in_crowd(int first, int stop, std::int64_t limit) const {
  return static_cast<int>(std::upper_bound(key_.begin() + 1 + first, key_.begin() + 1 + stop, limit) - key_.begin()) - 1;
}

}  // namespace boxqte
