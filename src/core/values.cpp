#include "values.hpp"

#include <algorithm>

#include "masses.hpp"

namespace boxqte {

// --- memory ------------------------------------------------------------------------------------------------------------

namespace {
constexpr std::size_t block_bytes = std::size_t{1} << 20;
}

void Arena::clear() { block_ = at_ = used_ = 0; }

void* Arena::take_bytes(std::size_t n) {
  while (block_ < blocks_.size() && at_ + n > blocks_[block_].size) {
    ++block_;
    at_ = 0;
  }
  if (block_ == blocks_.size()) {
    const std::size_t size = std::max(n, block_bytes);
    blocks_.push_back({std::make_unique_for_overwrite<std::byte[]>(size), size});
    held_ += size;
  }
  std::byte* taken = blocks_[block_].data.get() + at_;
  at_ += n;
  used_ += n;
  return taken;
}

// --- sorting -----------------------------------------------------------------------------------------------------------

namespace {

constexpr std::int64_t far = std::int64_t{1} << 62;
constexpr int sorted_at_once = 64;

using Entry = Values::Entry;

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

}  // namespace

void Values::Workspace::assign(const std::int64_t* value, const double* mass, int n) {
  entries.resize(n);
  for (int i = 0; i < n; ++i) entries[i] = {value[i], mass[i]};
}

void Values::Workspace::add(const Values& list) {
  const std::size_t n = entries.size(), size = list.n_;
  spare.resize(n * size);
  Entry* out = spare.data();
  for (const Entry& entry : entries)
    for (std::size_t j = 0; j < size; ++j) *out++ = {entry.value + list.key_[j], entry.mass * list.mass_[j]};
  entries.swap(spare);
}

void Values::Workspace::sort() {
  sort_entries(entries, spare, start);
  const int n = static_cast<int>(entries.size());
  int kept = 0;
  for (int i = 0; i < n;) {
    Entry entry = entries[i++];
    if (i < n && entries[i].value == entry.value) {
      Sum sum{entry.mass, 0.0};
      for (; i < n && entries[i].value == entry.value; ++i) sum.add(entries[i].mass);
      entry.mass = sum.value();
    }
    entries[kept++] = entry;
  }
  entries.resize(kept);
}

void Values::Workspace::sort_if_short() {
  if (entries.size() <= sorted_at_once) sort();
}

// --- lists -------------------------------------------------------------------------------------------------------------

Values::Values(int n, Arena& arena)
    : n_(n), key_(arena.take<std::int64_t>(static_cast<std::size_t>(n) + 2) + 1), mass_(arena.take<double>(n)) {}

Values::Values(Workspace& work, Arena& arena) : Values(static_cast<int>(work.entries.size()), arena) {
  store(work.entries);
  settle(work);
}

void Values::settle(Workspace& work) {
  if (n_ <= sorted_at_once) {
    sort(work);
    least_ = key_[0];
    most_ = key_[n_ - 1];
  } else {
    least_ = *std::min_element(key_, key_ + n_);
    most_ = *std::max_element(key_, key_ + n_);
  }
}

void Values::sort(Workspace& work) {
  if (sorted_) return;
  work.assign(key_, mass_, n_);
  work.sort();
  store(work.entries);
  key_[-1] = -far;
  key_[n_] = far;
  sorted_ = true;
}

void Values::store(const std::vector<Entry>& entries) {
  n_ = static_cast<int>(entries.size());
  for (int i = 0; i < n_; ++i) {
    key_[i] = entries[i].value;
    mass_[i] = entries[i].mass;
  }
}

void Values::index(Workspace& work, Arena& arena) {
  if (indexed()) return;
  sort(work);
  prefix_ = arena.take<double>(static_cast<std::size_t>(n_) + 1);
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
  bucket_ = arena.take<std::int32_t>(static_cast<std::size_t>(top_) + 4);
  bucket_[0] = 0;
  std::int64_t k = 0;
  for (int i = 0; i < n_; ++i)
    for (const std::int64_t own = (value(i) - least_) >> shift_; k <= own; ++k) bucket_[k + 1] = i;
  bucket_[top_ + 2] = bucket_[top_ + 3] = n_;
}

int Values::rank_in_crowd(int first, int stop, std::int64_t limit) const {
  return static_cast<int>(std::upper_bound(key_ + first, key_ + stop, limit) - key_);
}

// --- the cache ---------------------------------------------------------------------------------------------------------

namespace {

std::uint64_t hash_of(const ListCache::Key& key) {
  std::uint64_t hash = key.size();
  for (const std::uint64_t word : key) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

ListCache::Slot& ListCache::slot(const Key& key, std::uint64_t hash) {
  const std::size_t last = slots_.size() - 1;
  for (std::size_t at = hash & last;; at = (at + 1) & last) {
    Slot& own = slots_[at];
    if (!own.key || (own.hash == hash && own.n == key.size() && std::equal(key.begin(), key.end(), own.key)))
      return own;
  }
}

Values* ListCache::find(const Key& key) { return slot(key, hash_of(key)).list; }

void ListCache::keep(const Key& key, Values* list) {
  if (2 * ++n_ > slots_.size()) grow();
  const std::uint64_t hash = hash_of(key);
  auto* words = arena_.take<std::uint64_t>(key.size());
  std::copy(key.begin(), key.end(), words);
  slot(key, hash) = {hash, words, key.size(), list};
}

void ListCache::grow() {
  std::vector<Slot> old(2 * slots_.size());
  old.swap(slots_);
  const std::size_t last = slots_.size() - 1;
  for (const Slot& own : old) {
    if (!own.key) continue;
    std::size_t at = own.hash & last;
    while (slots_[at].key) at = (at + 1) & last;
    slots_[at] = own;
  }
}

void ListCache::clear() {
  std::fill(slots_.begin(), slots_.end(), Slot{});
  n_ = 0;
  arena_.clear();
}

}  // namespace boxqte
