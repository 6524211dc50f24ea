// Certain bounds inside a box that is too large to finish (docs/engine.md, Theorem 10).
//
// The margin of every class is enclosed between two sums of a function on one coarse grid and a function on another, which share
// no axis. The sums are counted in value space as in Theorem 4, once with the ends that make the box unfair most often and once
// with those that make it so least often.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bounds.hpp"
#include "halves.hpp"
#include "masses.hpp"
#include "node.hpp"

namespace boxqte {

/// An upper and a lower bound of a distribution function, without an order: values are counted into buckets of equal width, and
/// the bucket of a limit counts with all of its mass, or with none.
class Distribution {
 public:
  void assign(const std::int64_t* value, const double* mass, int n);

  /// At least, and at most, the mass of the values up to the limit.
  double at_least(std::int64_t limit) const { return below_[place(limit)]; }
  double at_most(std::int64_t limit) const { return below_[place(limit) + 1]; }
  double all() const { return below_[top_ + 2]; }
  std::int64_t least() const { return least_; }
  std::int64_t most() const { return most_; }

 private:
  /// Bucket 0 is all below the least value, the last one all from the most value on.
  std::int64_t place(std::int64_t limit) const {
    return limit < least_ ? 0 : limit >= most_ ? top_ + 2 : ((limit - least_) >> shift_) + 1;
  }

  std::int64_t least_ = 0, most_ = 0, top_ = 0;
  int shift_ = 0;
  std::vector<double> below_;  ///< bucket -> the mass of those before it
};

/// What is certain about the masses of a box that stays open: lower bounds.
struct Proved {
  double fair = 0.0, unfair = 0.0, low = 0.0;
};

class Encloser {
 public:
  Encloser(const Problem& problem, std::size_t memory);

  /// Throws std::invalid_argument unless the boxes are of this problem.
  void check_boxes(std::size_t n_axes, std::size_t words) const;

  /// Lower bounds of the masses of the box, from grids of at most about so many cells.
  Proved enclose(const Word* box, double cells);

  std::size_t bytes() const;

 private:
  /// A tree's part in a half: for every cell of some of its axes the smallest and the largest that the tree adds.
  struct Piece {
    std::size_t at;  ///< in pool_: the table of smallest values, behind it that of the largest
    int cells;
    Word axes;  ///< places in the half
    int last;   ///< the last of them, -1 if there is none
  };
  /// Axes by their places in each half.
  using Scope = std::array<Word, 2>;
  /// Common trees with axes in both halves, whose sum is divided between these.
  struct Bucket {
    std::vector<TreeId> trees;
    Scope scope;
    std::int64_t cells;
  };
  /// A row's piece by the tree it is of.
  struct RowPiece {
    TreeId tree;
    Piece piece;
  };
  /// low and high, cell by cell.
  struct Enclosed {
    std::vector<std::int64_t> low, high;
    void resize(std::size_t n) {
      low.resize(n);
      high.resize(n);
    }
  };

  void fill(TreeId tree);
  void fill_block(std::int64_t value);
  Scope scope_of(TreeId tree) const;
  std::int64_t cells_of(const Scope& scope) const;
  void lay_out(const Scope& scope);
  void fill_anew(TreeId tree);
  void put_into_bucket(TreeId tree, const Scope& scope);
  Piece add_piece(int half, std::span<const std::int64_t> low, std::span<const std::int64_t> high);
  void enclose_common();
  void divide();
  Piece row_piece(TreeId tree);
  void grow(int half, Enclosed& out);
  void enclose_rows();
  void add_spread(const Piece& piece, const int* size, int first, int n, std::int64_t sign, Enclosed& out);
  void cell_masses(int half, std::vector<double>& out) const;
  void count_signs(Proved& found);
  void count_confident(Proved& found);

  const Problem& problem_;
  std::size_t memory_;
  struct Trees {
    explicit Trees(const Problem& problem) : nodes(problem), halves(problem, nodes.trees()), node(nodes.room()) {}
    Nodes nodes;
    Halves halves;
    Node node;
  };
  std::unique_ptr<Trees> trees_;  ///< rebuilt when the residual trees take too much memory

  // One tree on the grid of its own axes, those in the vector half outermost.
  struct Own {
    int axis, size;
    std::ptrdiff_t stride;
  };
  std::vector<Own> own_;
  std::vector<Word> mask_;          ///< axis -> the groups that a leaf may be reached from
  std::array<int, 2> own_cells_{};  ///< of the grid, in each half
  Scope own_axes_{};
  std::vector<std::int64_t> tree_low_, tree_high_, sum_low_, sum_high_, part_low_, part_high_;
  std::array<std::vector<std::int64_t>, 2> spare_;

  std::vector<Bucket> buckets_;  ///< the first n_buckets_; the others are kept for their memory
  int n_buckets_ = 0;
  std::vector<std::int64_t> pool_;
  std::array<std::vector<Piece>, 2> pieces_;
  std::vector<RowPiece> row_pieces_;
  Interval loose_;  ///< what trees whose own grid is too large add

  std::array<Enclosed, 2> sums_;   ///< half -> the common trees on it
  Enclosed rows_, least_, most_;   ///< on the rows' axes: a class, the smallest and the largest over the classes
  std::vector<Enclosed> classes_;  ///< where every class counts on its own
  std::array<std::vector<double>, 2> mass_;
  Distribution low_, high_;  ///< of the scalar half's two sums
};

}  // namespace boxqte
