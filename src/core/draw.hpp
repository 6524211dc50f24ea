// Drawing counterexamples from boxes that were counted in value space (epsilon = 0), uniformly and without rejection.
//
// The same lists as in finish.hpp, read backwards: first an entry of A and a cell of the vector part, by the counterexample
// mass behind them; then an entry of B inside the interval that makes them one; then the cells that add up to the entries.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "components.hpp"
#include "node.hpp"
#include "part_grid.hpp"

namespace boxqte {

class Drawer {
 public:
  /// Whether a box holds a counterexample, by ranks, not by masses: a mass may be lost in rounding, a rank cannot.
  enum class Found : std::int8_t { none = 0, some = 1, unsure = 2 };

  Drawer(const Problem& problem, double finish_limit);

  /// Throws std::invalid_argument unless boxes of this shape are boxes of this problem.
  void check_boxes(std::size_t n_axes, std::size_t words) const;

  /// `count` counterexamples of the box into the given rows: the cells of x (row x axis), and the combinations of x and of x'
  /// (row x 2; -1 if rounded values cannot tell: an x' has still to be looked for). False if the box cannot be counted at once.
  bool draw(const Word* box, std::span<const std::int64_t> rows, std::int32_t* cells, std::int32_t* combinations);

  Found exists(const Word* box);

  void seed(std::uint64_t state) { random_ = state; }

 private:
  /// A list of sums, entry by entry as its parts' cells go by: an entry's number spells out the cells behind it.
  struct Sums {
    std::vector<std::int64_t> value;
    std::vector<double> mass;
  };
  /// Ranks of B: behind `first`, up to `last`. Or places of partners, both ends included.
  struct Interval {
    int first = 0, last = 0;
    int size() const { return empty() ? 0 : last - first; }
    bool empty() const { return last <= first; }
  };
  using Intervals = std::array<Interval, 6>;  ///< without a common entry; some may be empty

  bool prepare(const Word* box);
  void list_cells(int axis, bool grouped);
  void list_sums(Side side, Sums& out);
  void sort_b();
  void margins();
  int rank(std::int64_t limit) const;
  double mass_of(Interval ranks) const { return ranks.empty() ? 0.0 : prefix_[ranks.last] - prefix_[ranks.first]; }
  bool close_to_some(std::int64_t limit) const;
  /// Whether classes alone decide, and everybody is a partner.
  bool by_signs() const { return problem_.thresholds.simple && !problem_.partners.asked(); }
  std::int64_t least_seen(int cell, int c) const;
  std::int64_t most_seen(int cell, int c) const;
  bool unsure(std::int64_t a, int cell, int c) const;
  Interval signs(std::int64_t a, int cell) const;
  Interval far_ranks(std::int64_t a, int cell, int c, bool above, bool surely) const;
  Intervals score_intervals(std::int64_t a, int cell, int c) const;
  Intervals intervals(std::int64_t a, int cell, int c) const;
  double weigh();
  void draw_one(double total, std::int32_t* cells, std::int32_t* combination);
  int pick_combination(int cell, std::int64_t add, std::int64_t least, std::int64_t most, int only,
                       Interval places = {-1, -1});
  int pick_partner(int cell, std::int64_t add, int own);
  int pick_cell(int axis, int group);
  void spell_out(Side side, std::int64_t entry, std::int32_t* cells);
  double uniform();

  const Problem& problem_;
  double finish_limit_;
  Nodes nodes_;
  Parts parts_;
  PartGrid grid_;
  Node node_;
  std::uint64_t random_ = 0;

  std::vector<std::int32_t> member_;  ///< combination -> its class in the box, -1 if it is forbidden there
  std::vector<Layout> layouts_;       ///< part -> its grid
  Layout rows_;
  Sums a_, b_;
  std::vector<std::int32_t> b_entry_;                                    ///< rank in B -> entry
  std::vector<std::int64_t> b_key_;                                      ///< B's values in order
  std::vector<double> prefix_;                                           ///< rank -> mass of B below
  std::vector<double> cell_mass_;                                        ///< cell of the vector part
  std::vector<std::vector<std::int64_t>> margins_;                       ///< class x cell
  std::vector<std::int64_t> least_, most_;                               ///< cell -> over the classes
  std::vector<std::int64_t> partner_low_, partner_high_, partner_work_;  ///< class x cell: extremes of its partners
  std::vector<double> behind_;             ///< running sums of the counterexample mass over (entry of A, cell)
  std::vector<std::int32_t> cell_;         ///< axis x position: the box's cells, group by group
  std::vector<std::int32_t> group_start_;  ///< axis x group: where its cells begin; one more entry at the end
  std::vector<TreeId> chosen_;
  std::vector<std::int64_t> values_;
  std::vector<double> masses_;
  std::vector<std::int64_t> own_;
};

}  // namespace boxqte
