// Whether margins only grow along an axis, tree by tree (docs/engine.md, Theorem 13).
//
// Libraries that keep a monotone constraint keep it in every tree, so that the sum need not be searched at all.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "halt.hpp"
#include "node.hpp"

namespace boxqte {

class Order {
 public:
  explicit Order(ResidualTrees& trees) : trees_(trees) {}

  /// Whether it is certain that the margin of every place is at least that of the place before it (Partners::order = 1), or
  /// at most (-1), at every point of the node. Margins that were rounded to fit 64 bits are not certain.
  bool holds(const Node& node, const Partners& partners, const Halt& halt);

 private:
  /// The least of upper - lower over all points.
  std::int64_t least_gain(TreeId upper, TreeId lower);

  ResidualTrees& trees_;
  std::unordered_map<std::uint64_t, std::int64_t> known_;  ///< pairs of trees
};

}  // namespace boxqte
