// Eight cells at a time, and memory for them.
//
// gcc's and clang's vector types become whatever the processor has; only the step from lanes to bits needs its own
// instruction, because no compiler finds it in a loop.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "bits.hpp"
#include "problem.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"  // all that takes or gives vectors is inlined
#endif

namespace boxqte {

using Eight __attribute__((vector_size(32))) = std::int32_t;
using EightUnsigned __attribute__((vector_size(32))) = std::uint32_t;

/// Words of a bitmap, 64 bits at a time, whatever their type.
using Chunk __attribute__((may_alias)) = std::uint64_t;

inline Eight load(const std::int32_t* cells) {
  Eight eight;
  std::memcpy(&eight, cells, sizeof eight);
  return eight;
}
inline void store(std::int32_t* cells, const Eight& eight) { std::memcpy(cells, &eight, sizeof eight); }
inline Eight smaller(const Eight& a, const Eight& b) { return a < b ? a : b; }
inline Eight larger(const Eight& a, const Eight& b) { return a > b ? a : b; }
inline EightUnsigned smaller(const EightUnsigned& a, const EightUnsigned& b) { return a < b ? a : b; }

/// Bit i says whether lane i is negative.
inline unsigned negative_bits(const Eight& eight) {
#if defined(__AVX2__)
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(reinterpret_cast<const __m256i&>(eight))));
#elif defined(__SSE2__)
  __m128i half[2];
  std::memcpy(half, &eight, sizeof eight);
  return static_cast<unsigned>(_mm_movemask_ps(_mm_castsi128_ps(half[0])) | _mm_movemask_ps(_mm_castsi128_ps(half[1]))
                                                                                << 4);
#else
  unsigned bits = 0;
  for (int i = 0; i < 8; ++i) bits |= (static_cast<std::uint32_t>(eight[i]) >> 31) << i;
  return bits;
#endif
}

template <class Vector, class Number>
inline Number least_lane(const Vector& eight, Number) {
  Number least = eight[0];
  for (int i = 1; i < 8; ++i) least = eight[i] < least ? eight[i] : least;
  return least;
}
inline std::int32_t least_of(const Eight& eight) { return least_lane(eight, std::int32_t{}); }
inline std::int32_t most_of(const Eight& eight) { return -least_of(-eight); }
inline std::uint32_t least_of(const EightUnsigned& eight) { return least_lane(eight, std::uint32_t{}); }

/// What a worker may use.
struct Memory {
  std::size_t limit = 0;
  std::size_t used = 0;

  void take(std::size_t bytes) {
    if (used + bytes > limit)
      throw MemoryLimit("the tables of a brick do not fit into the memory limit; give more memory");
    used += bytes;
  }
};

/// An array that grows and stays; growing forgets its content. Aligned to cache lines, one vector longer than asked for.
template <class T>
class Room {
 public:
  explicit Room(Memory& memory) : memory_(memory) {}
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  ~Room() { std::free(data_); }

  T* of(std::size_t n) {
    if (n > size_) grow(n);
    return data_;
  }
  T* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  void grow(std::size_t n) {
    std::free(data_);
    data_ = nullptr;
    memory_.used -= bytes_;
    bytes_ = size_ = 0;
    const std::size_t bytes = ((n + n / 2) * sizeof(T) + 127) / 64 * 64;
    memory_.take(bytes);
    bytes_ = bytes;
    data_ = static_cast<T*>(std::aligned_alloc(64, bytes));
    if (data_ == nullptr) throw std::bad_alloc();
    size_ = n + n / 2;
  }

  Memory& memory_;
  T* data_ = nullptr;
  std::size_t size_ = 0, bytes_ = 0;
};

}  // namespace boxqte
