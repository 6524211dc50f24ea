#include "erosion.hpp"

#include <algorithm>
#include <bit>

namespace boxqte {

namespace {

struct KeyClass {
  std::size_t bytes, slots;
};
// short keys have a memory of their own, which fits the cache
constexpr KeyClass classes[] = {{64, 1 << 15}, {256, 1 << 14}, {1024, 1 << 12}, {Memo::longest_key, 1 << 11}};
constexpr std::size_t known_words = 1 << 11;
constexpr std::size_t top_key = 512;          // a large block that is asked for by itself hardly comes twice
constexpr std::size_t table_bytes = 1 << 15;  // larger blocks slide

constexpr std::size_t memo_bytes() {
  std::size_t total = 0;
  for (const KeyClass& c : classes) total += c.slots * (c.bytes + sizeof(Memo::Entry));
  return total;
}

/// Four interleaved chains: one alone would wait for its own multiplications.
std::uint64_t hash_bytes(const void* data, std::size_t n, std::uint64_t seed) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint64_t h[4] = {seed ^ 0x243F6A8885A308D3ull, n, 0x13198A2E03707344ull, 0xA4093822299F31D0ull};
  const auto mix = [&](int i, const unsigned char* from, std::size_t bytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, from, bytes);
    h[i] = (h[i] ^ word) * (i & 1 ? 0xC4CEB9FE1A85EC53ull : 0x9E3779B97F4A7C15ull);
    h[i] ^= h[i] >> 32;
  };
  for (; n >= 32; n -= 32, at += 32)
    for (int i = 0; i < 4; ++i) mix(i, at + 8 * i, 8);
  for (; n >= 8; n -= 8, at += 8) mix(0, at, 8);
  if (n > 0) mix(2, at, n);
  const std::uint64_t one = (h[0] ^ (h[1] >> 7)) * 0xFF51AFD7ED558CCDull;
  const std::uint64_t two = (h[2] ^ (h[3] >> 7)) * 0xFF51AFD7ED558CCDull;
  return (one ^ (two >> 11)) * 0x9E3779B97F4A7C15ull;
}

/// Call visit(p, q) for every run p..q of set bits.
template <class W, class Visit>
inline void each_run(W word, Visit visit) {
  std::uint64_t left = word;
  while (left != 0) {
    const int p = first_bit(left);
    const std::uint64_t carried = left + (left & (~left + 1));
    visit(p, carried == 0 ? word_bits - 1 : first_bit(carried) - 1);
    left &= carried;
  }
}

template <class W>
W range_bits(int p, int q) {
  return static_cast<W>(low_bits(q - p + 1) << p);
}

}  // namespace

Memo::Memo(Memory& memory) {
  memory.take(memo_bytes());
  entries_ = static_cast<unsigned char*>(std::calloc(memo_bytes(), 1));  // pages come when they are first written
  if (entries_ == nullptr) throw std::bad_alloc();
}

Memo::Entry* Memo::entry(std::uint64_t hash, std::size_t key_bytes) const {
  std::size_t at = 0;
  for (const KeyClass& c : classes) {
    const std::size_t stride = c.bytes + sizeof(Entry);
    if (key_bytes <= c.bytes) return reinterpret_cast<Entry*>(entries_ + at + (hash >> 32) % c.slots * stride);
    at += c.slots * stride;
  }
  return nullptr;
}

template <class W>
Erosion<W>::Erosion(Memory& memory, Memo& memo, const std::atomic<bool>& halted)
    : memory_(memory), memo_(memo), halted_(halted), words_(known_words) {}

template <class W>
void Erosion<W>::lay(const Brick& brick) {
  n_levels_ = brick.n_levels();
  last_ = &brick.last();
  full_ = static_cast<W>(low_bits(brick.n_last));
  if (last_->id != last_id_) {
    std::fill(words_.begin(), words_.end(), KnownWord{});
    last_id_ = last_->id;
    for (int c = 0, from = 0, to = 0; c < brick.n_last; ++c) {
      while (last_->core_high[from] < c) ++from;
      while (to + 1 < brick.n_last && last_->core_low[to + 1] <= c) ++to;
      core_from_[c] = from;
      core_to_[c] = to;
    }
  }
  while (static_cast<int>(levels_.size()) < n_levels_) levels_.push_back(std::make_unique<Level>(memory_));
  std::int64_t inner = 1;
  for (int i = n_levels_ - 1; i >= 0; --i) {
    Level& at = *levels_[i];
    at.layout = &brick.level(i);
    at.inner = inner;
    at.size = inner * at.layout->size();
    at.tag = static_cast<std::uint64_t>(brick.sequence[i]) * 2;
    at.slides = static_cast<std::size_t>(at.size) * sizeof(W) > table_bytes && i < n_levels_ - 1;
    const auto places = [&](const Windows& windows, std::vector<Place>& to) {
      to.clear();
      for (int j = 0; j < windows.size(); ++j) {
        const int log = std::bit_width(static_cast<unsigned>(windows.high[j] - windows.low[j] + 1)) - 1;
        to.push_back(
            {log * at.size + windows.low[j] * inner, log * at.size + (windows.high[j] + 1 - (1 << log)) * inner});
      }
    };
    places(at.layout->merged, at.merged);
    if (brick.own_matters) places(at.layout->own, at.own);
    const int logs = std::bit_width(static_cast<unsigned>(at.layout->merged.widest));
    // sliding: the suffixes, and one slice for the front
    at.table.of(static_cast<std::size_t>(at.slides ? at.size + inner : logs * at.size));
    at.block.of(static_cast<std::size_t>(at.size));  // room for a slice, and for joined cores of the whole block
    inner = at.size;
  }
}

template <class W>
typename Erosion<W>::Summary Erosion<W>::summary(const W* words, std::int64_t n) {
  W some = 0, every = static_cast<W>(~W{0});
  for (std::int64_t i = 0; i < n; ++i) {
    some |= words[i];
    every &= words[i];
  }
  return {some, every};
}

template <class W>
double Erosion<W>::clear(const W* words) {
  if (n_levels_ == 0) return words[0] == 0 ? 1.0 : clear_word(words[0]);
  const Summary all = summary(words, levels_[0]->size);
  if (all.some == 0) return 1.0;
  if (all.every == full_) return 0.0;
  return inside(0, words);
}

/// The ORs of 1, 2, 4, ... neighbouring slices, so that any window is an OR of two entries.
template <class W>
void Erosion<W>::open(Level& at, const W* words) {
  if (at.slides) {
    at.pivot = at.front_end = 0;
    return;
  }
  W* table = at.table.data();
  std::copy_n(words, at.size, table);
  std::int64_t step = at.inner, n = at.size;
  for (int width = 2; width <= at.layout->merged.widest; width *= 2) {
    n -= step;
    W* to = table + at.size;
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<W>(table[i] | table[i + step]);
    table = to;
    step *= 2;
  }
}

/// The OR of the slices that window j covers, in at.block; whether it differs from what was there.
template <class W>
bool Erosion<W>::window_block(Level& at, const W* words, bool own, int j, Summary& found) {
  const std::int64_t inner = at.inner;
  const W *one, *two;
  if (at.slides) {
    const Windows& windows = own ? at.layout->own : at.layout->merged;
    const int low = windows.low[j], high = windows.high[j];
    W *suffix = at.table.data(), *front = suffix + at.size;
    if (low >= at.pivot) {
      at.pivot = at.front_end = high + 1;
      std::copy_n(words + high * inner, inner, suffix + high * inner);
      for (int g = high - 1; g >= low; --g)
        for (std::int64_t i = g * inner; i < (g + 1) * inner; ++i)
          suffix[i] = static_cast<W>(words[i] | suffix[i + inner]);
    }
    for (; at.front_end <= high; ++at.front_end) {
      const W* slice = words + at.front_end * inner;
      if (at.front_end == at.pivot) {
        std::copy_n(slice, inner, front);
      } else {
        for (std::int64_t i = 0; i < inner; ++i) front[i] |= slice[i];
      }
    }
    one = suffix + low * inner;
    two = at.front_end > at.pivot ? front : one;
  } else {
    const Place& place = (own ? at.own : at.merged)[j];
    one = at.table.data() + place.one;
    two = at.table.data() + place.two;
  }
  W* block = at.block.data();
  W differ = 0, some = 0, every = static_cast<W>(~W{0});
  for (std::int64_t i = 0; i < inner; ++i) {
    const W word = static_cast<W>(one[i] | two[i]);
    differ |= static_cast<W>(word ^ block[i]);
    some |= word;
    every &= word;
    block[i] = word;
  }
  found = {some, every};
  return differ != 0;
}

/// A block that is neither empty nor full.
template <class W>
double Erosion<W>::inside(int level, const W* words) {
  Level& at = *levels_[level];
  const std::size_t bytes = static_cast<std::size_t>(at.size) * sizeof(W);
  Memo::Entry* known = nullptr;
  if (bytes <= (level == 0 ? top_key : Memo::longest_key)) {
    known = memo_.entry(hash_bytes(words, bytes, at.tag), bytes);
    if (known->tag == at.tag && std::memcmp(known->key(), words, bytes) == 0) return known->value;
  }
  double total = 0.0;
  if (level == n_levels_ - 1) {
    total = lines(at, words);
  } else {
    open(at, words);
    const std::vector<double>& mass = at.layout->merged.mass;
    double value = 0.0;
    Summary found{};
    for (int j = 0; j < at.layout->merged.size(); ++j) {
      if (window_block(at, words, false, j, found) || j == 0) {  // neighbours are often alike
        if (level < 2 && halted_.load(std::memory_order_relaxed)) return 0.0;
        value = found.some == 0 ? 1.0 : found.every == full_ ? 0.0 : inside(level + 1, at.block.data());
      }
      total += mass[j] * value;
    }
  }
  if (known != nullptr) {
    known->tag = at.tag;
    known->value = total;
    std::memcpy(known->key(), words, bytes);
  }
  return total;
}

/// The last axis but one: the windows' blocks are words.
template <class W>
double Erosion<W>::lines(Level& at, const W* words) {
  open(at, words);
  const W* table = at.table.data();
  const double* mass = at.layout->merged.mass.data();
  const Place* place = at.merged.data();
  double total = 0.0, value = 0.0;
  W seen = full_;
  for (int j = 0; j < at.layout->merged.size(); ++j) {
    const W word = static_cast<W>(table[place[j].one] | table[place[j].two]);
    if (word != seen) {
      seen = word;
      value = word == 0 ? 1.0 : word == full_ ? 0.0 : clear_word(word);
    }
    total += mass[j] * value;
  }
  return total;
}

template <class W>
double Erosion<W>::clear_word(W word) {
  KnownWord& known = words_[(word * 0x9E3779B97F4A7C15ull) >> (64 - std::bit_width(known_words - 1))];
  if (known.word != word) known = {word, clear_word_anew(word)};
  return known.clear;
}

/// The windows in a run of clear bits are a range of windows (Theorem 6).
template <class W>
double Erosion<W>::clear_word_anew(W word) const {
  double total = 0.0;
  each_run(static_cast<W>(~word & full_), [&](int p, int q) { total += last_->merged.within(p, q); });
  return total;
}

template <class W>
double Erosion<W>::clear_word_of(W own, W word) const {
  const Windows& windows = last_->own;
  double total = 0.0;
  each_run(static_cast<W>(~word & full_), [&](int p, int q) {
    const std::int32_t first = windows.first_from[p], end = windows.end_at[q];
    if (end <= first) return;
    each_run(static_cast<W>(own & range_bits<W>(p, q)), [&](int g, int h) {
      const std::int32_t from = std::max(first, windows.of_base[g]), to = std::min(end, windows.of_base[h + 1]);
      if (to > from) total += windows.before[to] - windows.before[from];
    });
  });
  return total;
}

template <class W>
double Erosion<W>::bits_mass(W word) const {
  if (word == full_) return 1.0;
  const Windows& windows = last_->own;
  double total = 0.0;
  each_run(word,
           [&](int g, int h) { total += windows.before[windows.of_base[h + 1]] - windows.before[windows.of_base[g]]; });
  return total;
}

template <class W>
double Erosion<W>::mass(int level, const W* cells) const {
  if (level == n_levels_) return cells[0] == 0 ? 0.0 : bits_mass(cells[0]);
  const Level& at = *levels_[level];
  double total = 0.0;
  if (level == n_levels_ - 1) {
    for (int g = 0; g < at.layout->size(); ++g)
      if (cells[g] != 0) total += at.layout->mass[g] * bits_mass(cells[g]);
    return total;
  }
  for (int g = 0; g < at.layout->size(); ++g) total += at.layout->mass[g] * mass(level + 1, cells + g * at.inner);
  return total;
}

template <class W>
double Erosion<W>::clear_of(int level, const W* own, const W* words) {
  if (level == n_levels_) return clear_word_of(own[0], words[0]);
  Level& at = *levels_[level];
  const Summary seen = summary(words, at.size), mine = summary(own, at.size);
  if (mine.some == 0 || seen.every == full_) return 0.0;
  if (seen.some == 0) return mine.every == full_ ? 1.0 : mass(level, own);
  if (mine.every == full_) return inside(level, words);
  const std::size_t bytes = static_cast<std::size_t>(at.size) * sizeof(W);
  const std::uint64_t tag = at.tag + 1;
  Memo::Entry* known = nullptr;
  if (2 * bytes <= Memo::longest_key) {
    known = memo_.entry(hash_bytes(words, bytes, hash_bytes(own, bytes, tag)), 2 * bytes);
    if (known->tag == tag && std::memcmp(known->key(), words, bytes) == 0 &&
        std::memcmp(known->key() + bytes, own, bytes) == 0)
      return known->value;
  }
  double total = 0.0;
  if (level == n_levels_ - 1) {
    total = lines_of(at, own, words);
  } else {
    const Windows& windows = at.layout->own;
    bool opened = false;
    Summary found{};
    for (int g = 0; g < at.layout->size(); ++g) {
      if (windows.of_base[g] == windows.of_base[g + 1] || summary(own + g * at.inner, at.inner).some == 0) continue;
      if (!opened) open(at, words);
      opened = true;
      double value = 0.0;
      for (int j = windows.of_base[g]; j < windows.of_base[g + 1]; ++j) {
        if (level < 2 && halted_.load(std::memory_order_relaxed)) return 0.0;
        if (window_block(at, words, true, j, found) || j == windows.of_base[g])
          value = clear_of(level + 1, own + g * at.inner, at.block.data());
        total += windows.mass[j] * value;
      }
    }
  }
  if (known != nullptr) {
    known->tag = tag;
    known->value = total;
    std::memcpy(known->key(), words, bytes);
    std::memcpy(known->key() + bytes, own, bytes);
  }
  return total;
}

template <class W>
double Erosion<W>::lines_of(Level& at, const W* own, const W* words) {
  open(at, words);
  const Windows& windows = at.layout->own;
  const W* table = at.table.data();
  double total = 0.0;
  for (int g = 0; g < at.layout->size(); ++g) {
    if (own[g] == 0) continue;
    W seen = full_;
    double value = 0.0;
    for (int j = windows.of_base[g]; j < windows.of_base[g + 1]; ++j) {
      const W word = static_cast<W>(table[at.own[j].one] | table[at.own[j].two]);
      if (word != seen) {
        seen = word;
        value = word == full_ ? 0.0 : clear_word_of(own[g], word);
      }
      total += windows.mass[j] * value;
    }
  }
  return total;
}

/// The cells of the last axis whose core holds a bit of the word.
template <class W>
W Erosion<W>::touched(W word) const {
  W cells = 0;
  each_run(word, [&](int p, int q) {
    if (core_from_[p] <= core_to_[q]) cells |= range_bits<W>(core_from_[p], core_to_[q]);
  });
  return cells;
}

/// The OR of the words of all rows in the core of one.
template <class W>
W Erosion<W>::core_word(std::int64_t row, const W* words) const {
  const auto join = [&](auto&& self, int level, std::int64_t rest, const W* from) -> W {
    if (level == n_levels_) return *from;
    const Level& at = *levels_[level];
    const auto g = static_cast<std::size_t>(rest / at.inner);
    W word = 0;
    for (int i = at.layout->core_low[g]; i <= at.layout->core_high[g]; ++i)
      word |= self(self, level + 1, rest % at.inner, from + i * at.inner);
    return word;
  };
  return join(join, 0, row, words);
}

/// to = for every group of a row axis the OR of the slices of its core.
template <class W>
void Erosion<W>::join_cores(int level, const W* from, W* to) const {
  const Level& at = *levels_[level];
  for (std::int64_t begin = 0; begin < levels_[0]->size; begin += at.size)
    for (int g = 0; g < at.layout->size(); ++g) {
      W* target = to + begin + g * at.inner;
      std::copy_n(from + begin + at.layout->core_low[g] * at.inner, at.inner, target);
      for (int i = at.layout->core_low[g] + 1; i <= at.layout->core_high[g]; ++i) {
        const W* slice = from + begin + i * at.inner;
        for (std::int64_t k = 0; k < at.inner; ++k) target[k] |= slice[k];
      }
    }
}

template <class W>
bool Erosion<W>::clear_cores(W* cells, const W* words) {
  const std::int64_t n = n_levels_ > 0 ? levels_[0]->size : 1;
  std::int64_t rows = 0;
  for (std::int64_t i = 0; i < n; ++i) {  // most cells fall for what lies in their own row, or at the ends of their core
    if (cells[i] == 0) continue;
    W left = static_cast<W>(cells[i] & ~touched(words[i]));
    if (left != 0 && n_levels_ > 0) {
      W word = 0;
      std::int64_t rest = i;
      for (int level = 0; level < n_levels_; ++level) {
        const Level& at = *levels_[level];
        const std::int64_t g = rest / at.inner;
        rest -= g * at.inner;
        word |= static_cast<W>(words[i + (at.layout->core_low[g] - g) * at.inner] |
                               words[i + (at.layout->core_high[g] - g) * at.inner]);
      }
      left &= static_cast<W>(~touched(word));
    }
    cells[i] = left;
    rows += left != 0;
  }
  if (rows == 0 || n_levels_ == 0) return rows != 0;
  // For few rows the core is looked through row by row, for many axis by axis.
  double product = 1.0, sum = 1.0;
  for (int level = 0; level < n_levels_; ++level) {
    const AxisLayout& layout = *levels_[level]->layout;
    double width = 0.0;
    for (int g = 0; g < layout.size(); ++g) width += layout.core_high[g] - layout.core_low[g] + 1;
    product *= width / layout.size();
    sum += width / layout.size();
  }
  const bool few = static_cast<double>(rows) * (product + 4.0) < static_cast<double>(n) * sum * 0.25;
  const W* joined = words;
  if (!few) {
    W* room[2] = {levels_[0]->block.data(), levels_[0]->table.data()};  // neither is in use yet
    for (int level = 0, next = 0; level < n_levels_; ++level) {
      const AxisLayout& layout = *levels_[level]->layout;
      if (layout.core_low == layout.core_high) continue;
      join_cores(level, joined, room[next]);
      joined = room[next];
      next = 1 - next;
    }
  }
  W some = 0;
  for (std::int64_t i = 0; i < n; ++i)
    if (cells[i] != 0) {
      cells[i] &= static_cast<W>(~touched(few ? core_word(i, words) : joined[i]));
      some |= cells[i];
    }
  return some != 0;
}

template class Erosion<std::uint16_t>;
template class Erosion<std::uint32_t>;
template class Erosion<std::uint64_t>;

}  // namespace boxqte
