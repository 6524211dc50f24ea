// Two coarse grids that share no axis, chosen so that their sum is close to the margin on a box (docs/engine.md, Theorem 10).
//
// A box that cannot be finished has too many cells, and its trees tie all axes together. Some cuts are kept, the others are
// forgotten, and every axis with a kept cut belongs to one of the two halves.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "node.hpp"

namespace boxqte {

/// One of the two grids: its axes, outermost first, and how many groups of cells each has.
struct Half {
  std::vector<int> axis, size;
  int cells = 1;
};

class Halves {
 public:
  /// The vector half comes first: the sensitive-dependent trees should lie in it.
  static constexpr int vector = 0, scalar = 1;

  Halves(const Problem& problem, const ResidualTrees& trees);

  /// Choose kept cuts and halves of at most about so many cells for the node.
  void choose(const Node& node, double cells);

  const Half& half(int h) const { return halves_[h]; }
  /// The vector half's last axes, this many, are those that rows test.
  int row_axes() const { return row_axes_; }
  /// Which half the axis belongs to; -1 if it is in neither.
  int half_of(int axis) const { return half_of_[axis]; }
  int groups(int axis) const { return n_groups_[axis]; }
  double group_mass(int axis, int g) const { return group_mass_[static_cast<std::size_t>(axis) * word_bits + g]; }
  /// The groups of the axis in which some cell goes to the side of the cut.
  Word can(int cut, int side) const { return can_[2 * static_cast<std::size_t>(cut) + side]; }

 private:
  /// A tree, or the different trees of a row: the axes it ties together and how much its value varies.
  struct Tie {
    Word axes;  ///< by their place in axes_
    double spread;
    bool row;
  };
  /// An axis that some tree tests, its cuts by influence, the largest first.
  struct Candidate {
    int axis;
    std::vector<std::pair<double, int>> cuts;
    double influence;
    bool row;
    int kept;
  };

  void weigh(const Node& node);
  void weigh_tree(TreeId tree, double weight);
  double cost(Word in_vector);
  double keep_cuts(Word axes);
  void group(const Node& node, const Candidate& candidate);

  const Problem& problem_;
  const ResidualTrees& trees_;
  double cells_ = 0.0;
  std::vector<double> influence_;  ///< cut -> what its trees' values vary by
  std::vector<int> weighed_;       ///< the cuts with an influence
  std::vector<Candidate> axes_;
  int n_axes_ = 0;
  std::vector<int> place_;  ///< axis -> place in axes_
  std::vector<Tie> ties_;

  std::array<Half, 2> halves_;
  int row_axes_ = 0;
  std::vector<int> half_of_, n_groups_;
  std::vector<double> group_mass_;
  std::vector<Word> can_;
  std::vector<Word> signature_;
};

}  // namespace boxqte
