// The parts of a box: components of its residual trees that share no axis.
//
// Part 0, the vector part, holds every component that touches a sensitive-dependent tree; every other one is a scalar.
// Scalars are summed into two lists A and B (docs/engine.md, Theorem 4).
#pragma once

#include <cstdint>
#include <vector>

#include "node.hpp"

namespace boxqte {

enum class Side : std::int8_t { vector, a, b };

/// The most cells that a box may be counted in: the limit, or less where the margins of all classes would take too much memory.
double countable_cells(const Problem& problem, double finish_limit);

/// How many groups of cells the active cuts tell apart on the axis; on a chain exactly, otherwise at most.
double cells_on(const Problem& problem, const Word* active, int axis, const Word* domain);

class Parts {
 public:
  Parts(const Problem& problem, const ResidualTrees& trees);

  /// Find the parts of the node; what finishing it costs: cells(A) + 4 cells(B) of the best greedy division.
  double find(const Node& node);

  /// The same step by step, in any order: clear, add all trees, then `cost`.
  void clear();
  void copy(const Parts& other);
  void add_row(TreeId tree);
  void add_common(TreeId tree);
  double cost(const Word* domain);

  int size() const { return n_; }
  const Word* axes(int k) const { return axes_.data() + static_cast<std::ptrdiff_t>(k) * axis_words_; }
  Side side(int k) const { return parts_[k].side; }
  double cells(int k) const { return parts_[k].cells; }
  /// The cuts that some tree tests. An axis belongs to one part, so its active cuts are that part's.
  const Word* active() const { return active_.data(); }
  bool holds(int axis) const { return has_bit(all_axes_.data(), axis); }
  std::size_t bytes() const {
    return (axes_.capacity() + active_.capacity()) * sizeof(Word) + parts_.capacity() * sizeof(Part);
  }

 private:
  struct Part {
    double cells = 1.0;
    Side side = Side::vector;
  };

  Word* part(int k) { return axes_.data() + static_cast<std::ptrdiff_t>(k) * axis_words_; }
  void join(int first, const Word* axes, Word* target);

  const Problem* problem_;
  const ResidualTrees* trees_;
  int axis_words_, cut_words_;
  int n_ = 0;
  std::vector<Word> axes_;  ///< part x word
  std::vector<Word> all_axes_;
  std::vector<Word> active_;
  std::vector<Part> parts_;
};

}  // namespace boxqte
