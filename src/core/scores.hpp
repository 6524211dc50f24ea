// When two scores are too far apart, as a range of margins (docs/engine.md, Theorem 12).
//
// A margin v and another one, d below it (or above: then the signs of all margins change). On the scale of margins v has no say: they are too far apart iff d reaches a gap. On the
// scale of probabilities s(v) - s(v - d) > change holds on one interval around d / 2: with h = d / 2 it is
// sinh h / (cosh(v - h) + cosh h) > change, so |v - h| < r(h) with sinh(r / 2)^2 = cosh(h / 2)^2 (tanh(h / 2) / change - 1).
#pragma once

#include <cstdint>

namespace boxqte {

/// The margins from first to last; none if last < first.
struct MarginRange {
  static constexpr std::int64_t end = std::int64_t{1} << 61;

  std::int64_t first = 0, last = -1;

  static MarginRange all() { return {-end, end}; }
  bool empty() const { return last < first; }
  bool holds(std::int64_t low, std::int64_t high) const { return first <= low && high <= last; }
  bool meets(std::int64_t low, std::int64_t high) const { return first <= high && low <= last && !empty(); }
};

struct Scores {
  std::int64_t gap = 0;  ///< above 0: margins are compared, this many units are too far
  double change_below = 0,
         change_above = 0;  ///< above 0: probabilities; two floats with the change that is accepted between
  double unit = 1;          ///< units of a margin of 1
  double rest = 0;          ///< a margin of v units is (v + rest) / unit

  bool asked() const { return gap > 0 || probabilities(); }
  bool probabilities() const { return change_above > 0; }

  /// The margins v that are too far from one that is d below (or above) them, if both are exact but for `slack`: those that
  /// surely are, or all that may be. What floats may get wrong is on the same side.
  MarginRange too_far(std::int64_t d, bool above, std::int64_t slack, bool surely) const;
};

}  // namespace boxqte
