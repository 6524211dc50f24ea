// Erosion: the mass of the x whose whole window is clear in a bitmap of cells (docs/engine.md, Theorem 6).
//
// A bitmap has one bit a group of the last axis and one word a combination of the other moving axes; the words along the axis
// before it are a line, filled up with empty words to whole chunks of 64 bits. A window is a product of ranges, so 'no bit in the
// window' unfolds axis by axis: OR the slices that the range covers, and go on with what is left.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
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
    Chunk* key() { return reinterpret_cast<Chunk*>(this + 1); }
  };
  static constexpr std::size_t longest_key = 1024;  ///< chunks

  /// The one place for keys of so many chunks with this hash.
  Entry* entry(std::uint64_t hash, std::size_t key_chunks) const;

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
  /// A bitmap whose words are all full (but the empty ones at the ends of lines), and its size.
  const Chunk* pattern() const { return pattern_.data(); }
  std::int64_t chunks() const { return chunks_; }
  std::int64_t words() const { return chunks_ * per_chunk; }
  /// Where the word of a row of the brick is.
  std::int64_t at(std::int64_t row) const { return row / n_line_ * line_words_ + row % n_line_; }
  int n_line() const { return n_line_; }
  std::int64_t line_gap() const { return line_words_ - n_line_; }

 private:
  static constexpr int per_chunk = word_bits / std::numeric_limits<W>::digits;
  struct Place {
    std::int64_t one, two;  ///< the two entries of a table of ORs that together cover a window
  };
  struct Level {
    const AxisLayout* layout = nullptr;
    std::int64_t size = 1, inner = 1;  ///< words of a block, of one slice of it (along the line: one)
    std::vector<Place> merged, own;
    std::uint64_t tag = 0;
    bool slides = false;  ///< blocks too large for a table of ORs: windows slide over suffixes instead
    Room<W> table, block;
    // sliding: suffixes of the slices before `pivot`, and the OR of those from it up to `front_end`
    int pivot = 0, front_end = 0;

    explicit Level(Memory& memory) : table(memory), block(memory) {}
  };
  struct Summary {
    bool empty, full;
  };
  /// A line measured before, with its content.
  struct KnownLine {
    std::uint64_t tag = 0;
    double clear = 0.0;
    Chunk line[8] = {};
  };

  Summary summary(const W* words, std::int64_t n_words) const;
  double inside(int level, const W* words);
  double line(const W* words);
  double line_anew(Level& at, const W* words);
  void open_line(Level& at, const W* words);
  double clear_of(int level, const W* own, const W* words);
  double line_of(Level& at, const W* own, const W* words);
  void open(Level& at, const W* words);
  bool window_block(Level& at, const W* words, bool own, int j, Summary& summary);
  double clear_word(W word);
  double clear_word_anew(W word) const;
  double clear_word_of(W own, W word) const;
  double mass(int level, const W* cells) const;
  double bits_mass(W word) const;
  W touched(W word) const;
  void join_cores(int level, const W* from, W* to);

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
  std::vector<KnownLine> lines_;
  int n_line_ = 1;
  std::int64_t line_words_ = 1, chunks_ = 1;
  Room<std::uint64_t> pattern_;
  Room<W> joined_[2], core_table_;
  std::vector<int> core_log_;              ///< group of a line -> the logarithm of its core's width, rounded down
  int core_logs_ = 0;                      ///< the largest of them
  double byte_mass_[sizeof(W)][256] = {};  ///< byte of a word, its bits -> the mass of their groups
  std::int32_t core_from_[word_bits], core_to_[word_bits];  ///< bit -> the first and last cell whose core holds it
};

extern template class Erosion<std::uint16_t>;
extern template class Erosion<std::uint32_t>;
extern template class Erosion<std::uint64_t>;

}  // namespace boxqte
