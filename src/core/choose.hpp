// Which cut to split a box at: among the root cuts with the largest summed range, the one whose two children are cheapest.
#pragma once

#include <cstdint>
#include <vector>

#include "bounds.hpp"
#include "components.hpp"
#include "halt.hpp"
#include "node.hpp"

namespace boxqte {

class Chooser {
 public:
  static constexpr int nothing_to_split = -1;

  Chooser(Nodes& nodes, const Halt& halt);

  /// The cut, or nothing_to_split if no tree is left.
  int choose(const Node& node);

 private:
  /// The trees that do not test an axis are the same on both sides of its cuts: what they add to both children.
  struct Shared {
    explicit Shared(const Problem& problem, const ResidualTrees& trees);
    Parts parts;
    Interval common;
    std::vector<Interval> margins;  ///< class -> bounds
  };

  int find_candidates(const Node& node);
  void share(const Node& node, int axis);
  double child_cost(const Node& node, int cut, int side);
  double made_child_cost(const Node& node, int cut, int side);

  const Problem& problem_;
  Nodes& nodes_;
  const Halt& halt_;
  ResidualTrees& trees_;
  Decision decision_;
  Shared shared_, child_;
  std::vector<int> touched_common_, touched_rows_;  ///< the trees that do test the axis
  std::vector<TreeId> row_;
  std::vector<Word> row_axes_;
  Node spare_;
  std::vector<double> score_;  ///< cut -> summed range of the trees rooted there
  std::vector<std::int32_t> scored_, best_, order_;
};

}  // namespace boxqte
