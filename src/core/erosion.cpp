#include "erosion.hpp"

#include <algorithm>
#include <bit>

namespace boxqte {

namespace {

struct KeyClass {
  std::size_t chunks, slots;
};
// short keys have a memory of their own, which fits the cache
constexpr KeyClass classes[] = {{32, 1 << 11}, {128, 1 << 9}, {Memo::longest_key, 1 << 8}};
constexpr std::size_t known_words = 1 << 11, known_lines = 1 << 12;
constexpr std::int64_t top_key = 64;          // a large block that is asked for by itself hardly comes twice
constexpr std::size_t table_bytes = 1 << 15;  // larger blocks slide

constexpr std::int64_t core_words = 4096;  // joined at a time

/// The largest power of two that fits a range, as an exponent.
int log_of(int low, int high) { return std::bit_width(static_cast<unsigned>(high - low + 1)) - 1; }

constexpr std::size_t memo_bytes() {
  std::size_t total = 0;
  for (const KeyClass& c : classes) total += c.slots * (c.chunks * sizeof(Chunk) + sizeof(Memo::Entry));
  return total;
}

/// Odd numbers without a pattern, one a chunk of a key.
struct Factors {
  std::uint64_t of[Memo::longest_key] = {};
  constexpr Factors() {
    std::uint64_t state = 0x243F6A8885A308D3ull;
    for (std::uint64_t& factor : of) {  // splitmix64
      state += 0x9E3779B97F4A7C15ull;
      std::uint64_t z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9ull;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
      factor = (z ^ (z >> 31)) | 1;
    }
  }
};
constexpr Factors factors;

std::uint64_t finished(std::uint64_t sum) {
  sum = (sum ^ (sum >> 32)) * 0xFF51AFD7ED558CCDull;
  return sum ^ (sum >> 32);
}

/// Products of the halves: vector instructions have no wider ones.
std::uint64_t hash_of(const Chunk* key, std::int64_t n, std::uint64_t seed) {
  std::uint64_t sum = seed * 0x9E3779B97F4A7C15ull;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t mixed = key[i] ^ factors.of[i];
    sum += (mixed & 0xFFFFFFFFu) * (mixed >> 32);
  }
  return finished(sum);
}

bool equal(const Chunk* a, const Chunk* b, std::int64_t n) {
  std::uint64_t differ = 0;
  for (std::int64_t i = 0; i < n; ++i) differ |= a[i] ^ b[i];
  return differ == 0;
}

template <class W>
const Chunk* chunks_of(const W* words) {
  return reinterpret_cast<const Chunk*>(words);
}
template <class W>
Chunk* chunks_of(W* words) {
  return reinterpret_cast<Chunk*>(words);
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

Memo::Entry* Memo::entry(std::uint64_t hash, std::size_t key_chunks) const {
  std::size_t at = 0;
  for (const KeyClass& c : classes) {
    const std::size_t stride = c.chunks * sizeof(Chunk) + sizeof(Entry);
    if (key_chunks <= c.chunks) return reinterpret_cast<Entry*>(entries_ + at + hash % c.slots * stride);
    at += c.slots * stride;
  }
  return nullptr;
}

template <class W>
Erosion<W>::Erosion(Memory& memory, Memo& memo, const std::atomic<bool>& halted)
    : memory_(memory),
      memo_(memo),
      halted_(halted),
      words_(known_words),
      lines_(known_lines),
      pattern_(memory),
      joined_{Room<W>(memory), Room<W>(memory)},
      core_table_(memory) {}

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
    for (int k = 0; k < static_cast<int>(sizeof(W)); ++k)
      for (unsigned byte = 1; byte < 256; ++byte) {
        const int g = 8 * k + std::countr_zero(byte);
        byte_mass_[k][byte] = byte_mass_[k][byte & (byte - 1)] + (g < brick.n_last ? last_->mass[g] : 0.0);
      }
  }
  while (static_cast<int>(levels_.size()) < n_levels_) levels_.push_back(std::make_unique<Level>(memory_));
  n_line_ = n_levels_ > 0 ? brick.level(n_levels_ - 1).size() : 1;
  line_words_ = (n_line_ + per_chunk - 1) / per_chunk * per_chunk;
  core_log_.clear();
  core_logs_ = 0;
  for (int g = 0; g < n_line_ && n_levels_ > 0; ++g) {
    const AxisLayout& layout = brick.level(n_levels_ - 1);
    core_log_.push_back(log_of(layout.core_low[g], layout.core_high[g]));
    core_logs_ = std::max(core_logs_, core_log_[g]);
  }
  std::int64_t inner = 1;
  for (int i = n_levels_ - 1; i >= 0; --i) {
    Level& at = *levels_[i];
    at.layout = &brick.level(i);
    at.inner = inner;
    at.size = i == n_levels_ - 1 ? line_words_ : inner * at.layout->size();
    at.tag = static_cast<std::uint64_t>(brick.sequence[i]) * 2;
    at.slides = static_cast<std::size_t>(at.size) * sizeof(W) > table_bytes && i < n_levels_ - 1;
    const auto places = [&](const Windows& windows, std::vector<Place>& to) {
      to.clear();
      for (int j = 0; j < windows.size(); ++j) {
        const int low = windows.low[j], end = windows.high[j] + 1;
        const unsigned width = std::bit_floor(static_cast<unsigned>(end - low));
        const std::int64_t table = std::countr_zero(width) * at.size;
        to.push_back({table + low * inner, table + (end - static_cast<int>(width)) * inner});
      }
    };
    places(at.layout->merged, at.merged);
    if (brick.own_matters) places(at.layout->own, at.own);
    const int logs = std::bit_width(static_cast<unsigned>(at.layout->merged.widest));
    // sliding: the suffixes, and one slice for the front
    at.table.of(static_cast<std::size_t>(at.slides ? at.size + inner : logs * at.size));
    at.block.of(static_cast<std::size_t>(inner));
    inner = at.size;
  }
  chunks_ = n_levels_ > 0 ? inner / per_chunk : 1;
  auto* pattern = reinterpret_cast<W*>(pattern_.of(static_cast<std::size_t>(chunks_)));
  for (std::int64_t line = 0; line < words(); line += line_words_)
    std::fill_n(std::fill_n(pattern + line, n_line_, full_), line_gap(), W{0});
}

template <class W>
typename Erosion<W>::Summary Erosion<W>::summary(const W* words, std::int64_t n_words) const {
  const Chunk *chunk = chunks_of(words), *pattern = pattern_.data();
  std::uint64_t some = 0, missing = 0;
  for (std::int64_t i = 0; i < n_words / per_chunk; ++i) {
    some |= chunk[i];
    missing |= chunk[i] ^ pattern[i];
  }
  return {some == 0, missing == 0};
}

template <class W>
double Erosion<W>::clear(const W* words) {
  if (n_levels_ == 0) return words[0] == 0 ? 1.0 : clear_word(words[0]);
  const Summary all = summary(words, levels_[0]->size);
  return all.empty ? 1.0 : all.full ? 0.0 : inside(0, words);
}

/// The ORs of 1, 2, 4, ... neighbouring slices, so that any window is an OR of two entries.
template <class W>
void Erosion<W>::open(Level& at, const W* words) {
  if (at.slides) {
    at.pivot = at.front_end = 0;
    return;
  }
  auto* table = reinterpret_cast<Chunk*>(at.table.data());
  const std::int64_t size = at.size / per_chunk;
  std::int64_t step = at.inner / per_chunk, n = size;
  std::copy_n(chunks_of(words), size, table);
  for (int width = 2; width <= at.layout->merged.widest; width *= 2) {
    n -= step;
    Chunk* to = table + size;
    for (std::int64_t i = 0; i < n; ++i) to[i] = table[i] | table[i + step];
    table = to;
    step *= 2;
  }
}

/// The same along a line. What is read beyond its end is written beyond the last entry that any window uses.
template <class W>
void Erosion<W>::open_line(Level& at, const W* words) {
  W* table = at.table.data();
  std::copy_n(words, at.size, table);
  for (int width = 2; width <= at.layout->merged.widest; width *= 2) {
    W* to = table + at.size;
    for (std::int64_t i = 0; i + width / 2 < at.size; ++i) to[i] = static_cast<W>(table[i] | table[i + width / 2]);
    table = to;
  }
}

/// The OR of the slices that window j covers, in at.block; whether it differs from what was there.
template <class W>
bool Erosion<W>::window_block(Level& at, const W* words, bool own, int j, Summary& found) {
  const std::int64_t inner = at.inner / per_chunk;
  const Chunk *one, *two;
  if (at.slides) {
    const Windows& windows = own ? at.layout->own : at.layout->merged;
    const int low = windows.low[j], high = windows.high[j];
    const Chunk* slices = chunks_of(words);
    auto* suffix = reinterpret_cast<Chunk*>(at.table.data());
    Chunk* front = suffix + at.size / per_chunk;
    if (low >= at.pivot) {
      at.pivot = at.front_end = high + 1;
      std::copy_n(slices + high * inner, inner, suffix + high * inner);
      for (int g = high - 1; g >= low; --g)
        for (std::int64_t i = g * inner; i < (g + 1) * inner; ++i) suffix[i] = slices[i] | suffix[i + inner];
    }
    for (; at.front_end <= high; ++at.front_end) {
      const Chunk* slice = slices + at.front_end * inner;
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
    one = chunks_of(at.table.data() + place.one);
    two = chunks_of(at.table.data() + place.two);
  }
  auto* block = reinterpret_cast<Chunk*>(at.block.data());
  const Chunk* pattern = pattern_.data();
  std::uint64_t differ = 0, some = 0, missing = 0;
  for (std::int64_t i = 0; i < inner; ++i) {
    const std::uint64_t chunk = one[i] | two[i];
    differ |= chunk ^ block[i];
    some |= chunk;
    missing |= chunk ^ pattern[i];
    block[i] = chunk;
  }
  found = {some == 0, missing == 0};
  return differ != 0;
}

/// A block that is neither empty nor full.
template <class W>
double Erosion<W>::inside(int level, const W* words) {
  if (level == n_levels_ - 1) return line(words);
  Level& at = *levels_[level];
  const std::int64_t size = at.size / per_chunk;
  Memo::Entry* known = nullptr;
  if (size <= (level == 0 ? top_key : static_cast<std::int64_t>(Memo::longest_key))) {
    known = memo_.entry(hash_of(chunks_of(words), size, at.tag), static_cast<std::size_t>(size));
    if (known->tag == at.tag && equal(known->key(), chunks_of(words), size)) return known->value;
  }
  double total = 0.0, value = 0.0;
  open(at, words);
  const std::vector<double>& mass = at.layout->merged.mass;
  Summary found{};
  for (int j = 0; j < at.layout->merged.size(); ++j) {
    if (window_block(at, words, false, j, found) || j == 0) {  // neighbours are often alike
      if (level < 2 && halted_.load(std::memory_order_relaxed)) return 0.0;
      value = found.empty ? 1.0 : found.full ? 0.0 : inside(level + 1, at.block.data());
    }
    total += mass[j] * value;
  }
  if (known != nullptr) {
    known->tag = at.tag;
    known->value = total;
    std::copy_n(chunks_of(words), size, known->key());
  }
  return total;
}

template <class W>
double Erosion<W>::line(const W* words) {
  Level& at = *levels_[n_levels_ - 1];
  const std::int64_t size = at.size / per_chunk;
  constexpr std::int64_t most = sizeof(KnownLine::line) / sizeof(Chunk);
  const Chunk* line = chunks_of(words);
  if (size > most) {
    if (size > static_cast<std::int64_t>(Memo::longest_key)) return line_anew(at, words);
    Memo::Entry* known = memo_.entry(hash_of(line, size, at.tag), static_cast<std::size_t>(size));
    if (known->tag != at.tag || !equal(known->key(), line, size)) {
      known->tag = at.tag;
      known->value = line_anew(at, words);
      std::copy_n(line, size, known->key());
    }
    return known->value;
  }
  std::uint64_t sum = at.tag;
  for (std::int64_t i = 0; i < size; ++i) sum += line[i] * factors.of[i];
  KnownLine& known = lines_[finished(sum) % known_lines];
  std::uint64_t differ = known.tag ^ at.tag;
  for (std::int64_t i = 0; i < size; ++i) differ |= known.line[i] ^ line[i];
  if (differ != 0) {
    known.tag = at.tag;
    known.clear = line_anew(at, words);
    std::copy_n(line, size, known.line);
  }
  return known.clear;
}

/// The last axis but one: the windows' blocks are words.
template <class W>
double Erosion<W>::line_anew(Level& at, const W* words) {
  open_line(at, words);
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
  double total = 0.0;
  for (int k = 0; k < static_cast<int>(sizeof(W)); ++k) total += byte_mass_[k][(std::uint64_t{word} >> (8 * k)) & 255];
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
  if (mine.empty || seen.full) return 0.0;
  if (seen.empty) return mine.full ? 1.0 : mass(level, own);
  if (mine.full) return inside(level, words);
  const std::int64_t size = at.size / per_chunk;
  const std::uint64_t tag = at.tag + 1;
  Memo::Entry* known = nullptr;
  if (2 * size <= static_cast<std::int64_t>(Memo::longest_key)) {
    known = memo_.entry(hash_of(chunks_of(words), size, hash_of(chunks_of(own), size, tag)),
                        static_cast<std::size_t>(2 * size));
    if (known->tag == tag && equal(known->key(), chunks_of(words), size) &&
        equal(known->key() + size, chunks_of(own), size))
      return known->value;
  }
  double total = 0.0;
  if (level == n_levels_ - 1) {
    total = line_of(at, own, words);
  } else {
    const Windows& windows = at.layout->own;
    bool opened = false;
    Summary found{};
    for (int g = 0; g < at.layout->size(); ++g) {
      if (windows.of_base[g] == windows.of_base[g + 1] || summary(own + g * at.inner, at.inner).empty) continue;
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
    std::copy_n(chunks_of(words), size, known->key());
    std::copy_n(chunks_of(own), size, known->key() + size);
  }
  return total;
}

template <class W>
double Erosion<W>::line_of(Level& at, const W* own, const W* words) {
  open_line(at, words);
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

/// to = for every group of an axis the OR of the slices of its core.
template <class W>
void Erosion<W>::join_cores(int level, const W* from, W* to) {
  Level& at = *levels_[level];
  const AxisLayout& layout = *at.layout;
  if (level < n_levels_ - 1) {
    for (std::int64_t begin = 0; begin < words(); begin += at.size)
      for (int g = 0; g < layout.size() && !halted_.load(std::memory_order_relaxed); ++g) {
        Chunk* target = chunks_of(to + begin + g * at.inner);
        std::copy_n(chunks_of(from + begin + layout.core_low[g] * at.inner), at.inner / per_chunk, target);
        for (int i = layout.core_low[g] + 1; i <= layout.core_high[g]; ++i) {
          const Chunk* slice = chunks_of(from + begin + i * at.inner);
          for (std::int64_t k = 0; k < at.inner / per_chunk; ++k) target[k] |= slice[k];
        }
      }
    return;
  }
  // along the lines: ORs of 1, 2, 4, ... neighbours for many lines at once (those across two lines are not used)
  const std::int64_t part = std::max<std::int64_t>(core_words / line_words_, 1) * line_words_;
  W* table = core_table_.of(static_cast<std::size_t>(part * (core_logs_ + 1)));
  for (std::int64_t begin = 0; begin < words() && !halted_.load(std::memory_order_relaxed); begin += part) {
    const std::int64_t n = std::min(part, words() - begin);
    std::copy_n(from + begin, n, table);
    for (int log = 0; log < core_logs_; ++log) {
      const W* narrower = table + log * part;
      W* wider = table + (log + 1) * part;
      for (std::int64_t i = 0; i + (1 << log) < n; ++i)
        wider[i] = static_cast<W>(narrower[i] | narrower[i + (1 << log)]);
    }
    for (std::int64_t line = 0; line < n; line += line_words_)
      for (int g = 0; g < n_line_; ++g) {
        const W* mine = table + line + core_log_[g] * part;
        to[begin + line + g] =
            static_cast<W>(mine[layout.core_low[g]] | mine[layout.core_high[g] + 1 - (1 << core_log_[g])]);
      }
  }
}

template <class W>
bool Erosion<W>::clear_cores(W* cells, const W* words) {
  const W* joined = words;
  for (int level = 0, next = 0; level < n_levels_; ++level) {
    const AxisLayout& layout = *levels_[level]->layout;
    if (halted_.load(std::memory_order_relaxed)) return false;
    if (layout.core_low == layout.core_high) continue;  // every core is one group
    W* to = joined_[next].of(static_cast<std::size_t>(this->words()));
    join_cores(level, joined, to);
    joined = to;
    next = 1 - next;
  }
  W some = 0;
  for (std::int64_t i = 0; i < (n_levels_ > 0 ? this->words() : 1); ++i)
    if (cells[i] != 0) {
      cells[i] &= static_cast<W>(~touched(joined[i]));
      some |= cells[i];
    }
  return some != 0;
}

template class Erosion<std::uint16_t>;
template class Erosion<std::uint32_t>;
template class Erosion<std::uint64_t>;

}  // namespace boxqte
