// Sets of cells, axes or cuts as words of bits.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace boxqte {

using Word = std::uint64_t;
using Words = std::span<const Word>;
inline constexpr int word_bits = 64;

inline int words_for(int n_bits) { return n_bits <= word_bits ? 1 : (n_bits + word_bits - 1) / word_bits; }

/// The index of the lowest bit that is set; the word must not be 0.
inline int first_bit(Word word) { return std::countr_zero(word); }

/// The index of the highest bit that is set; the word must not be 0.
inline int last_bit(Word word) { return word_bits - 1 - std::countl_zero(word); }

/// The lowest n bits, 1 <= n <= 64.
inline Word low_bits(int n) { return ~Word{0} >> (word_bits - n); }

inline bool has_bit(const Word* words, int i) { return ((words[i >> 6] >> (i & 63)) & 1) != 0; }

inline void set_bit(Word* words, int i) { words[i >> 6] |= Word{1} << (i & 63); }

inline bool overlap(const Word* a, const Word* b, int n) {
  Word shared = 0;
  for (int w = 0; w < n; ++w) shared |= a[w] & b[w];
  return shared != 0;
}

/// Whether every bit of a is one of b's.
inline bool within(const Word* a, const Word* b, int n) {
  Word beyond = 0;
  for (int w = 0; w < n; ++w) beyond |= a[w] & ~b[w];
  return beyond == 0;
}

/// How many of the bits low..high-1 are set.
inline int count_bits(const Word* words, int low, int high) {
  int total = 0;
  while (low < high) {
    const int w = low >> 6;
    const int stop = high < ((w + 1) << 6) ? high : (w + 1) << 6;
    total += std::popcount((words[w] >> (low & 63)) & low_bits(stop - low));
    low = stop;
  }
  return total;
}

/// Call visit(i) for every bit that is set, in order.
template <class Visit>
inline void each_bit(const Word* words, int n, Visit visit) {
  for (int w = 0; w < n; ++w)
    for (Word word = words[w]; word != 0; word &= word - 1) visit((w << 6) + first_bit(word));
}

}  // namespace boxqte
