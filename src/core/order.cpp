#include "order.hpp"

#include <algorithm>

namespace boxqte {

namespace {

constexpr std::size_t most_known = std::size_t{1} << 21;

}  // namespace

std::int64_t Order::least_gain(TreeId upper, TreeId lower) {
  if (upper == lower) return 0;
  const Record& a = trees_[upper];
  const Record& b = trees_[lower];
  if (a.is_leaf() || b.is_leaf()) return a.least - b.most;
  const std::uint64_t key = (std::uint64_t{upper} << 32) | lower;
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  const int cut = a.cut;  // trees are made below: the records move
  std::int64_t least = 0;
  for (const int side : {0, 1}) {
    const TreeId one = trees_.restrict(upper, cut, side), two = trees_.restrict(lower, cut, side);
    const std::int64_t gain = least_gain(one, two);
    least = side == 0 ? gain : std::min(least, gain);
  }
  if (known_.size() < most_known) known_.emplace(key, least);
  return least;
}

bool Order::holds(const Node& node, const Partners& partners, const Halt& halt) {
  int n = 0;  // classes with a place in the order; what rules forbid is not among them
  while (n < node.n_classes && partners.place[node.members.empty() ? n : node.members[n]] < partners.ordered_places)
    ++n;
  for (int c = 0; c + 1 < n; ++c) {
    halt.check();
    const int above = partners.order > 0 ? c + 1 : c, below = partners.order > 0 ? c : c + 1;
    std::int64_t gain = node.offset[above] - node.offset[below];
    for (int r = 0; r < node.n_rows; ++r) gain += least_gain(node.row(r)[above], node.row(r)[below]);
    if (gain < 0) return false;
  }
  return true;
}

}  // namespace boxqte
