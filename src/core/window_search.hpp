// Does the window of x hold a cell of another class? The search behind a point,
// for any epsilon.
//
// The question is always: is there a cell with G <= target, where G is one
// output less another (or 0)? For a binary model G is F or -F; for many classes
// it is the margin of x's class less that of a rival. A box is a range of cells
// on every axis; what it leaves of the trees are words of leaves
// (leaf_masks.hpp). A tree of which one leaf is left is a constant; one that
// depends on a single axis is added to that axis's line, a table over its
// cells. G is at least the constant + the smallest entry of every line + the
// smallest leaf of every tree left.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <vector>

#include "leaf_masks.hpp"

namespace boxqte {

/// G = constant + the trees of output `plus` - the trees of output `minus`; -1
/// is none.
struct Question {
  int plus, minus;
  std::int64_t target;
  std::int64_t slack;  ///< sums are within this of the exact ones
};

/// What a search ends with.
enum class Found { none, some, close, given_up };

/// x, and the cells that x' may lie in.
struct Window {
  std::vector<std::int32_t> own, low, high;
  bool must_differ = false;  ///< x' has other sensitive cells than x
};

/// Limits of a search, and what it has used up.
struct Effort {
  std::int64_t budget;
  std::int64_t work = 0;  ///< steps of about a nanosecond
  const std::atomic<bool>* halt = nullptr;
};

class WindowSearch {
 public:
  WindowSearch(const Forest& forest, int dense_limit) : forest_(forest), dense_limit_(dense_limit) {}

  /// The masks to use: of the whole forest, or of a box that holds the window.
  void use(const LeafMasks& masks);

  /// Prepare for the questions about one x: the leaves that its fixed cells
  /// reach, and then its window.
  void enter(const Window& window);

  /// The outputs at x's own cell.
  void margins(std::int64_t* outputs);

  /// With Found::some, `best` is the cell.
  Found find(const Question& question, Effort& effort);

  std::vector<std::int32_t> best;

 private:
  /// What is left of a tree: `words` words from `word` on, times the sign.
  struct Item {
    std::int32_t word, words;
    std::int32_t sign;
    std::uint64_t scope;  ///< the wide axes that it depends on, as bits
  };
  struct Frame {
    std::vector<std::int32_t> low, high;
    std::vector<Item> items;
    std::vector<Word> words;
    std::vector<std::int64_t> lines;  ///< wide axis after wide axis, over the window's cells
    std::int64_t constant = 0, bound = 0;
  };
  /// A dimension of a dense box.
  struct Side {
    int axis, wide, low, length, stride;
  };
  /// One or two rows whose AND says which leaves a range of cells of an axis
  /// meets.
  struct Pair {
    const Word* one;
    const Word* two;
  };

  /// The bit of a wide axis in a scope; those beyond the 63rd share one.
  static std::uint64_t axis_bit(int wide) { return std::uint64_t{1} << (wide < 63 ? wide : 63); }
  bool is_active(int wide) const { return (active_ & axis_bit(wide)) != 0; }
  Pair reaching(int axis, int low, int high, std::vector<Word>& room) const;
  void list_rows(const Pair& pair);
  void meet_cells(const std::vector<Word>& within, const std::vector<std::int32_t>& cell, int but);
  Pair spanning(int axis, int low, int high, std::vector<Word>& room) const;
  std::int64_t weight(const Item& item, std::size_t leaf) const {
    return up_ ? up_[leaf] - down_[leaf] : item.sign > 0 ? value_[leaf] : -value_[leaf];
  }
  /// The smallest value among a tree's leaves: bits are sorted by value, unless
  /// leaves have one for each output.
  std::int64_t least(const Item& item, const Word* words) const {
    if (up_ || item.words > 1) return least_of_several(item, words);
    const std::size_t first = static_cast<std::size_t>(item.word) * word_bits;
    return item.sign > 0 ? value_[first + first_bit(*words)] : -value_[first + last_bit(*words)];
  }
  std::int64_t least_of_several(const Item& item, const Word* words) const;
  void begin(const Question& question, Frame& root);
  void narrow(const Frame& from, int axis, int low, int high, Frame& to);
  std::int64_t bound_within(const Frame& frame, int wide, int low, int high);
  std::int64_t value_at(const Frame& frame, const std::vector<std::int32_t>& cell);
  bool is_own(const std::vector<std::int32_t>& cell) const;
  bool only_own(const Frame& frame) const;
  void settle(Frame& frame);
  std::uint64_t scope_of(const Item& item, const Word* words) const;
  void move_to_line(Frame& frame, const Item& item, const Word* words);
  std::int64_t line_least(const Frame& frame, int wide, int low, int high) const;
  void pin_idle(Frame& frame);
  bool lay_out(const Frame& frame);
  bool start_cell(const Frame& root);
  bool descend(const Frame& root, int steps, const Question& question, Effort& effort);
  void fill_line(const Frame& root, int axis, const std::vector<std::int32_t>& cell);
  void add_to_line(const Frame& root, int axis, std::size_t leaf, std::int64_t value);
  Found search(std::size_t depth, const Question& question, Effort& effort);
  Found try_dense(const Frame& frame, const Question& question, Effort& effort);
  void fill_dense(const Frame& frame);
  void add_corners(const Frame& frame, std::size_t leaf, std::size_t side, std::size_t place, std::uint32_t value);

  const Forest& forest_;
  int dense_limit_;
  const LeafMasks* masks_ = nullptr;
  const Window* window_ = nullptr;
  std::vector<int> wide_;      ///< the axes on which the window has several cells
  std::vector<Word> fixed_;    ///< the leaves that x's cells on the other axes reach
  std::vector<Word> reached_;  ///< the leaves that the window reaches
  const std::int64_t* value_ = nullptr;
  const std::int64_t *up_ = nullptr, *down_ = nullptr;
  const std::int32_t *narrow_ = nullptr, *narrow_up_ = nullptr, *narrow_down_ = nullptr;
  std::deque<Frame> frames_;     ///< one a level; they stay where they are
  std::uint64_t active_ = 0;     ///< the wide axes that G depends on in the box at hand, as bits
  std::vector<int> line_start_;  ///< wide axis -> where its line begins
  std::vector<Pair> spans_;      ///< wide axis -> the rows of the leaves that hold
                                 ///< all of the box's cells
  std::vector<std::vector<Word>> span_rooms_;
  std::vector<std::int32_t> cell_;  ///< where trying cells has come to, or the cell at hand
  std::int64_t lowest_ = 0;         ///< G there
  std::vector<std::int64_t> line_;
  std::vector<Side> sides_;
  std::vector<std::uint32_t> dense_;
  std::vector<Word> room_one_, room_two_;
  std::vector<Pair> pairs_;
  std::vector<const Word*> row_list_;
  std::vector<Word> words_;
  std::vector<std::int32_t> several_;
  std::vector<Item> settled_;
  std::vector<Word> settled_words_;
};

}  // namespace boxqte
