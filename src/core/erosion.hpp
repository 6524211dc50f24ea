// Erosion: the mass of the x whose whole window is clear in a bitmap of cells (docs/engine.md, Theorem 6).
//
// A bitmap has one bit a group of the last axis and one word a combination of the other moving axes. A window is a product of
// ranges, so 'no bit in the window' unfolds axis by axis: OR the slices that the range covers, and go on with what is left.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "brick.hpp"
#include "lanes.hpp"

namespace boxqte {

/// Blocks measured before, looked up by their full content, never by a hash alone.
class Memo {
 public:
  explicit Memo(Memory& memory);
  ~Memo() { std::free(entries_); }
  Memo(const Memo&) = delete;
  Memo& operator=(const Memo&) = delete;

  struct Entry {
    double value;
    std::uint64_t tag;  ///< what the key is a block of; 0 nothing
    unsigned char* key() { return reinterpret_cast<unsigned char*>(this + 1); }
  };
  static constexpr std::size_t longest_key = 8192;

  /// The one place for keys of so many bytes with this hash.
  Entry* entry(std::uint64_t hash, std::size_t key_bytes) const;

 private:
  unsigned char* entries_;
};

/// The masses of a brick's bitmaps. One per word type: 16, 32 or 64 bits by the size of the last axis.
template <class W>
class Erosion {
 public:
  Erosion(Memory& memory, Memo& memo, const std::atomic<bool>& halted);

  void lay(const Brick& brick);

  /// The mass of the x whose window is clear in `words`.
  double clear(const W* words);

  /// The mass of the x whose own cell is set in `own` and whose window is clear in `words`.
  double clear_of(const W* own, const W* words) { return clear_of(0, own, words); }

  /// Take out of `cells` those whose core touches `words` ('Cores'); whether any is left.
  bool clear_cores(W* cells, const W* words);

  /// The mass of the cells that are set.
  double mass(const W* cells) const { return mass(0, cells); }

  W full() const { return full_; }

 private:
  struct Place {
    std::int64_t one, two;  ///< the two entries of a table of ORs that together cover a window
  };
  struct Level {
    const AxisLayout* layout = nullptr;
    std::int64_t size = 1, inner = 1;  ///< words of a block, of one slice of it
    std::vector<Place> merged, own;
    std::uint64_t tag = 0;
    bool slides = false;  ///< blocks too large for a table of ORs: windows slide over suffixes instead
    Room<W> table, block;
    // sliding: suffixes of the slices before `pivot`, and the OR of those from it up to `front_end`
    int pivot = 0, front_end = 0;

    explicit Level(Memory& memory) : table(memory), block(memory) {}
  };
  struct Summary {
    W some, every;
  };

  static Summary summary(const W* words, std::int64_t n);
  double inside(int level, const W* words);
  double lines(Level& at, const W* words);
  double clear_of(int level, const W* own, const W* words);
  double lines_of(Level& at, const W* own, const W* words);
  void open(Level& at, const W* words);
  bool window_block(Level& at, const W* words, bool own, int j, Summary& summary);
  double clear_word(W word);
  double clear_word_anew(W word) const;
  double clear_word_of(W own, W word) const;
  double mass(int level, const W* cells) const;
  double bits_mass(W word) const;
  W touched(W word) const;
  W core_word(std::int64_t row, const W* words) const;
  void join_cores(int level, const W* from, W* to) const;

  struct KnownWord {
    std::uint64_t word = 0;  ///< 0: none, no empty word is asked for
    double clear = 0.0;
  };

  Memory& memory_;
  Memo& memo_;
  const std::atomic<bool>& halted_;
  std::vector<std::unique_ptr<Level>> levels_;
  int n_levels_ = 0;
  const AxisLayout* last_ = nullptr;
  int last_id_ = -1;
  W full_ = 0;
  std::vector<KnownWord> words_;
  std::int32_t core_from_[word_bits], core_to_[word_bits];  ///< bit -> the first and last cell whose core holds it
};

extern template class Erosion<std::uint16_t>;
extern template class Erosion<std::uint32_t>;
extern template class Erosion<std::uint64_t>;

}  // namespace boxqte
