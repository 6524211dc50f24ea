// Deciding a box by bounds on the margin of every class (docs/engine.md, Theorems 1 to 3).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "masses.hpp"
#include "node.hpp"

namespace boxqte {

struct Interval {
  std::int64_t low = 0, high = 0;

  void add(const Record& record) {
    low += record.least;
    high += record.most;
  }
};

class Decision {
 public:
  explicit Decision(const Problem& problem);

  /// Whether bounds settle the whole node.
  bool decide(const Node& node, const ResidualTrees& trees);
  /// The same from bounds on what each class, and on what all of them add to the margin; `members` as the node has them.
  bool decide(std::span<const Interval> margins, Interval common, std::span<const std::int32_t> members);
  /// Add the masses of a node that was just decided.
  void count(const Node& node, Masses& masses) const;

 private:
  bool decide_related(std::span<const Interval> margins, Interval common, std::span<const std::int32_t> members);
  bool decide_scores(int c, Interval own, Interval common);

  const Partners& partners_;
  const Thresholds& thresholds_;
  std::int64_t margin_;  ///< a sign counts as certain only beyond this: the library's rounding error plus ours
  std::vector<std::int64_t> low_, high_, low_end_, high_end_, ends_, work_;  ///< of partners
  std::vector<Interval> margins_;
  std::vector<Kind> verdict_;  ///< class -> verdict; only the first counts where signs are all that matters
};

}  // namespace boxqte
