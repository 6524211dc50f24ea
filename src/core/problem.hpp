// The question as arrays: axes, cuts, trees and thresholds. Made once, read-only afterwards, shared by all workers.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "bits.hpp"
#include "partners.hpp"

namespace boxqte {

/// Raised when a worker would need more memory than it may have.
struct MemoryLimit : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Role : std::int8_t {
  fixed = 0,      ///< O: x and x' agree
  moving = 1,     ///< E: x' may be in another cell, within epsilon
  sensitive = 2,  ///< S: x' may be anywhere
};

/// The cuts, sorted by axis.
struct Cuts {
  std::vector<std::int32_t> axis;        ///< cut -> axis
  std::vector<std::int32_t> start;       ///< axis -> its first cut; one more entry at the end
  std::vector<std::int32_t> prefix;      ///< cut -> how many cells it sends to yes (on a chain: the first so many)
  std::vector<Word> mask;                ///< cut x word: the cells it sends to yes
  std::vector<std::int64_t> implied_at;  ///< cut -> where its two rows in `implied` begin
  std::vector<std::int8_t> implied;      ///< [side][other cut of the axis]: 1 the other says yes, 0 no, -1 it is open
  int words = 1;                         ///< words of a set of cells

  int size() const { return static_cast<int>(axis.size()); }
  const Word* mask_of(int cut) const { return mask.data() + static_cast<std::ptrdiff_t>(cut) * words; }
  bool sends_to_yes(int cut, int cell) const { return has_bit(mask_of(cut), cell); }
  /// What taking `cut` to `side` says about `other`, a cut of the same axis.
  int implies(int cut, int side, int other) const {
    const std::int32_t first = start[axis[cut]], width = start[axis[cut] + 1] - first;
    return implied[implied_at[cut] + side * width + (other - first)];
  }
};

/// The axes that some tree cuts.
struct Axes {
  std::vector<std::int32_t> n_cells;
  std::vector<std::uint8_t> chain;  ///< every cut is a prefix of the axis' cells: one restriction settles all others
  std::vector<Role> role;
  int longest = 1;                      ///< cells of the longest axis
  std::vector<double> mass;             ///< axis x cell
  std::vector<std::uint8_t> single;     ///< axis x cell: whether the cell is one point
  std::vector<std::int32_t> n_refined;  ///< refined cells: what x may be in (semantics.md, 'cells')
  int most_refined = 1;
  std::vector<std::int32_t> base, near_lo,
      near_hi;                       ///< axis x refined cell: own base cell, range of base cells in reach
  std::vector<double> refined_mass;  ///< axis x refined cell

  int size() const { return static_cast<int>(n_cells.size()); }
  const double* mass_of(int axis) const { return mass.data() + static_cast<std::ptrdiff_t>(axis) * longest; }
  bool is_single(int axis, int cell) const { return single[static_cast<std::size_t>(axis) * longest + cell] != 0; }
  std::size_t refined_at(int axis, int r) const { return static_cast<std::size_t>(axis) * most_refined + r; }
};

/// The trees as flat arrays; children come after their parents.
struct Trees {
  std::vector<std::int32_t> root;
  std::vector<std::int32_t> cut, yes, no;  ///< node -> its cut, -1 at a leaf
  std::vector<std::int64_t> value;         ///< leaf values, rounded to 64 bits where they do not fit
  std::vector<std::uint64_t> residue;      ///< the exact leaf values modulo 2**64 (see `merges`)
  std::int64_t base = 0;
  std::uint64_t base_residue = 0;
};

/// Class and confidence as integer comparisons: class 1 iff F >= pos, class 0 iff F <= neg, confident beyond conf_*.
struct Thresholds {
  std::int64_t pos = 0, neg = 0, conf_pos = 0, conf_neg = 0;
  std::uint64_t pos_residue = 0, neg_residue = 0, conf_pos_residue = 0, conf_neg_residue = 0;  ///< exact, modulo 2**64
  bool simple = true;         ///< kappa <= 1/2 and every input has a class: signs are all that matters, of x and of x'
  bool all_confident = true;  ///< the same of x alone
  std::int64_t band = 0;      ///< the library's rounding error
  std::int64_t fuzz = 0;      ///< our own, where values were rounded to fit 64 bits; 0 almost always
  /// With a tolerance, what rules forbid has margins from here on, beyond all others: it has no class (Theorem 14).
  bool capped = false;
  std::int64_t cap = 0;
  std::uint64_t cap_residue = 0;
  int counted = 0;  ///< 1: only x of class 1 count as unfair, -1: only x of class 0; x is in combination 0 then
};

/// A combination of sensitive cells: one cell for every sensitive axis.
struct Combinations {
  std::vector<std::int32_t> axes;   ///< the sensitive axes
  std::vector<std::int32_t> cells;  ///< combination x sensitive axis
  std::vector<double> mass;

  int size() const { return static_cast<int>(mass.size()); }
};

/// What is forbidden (epsilon = 0): on a box inside all the cells of a rule, its combinations are nobody's (Theorem 14).
struct Rules {
  std::vector<std::int32_t> start;  ///< rule -> its first part; one more entry at the end, none at all without rules
  std::vector<std::int32_t> axis;   ///< part -> a fixed axis
  std::vector<Word> mask;           ///< part x word: cells of that axis
  std::vector<std::uint8_t> bans;   ///< rule x combination

  int size() const { return start.empty() ? 0 : static_cast<int>(start.size()) - 1; }
};

struct Problem {
  Cuts cuts;
  Axes axes;
  Trees trees;
  Thresholds thresholds;
  Combinations combinations;  ///< empty where some axis moves: there S stays an axis
  Partners partners;
  Rules rules;
  bool merges = true;  ///< equal values and equal residues prove that two exact sums are equal
  bool points_matter =
      false;  ///< x' may be forced out of x's own combination: no idle sensitive attribute offers a value

  /// Throws std::invalid_argument unless all arrays fit each other: nothing behind this line checks an index again.
  void check() const;
};

}  // namespace boxqte
