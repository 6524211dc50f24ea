#include "problem.hpp"

#include <string>

namespace boxqte {

namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(std::string("problem: ") + what);
}

template <class Numbers>
void require_within(const Numbers& numbers, std::int64_t low, std::int64_t high, const char* what) {
  for (const auto number : numbers) require(number >= low && number < high, what);
}

}  // namespace

void Problem::check() const {
  const int n_axes = axes.size(), n_cuts = cuts.size();
  const auto n_nodes = static_cast<std::int64_t>(trees.cut.size());
  require(n_axes < 1 << 15 && n_cuts < 1 << 30, "too many axes or cuts");
  require(axes.longest <= cuts.words * word_bits, "words are too few for the cells");
  require_within(axes.n_cells, 1, std::int64_t{axes.longest} + 1, "cells of an axis");
  require(axes.chain.size() == axes.n_cells.size() && axes.role.size() == axes.n_cells.size(), "axes");
  require(axes.mass.size() == static_cast<std::size_t>(n_axes) * axes.longest, "masses");
  require(axes.single.size() == axes.mass.size(), "single cells");
  require(axes.n_refined.size() == axes.n_cells.size(), "refined cells");
  require_within(axes.n_refined, 1, std::int64_t{axes.most_refined} + 1, "refined cells of an axis");
  const std::size_t refined = static_cast<std::size_t>(n_axes) * axes.most_refined;
  require(axes.base.size() == refined && axes.near_lo.size() == refined && axes.near_hi.size() == refined &&
              axes.refined_mass.size() == refined,
          "refined cells");
  for (int a = 0; a < n_axes; ++a)
    for (int r = 0; r < axes.n_refined[a]; ++r) {
      const std::size_t at = axes.refined_at(a, r);
      require(0 <= axes.near_lo[at] && axes.near_lo[at] <= axes.base[at] && axes.base[at] <= axes.near_hi[at] &&
                  axes.near_hi[at] < axes.n_cells[a],
              "reach of a refined cell");
    }
  require(
      cuts.start.size() == static_cast<std::size_t>(n_axes) + 1 && cuts.start[0] == 0 && cuts.start[n_axes] == n_cuts,
      "first cuts");
  require_within(cuts.axis, 0, n_axes, "axis of a cut");
  for (int k = 0; k < n_cuts; ++k)
    require(cuts.start[cuts.axis[k]] <= k && k < cuts.start[cuts.axis[k] + 1], "cuts are not sorted by axis");
  require(cuts.prefix.size() == cuts.axis.size() && cuts.implied_at.size() == cuts.axis.size(), "cuts");
  require(cuts.mask.size() == cuts.axis.size() * static_cast<std::size_t>(cuts.words), "masks");
  for (int k = 0; k < n_cuts; ++k) {
    const std::int64_t width = cuts.start[cuts.axis[k] + 1] - cuts.start[cuts.axis[k]];
    require(cuts.implied_at[k] >= 0 && cuts.implied_at[k] + 2 * width <= static_cast<std::int64_t>(cuts.implied.size()),
            "implied cuts");
  }
  require(trees.yes.size() == trees.cut.size() && trees.no.size() == trees.cut.size() &&
              trees.value.size() == trees.cut.size() && trees.residue.size() == trees.cut.size(),
          "trees");
  require_within(trees.root, 0, n_nodes, "root of a tree");
  for (std::int64_t i = 0; i < n_nodes; ++i)
    require(trees.cut[i] < 0 || (trees.cut[i] < n_cuts && i < trees.yes[i] && trees.yes[i] < n_nodes &&
                                 i < trees.no[i] && trees.no[i] < n_nodes),
            "a node's children must come after it");
  require_within(combinations.axes, 0, n_axes, "sensitive axis");
  require(combinations.cells.size() == combinations.mass.size() * combinations.axes.size(), "combinations");
  for (std::size_t i = 0; i < combinations.cells.size(); ++i)
    require(0 <= combinations.cells[i] &&
                combinations.cells[i] < axes.n_cells[combinations.axes[i % combinations.axes.size()]],
            "cell of a combination");
  if (rules.size() > 0) {
    const auto n_rules = static_cast<std::size_t>(rules.size());
    require(rules.start[0] == 0 && rules.start[n_rules] == static_cast<std::int32_t>(rules.axis.size()), "rules");
    for (std::size_t i = 0; i < n_rules; ++i) require(rules.start[i] <= rules.start[i + 1], "parts of a rule");
    require_within(rules.axis, 0, n_axes, "axis of a rule");
    for (const std::int32_t axis : rules.axis) require(axes.role[axis] == Role::fixed, "axis of a rule");
    require(rules.mask.size() == rules.axis.size() * static_cast<std::size_t>(cuts.words), "cells of a rule");
    require(rules.bans.size() == n_rules * combinations.mass.size(), "combinations of a rule");
  }
  if (!partners.asked()) return;
  const std::int64_t places = partners.places();
  require(partners.place.size() == combinations.mass.size() && thresholds.counted == 0, "partners");
  require_within(partners.place, 0, places, "place of a combination");
  require(partners.ordered_places >= 0 && partners.ordered_places <= places &&
              (partners.order == 0 || static_cast<std::int64_t>(partners.place.size()) == places),
          "order of places");
  for (const auto* ends : {&partners.low_first, &partners.low_last, &partners.high_first, &partners.high_last}) {
    require(static_cast<std::int64_t>(ends->size()) == places, "ranges of partners");
    require_within(*ends, -1, places + 1, "range of partners");
  }
  for (const auto* last : {&partners.low_last, &partners.high_last})
    require_within(*last, -1, places, "range of partners");
  for (const auto* first : {&partners.low_first, &partners.high_first})
    require_within(*first, 0, places + 1, "range of partners");
}

}  // namespace boxqte
