// Sums of trees over a brick's cells: 4-byte tables, one a scope, and the exact sum of any one cell.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "brick.hpp"
#include "lanes.hpp"
#include "masses.hpp"

namespace boxqte {

using Cells = std::int32_t;  ///< what a table holds: sums in units of 2**Scale::shift

/// A margin: its value in 64 bits, and the exact one modulo 2**64 ('Wide values').
struct Margin {
  std::int64_t value = 0;
  std::uint64_t residue = 0;

  Margin& operator+=(const Margin& other) {
    value += other.value;
    residue += other.residue;
    return *this;
  }
  friend Margin operator+(Margin a, const Margin& b) { return a += b; }
  friend bool operator==(const Margin&, const Margin&) = default;
};

/// The sign of a - b, exactly: where the values do not tell, the difference is small, so its residue is itself.
inline int compare(const Margin& a, const Margin& b, std::int64_t fuzz) {
  if (a.value < b.value - fuzz) return -1;
  if (a.value > b.value + fuzz) return 1;
  if (fuzz == 0) return 0;
  const auto difference = static_cast<std::int64_t>(a.residue - b.residue);
  return difference < 0 ? -1 : difference > 0 ? 1 : 0;
}

/// 'F at most the bound', or below it.
struct Limit {
  Margin bound;
  bool below = false;
};

/// Class and confidence as four limits: class 0 iff F <= neg, class 1 iff not F < pos.
struct Limits {
  Limit neg, pos, sure_neg, sure_pos;
  bool simple = true;   ///< signs are all that matters
  bool no_ties = true;  ///< every margin has a class: pos is what neg is not
  std::int64_t fuzz = 0;

  explicit Limits(const Thresholds& t);
  bool holds(const Margin& f, const Limit& limit) const {
    const int sign = compare(f, limit.bound, fuzz);
    return limit.below ? sign < 0 : sign <= 0;
  }
  /// Kind::fair or Kind::low if margins between low and high settle every x alike, else Kind::unknown.
  Kind one_kind(std::int64_t low, std::int64_t high) const;
};

/// 64-bit margins as 4-byte integers, fixed point ('Narrow sums').
struct Scale {
  int shift = 0;
  Cells guard = 0;  ///< a sum of a table decides a limit only if it is further than this from it

  /// For sums of so many terms whose magnitudes add up to at most `range`.
  static Scale of(std::uint64_t range, int n_terms, std::int64_t fuzz, int bits);

  Cells narrow(std::int64_t value) const {
    return static_cast<Cells>(shift == 0 ? value : (value + (std::int64_t{1} << (shift - 1))) >> shift);
  }
  /// The largest table sum that counts as 'sum + offset within the limit'.
  Cells limit(const Limit& limit, const Margin& offset) const;
  /// Bounds of the exact sum, given a table sum.
  std::int64_t least(Cells sum) const { return (std::int64_t{sum} - guard) * (std::int64_t{1} << shift); }
  std::int64_t most(Cells sum) const { return (std::int64_t{sum} + guard) * (std::int64_t{1} << shift); }
};

/// The axes over which a tree varies, and its table's layout: the last axis has stride 1 and is padded.
struct Scope {
  struct Axis {
    int place;
    std::int64_t stride;
  };
  std::uint64_t mask = 0;  ///< places of its axes in the brick
  std::vector<Axis> axes;  ///< largest stride first
  std::int64_t size = 1;   ///< cells of a table
  bool over_last = false;
  std::vector<std::int32_t> row;  ///< row of the brick -> where it begins in the table (one combination's rows if not wide)
  bool wide = false;              ///< it has a sensitive axis

  void lay(const Brick& brick, std::uint64_t places);
  void lay_rows(const Brick& brick);
};

/// Reads trees on a brick's cells.
class TreeReader {
 public:
  TreeReader(const Nodes& nodes, const Brick& brick) : nodes_(nodes), brick_(brick) {}

  std::uint64_t places(TreeId tree) const;

  /// Add sign times the tree to a table of its scope. Padding cells get what the last cell gets.
  void add(TreeId tree, const Scope& scope, const Scale& scale, int sign, Cells* table);

  /// The tree's value where every axis of the brick stands at a group.
  Margin at(TreeId tree, const std::int32_t* groups) const;

 private:
  void descend(TreeId tree);
  void add_block(std::size_t axis, std::int64_t at, Cells value);

  const Nodes& nodes_;
  const Brick& brick_;
  const Scope* scope_ = nullptr;
  const Scale* scale_ = nullptr;
  Cells* table_ = nullptr;
  int sign_ = 1;
  std::vector<std::int32_t> first_, end_;
};

struct Extent {
  Cells least, most;
};

/// to = from + the table, row by row, for rows of `vectors` times eight cells; the smallest and the largest sum.
Extent add_table(const Cells* from, const Cells* table, const Scope& scope, std::int64_t rows, int vectors, Cells* to);

}  // namespace boxqte
