// Finishing a box in value space: where trees no longer interact, count sums of independent values instead of cells.
//
// The vector part becomes a grid of margins, every scalar part a list of (value, mass). The scalars are summed into two lists
// A and B; for a vector cell and an entry of A, the share of B that makes the box unfair is a difference of two entries of
// B's distribution function (docs/engine.md, Theorem 4).
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "bounds.hpp"
#include "components.hpp"
#include "masses.hpp"
#include "part_grid.hpp"
#include "sheets.hpp"
#include "values.hpp"

namespace boxqte {

class Finisher {
 public:
  Finisher(const Problem& problem, const ResidualTrees& trees, std::size_t memory);

  /// Settle the whole box by counting; false (and nothing counted) if 64 bits cannot place some margin exactly.
  /// `parts` must be those of the node. If it is halted, Halted is thrown, and all lists have to be forgotten.
  bool finish(const Node& node, const Parts& parts, Masses& masses, const Halt& halt);

  /// To be called between boxes: forget the lists if they take more memory than they may.
  void tidy() {
    if (cache_.bytes() > memory_) cache_.clear();
  }
  void forget() { cache_.clear(); }
  std::size_t bytes() const { return cache_.held() + grid_.bytes() + (least_.capacity() + most_.capacity()) * 16; }

 private:
  /// What counting adds up; near: mass within the library's rounding of a threshold; fuzzy: 64 bits cannot place a margin.
  struct Count {
    Sum unfair, low;
    double near = 0.0;
    bool fuzzy = false;
  };

  /// What all classes may add so that a margin is too far from another one: surely, or maybe; narrow and wide: the same with
  /// the library's rounding.
  struct Reach {
    MarginRange sure, maybe, narrow, wide;
  };
  struct Reaches {
    std::int64_t d = 0;            ///< between the two margins
    std::array<Reach, 2> of = {};  ///< from one below, and from one above
  };

  Values& list(const Node& node, const Parts& parts, Side side);
  Values& part_list(const Node& node, const Parts& parts, int k);
  void begin_key(const Node& node, const Parts& parts, Side side, int only);
  std::span<const TreeId> trees_of_part(const Node& node, const Word* axes);

  void lay_out_vector(const Node& node, const Parts& parts);
  void row_extremes(const Node& node);
  void open_cells(const Node& node, const Parts& parts, const Values& a, const Values& b, std::int64_t reach,
                  bool every);
  void row_sums(const Node& node);
  void vector_margins(const Node& node, const Parts& parts);
  template <class Visit>
  void each_class(const Node& node, Visit visit);
  Count count_cheaply(Values& a, Values& b);
  Count count_signs(const Values& a, const Values& b);
  Count compare_cells(const Values& a, const Values& b);
  Count compare_entries(const Values& a, const Values& b);
  Count count_confident(const Node& node, const Values& a, const Values& b);
  Count count_related(const Node& node, const Values& a, const Values& b);
  Count count_scores(const Node& node, const Parts& parts, Values& a, Values& b);
  const Reaches& reaches_of(std::int64_t d);
  void row_reaches(const Node& node);
  Count count_apart(const Node& node, const Values& a, const Values& b) const;
  Count count_ranges(const Node& node, const Values& a, const Values& b);
  double outside(const Node& node, const Parts& parts) const;

  const Problem& problem_;
  const ResidualTrees& trees_;
  PartGrid grid_;
  ListCache cache_;
  std::size_t memory_;
  ListCache::Key key_, joint_key_;
  std::vector<const Values*> lists_;
  Values::Workspace work_;
  std::vector<TreeId> chosen_;
  Layout layout_, rows_;
  std::vector<Sheets> own_;  ///< class -> its rows; behind the first, what sets them apart from the class before
  std::vector<std::int64_t> constant_;
  Sheets common_, least_sheet_, most_sheet_;
  std::vector<std::int64_t> tile_sum_, row_sum_;
  std::vector<double> outer_mass_, tile_mass_;

  int n_cells_ = 0;  ///< cells of the vector part that are still to be counted
  std::vector<double> cell_mass_;
  std::vector<std::int64_t> least_, most_;          ///< cell -> smallest and largest margin over the classes
  Interval extremes_;                               ///< the smallest and the largest of all these
  std::vector<std::int64_t> row_least_, row_most_;  ///< the same of the rows alone, over their own axes
  std::vector<std::vector<std::int64_t>> margins_;  ///< class x cell, where every class counts on its own
  std::vector<std::int64_t> partner_low_, partner_high_, partner_work_;  ///< class x cell: extremes of its partners
  std::vector<std::array<Reach, 2>> reaches_;  ///< class x cell of the rows: from its smallest, and its largest partner
  std::vector<Reaches> known_;
  std::vector<MarginRange> hulls_;    ///< cell of the rows: around all of them
  std::vector<std::int64_t> row_of_;  ///< cell -> cell of the rows
  std::vector<std::int64_t> values_;
};

}  // namespace boxqte
