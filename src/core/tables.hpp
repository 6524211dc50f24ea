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

/// Class and confidence as limits: class 0 iff F <= neg, class 1 iff not F < pos; neither if not F < cap (rules).
struct Limits {
  Limit neg, pos, sure_neg, sure_pos, cap;
  bool ruled = false;   ///< rules forbid something: margins from the cap on
  bool capped = false;  ///< they may do so in the box at hand
  bool simple = true;   ///< signs are all that matters
  bool no_ties = true;  ///< every margin has a class: pos is what neg is not
  std::int64_t fuzz = 0;

  explicit Limits(const Thresholds& t);
  bool holds(const Margin& f, const Limit& limit) const {
    const int sign = compare(f, limit.bound, fuzz);
    return limit.below ? sign < 0 : sign <= 0;
  }
  /// Before a box is measured whose margins are at most `high`: whether rules may forbid something in it (Theorem 14).
  void look_at(std::int64_t high);
  /// Whether a tree with this largest leaf is one of the rules'.
  bool is_rule(std::int64_t most) const { return ruled && most > cap.bound.value + cap.bound.value / 2; }
  /// Kind::fair or Kind::low if margins between low and high settle every x alike, else Kind::unknown.
  Kind one_kind(std::int64_t low, std::int64_t high) const;

  bool signs_only;  ///< simple, where nothing is forbidden: whoever has a class has it surely
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

/// What adds up to the sums over the last three axes, while the others stand still.
struct Tile {
  static constexpr int inner_axes = 3;
  static constexpr int scopes = 1 << inner_axes;

  const Cells* table[scopes] =
      {};  ///< by scope, as bits: 4 the first of the three axes, 2 the second, 1 the last; null: nothing
  const Cells* dense = nullptr;  ///< one more over all three
  int n_x = 1, n_y = 1;

  /// The bits of the scope whose places in a brick of n axes are set.
  static int scope(std::uint64_t places, int n) {
    const auto three =
        static_cast<unsigned>(n >= inner_axes ? places >> (n - inner_axes) : places << (inner_axes - n)) & 7u;
    return static_cast<int>((three >> 2) | (three & 2u) | ((three & 1u) << 2));
  }
};

/// visit.row(sums) for the sums of every row of a tile, eight a vector, added up in registers, and visit.end_line() after every
/// last group of the second axis. The visitor is handed on by value: what it holds stays in registers too.
template <int Vectors, class Visitor>
inline Visitor each_row(const Tile& tile, Visitor visitor) {
  const Cells* const(&t)[Tile::scopes] = tile.table;
  const Cells *const y_only = t[2], *const yz = t[3];
  const std::int64_t n_y = tile.n_y;
  for (std::int64_t x = 0; x < tile.n_x; ++x) {
    const Cells here = (t[0] ? t[0][0] : 0) + (t[4] ? t[4][x] : 0);
    Eight line[Vectors];
    for (int v = 0; v < Vectors; ++v) {
      line[v] = Eight{} + here;
      if (t[1]) line[v] += load(t[1] + 8 * v);
      if (t[5]) line[v] += load(t[5] + (x * Vectors + v) * 8);
    }
    const std::int64_t first = x * n_y;
    const Cells* xy = t[6] ? t[6] + first : nullptr;
    const Cells* xyz = t[7] ? t[7] + first * Vectors * 8 : nullptr;
    const Cells* dense = tile.dense ? tile.dense + first * Vectors * 8 : nullptr;
    const auto rows = [=]<bool Yz, bool Dense>(Visitor inner) {
      for (std::int64_t y = 0; y < n_y; ++y) {
        const Cells scalar = (xy ? xy[y] : 0) + (y_only ? y_only[y] : 0);
        Eight sums[Vectors];
        for (int v = 0; v < Vectors; ++v) {
          sums[v] = line[v] + scalar;
          if constexpr (Yz) sums[v] += load(yz + (y * Vectors + v) * 8);
          if constexpr (Dense) sums[v] += load(dense + (y * Vectors + v) * 8);
        }
        if (xyz)
          for (int v = 0; v < Vectors; ++v) sums[v] += load(xyz + (y * Vectors + v) * 8);
        inner.row(sums);
      }
      inner.end_line();
      return inner;
    };
    if (yz) {
      visitor = dense ? rows.template operator()<true, true>(visitor) : rows.template operator()<true, false>(visitor);
    } else {
      visitor = dense ? rows.template operator()<false, true>(visitor) : rows.template operator()<false, false>(visitor);
    }
  }
  return visitor;
}

/// The sums of a tile, row after row; the smallest and the largest.
Extent write_sums(const Tile& tile, int vectors, Cells* to);

/// to = from + the table, row by row, for rows of `vectors` times eight cells; the smallest and the largest sum.
Extent add_table(const Cells* from, const Cells* table, const Scope& scope, std::int64_t rows, int vectors, Cells* to);

}  // namespace boxqte
