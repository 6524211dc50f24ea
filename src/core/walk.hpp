// The walk over the fixed axes of a brick: every way to resolve its mixed trees is a shape, every way through its trees over fixed
// axes alone an offset.
//
// A mixed tree is rewritten as a decision tree over fixed axes whose leaves are tables over the others. The trees are walked one
// after the other; a table is added where its leaf is reached, so a shape costs one addition more than its parent.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "blocks.hpp"

namespace boxqte {

/// What a search did.
struct Counters {
  std::int64_t nodes = 0;  ///< boxes looked at, and tables added
  std::int64_t shapes = 0;
  std::int64_t tiles = 0;  ///< offsets measured
  std::int64_t work = 0;   ///< in words of bitmaps written and measured
};

class Walk {
 public:
  static constexpr std::int64_t node_work = 1024;  ///< the work of a node of the search

  struct Options {
    std::int64_t dense_cells = 1 << 18;  ///< keep sums over all cells of bricks up to this size
    std::int64_t table_cells = 1 << 16;  ///< beyond: tables over about so many cells
    int sum_bits = 29;                   ///< narrow sums; fewer only in tests
  };

  Walk(Nodes& nodes, const Limits& limits, const Options& options, Memory& memory, const std::atomic<bool>& halted,
       Counters& counters);

  /// Compact the node's axes. Whether the brick is small enough for sums over all of its cells.
  bool lay(const Node& node, Layouts& layouts);
  const Brick& brick() const { return brick_; }

  /// The masses of the node's box, after lay. Nothing that counts, if halted. Mixed trees only in small bricks.
  void measure(const Node& node, Masses& masses);

 private:
  /// What of the brick's axes a tree tests besides fixed ones; trees are branched at in this order.
  enum class Part : std::int8_t { sensitive, mixed, pure, none };
  struct Choice {
    std::int32_t cut = -1;  ///< -1 at a leaf
    std::int32_t yes = 0, no = 0;
    std::int32_t table = -1;  ///< of a leaf; -1 a constant
    Part part = Part::none;
    std::int64_t least = 0, most = 0;
    std::uint64_t residue = 0;  ///< of a constant
  };
  struct Leaf {
    TreeId tree;
    int scope;
    std::size_t at;
  };
  struct Bounds {
    std::int64_t least = 0, most = 0;
    Bounds& operator+=(const Bounds& other) {
      least += other.least;
      most += other.most;
      return *this;
    }
  };
  /// The sums of a shape.
  struct WalkShape final : Shape {
    const Walk* walk = nullptr;
    Margin exact_of(int combination, std::int64_t row, int cell) const override;
  };

  int scope_of(TreeId tree);
  std::int32_t plant(TreeId tree, Part part);
  int first_fixed_cut(TreeId tree);
  void lay_trees(const Node& node);
  void lay_sums();
  void keep_extremes();
  void go(std::size_t begin, std::size_t end, int axis);
  bool settles(const Bounds& total);
  void advance(std::size_t first);
  void branch(std::size_t first, int cut);
  int side_of(int cut) const;
  void apply(const Choice& choice);
  void take_back();
  void add_small(const Leaf& leaf, int sign);
  Tile tile(int copy, std::int64_t outer) const;
  void merge_offsets();
  void drop_settled(std::int64_t least, std::int64_t most);
  void measure_shape();
  void measure_offsets();
  void write_shape();
  template <class W>
  void measure_one(Bitmaps<W>& bitmaps, const Offset& offset);
  void measure_large();
  void add_fractions(const Fractions& found, double weight);
  double box_mass() const;
  /// Call act with the bitmaps of the word type that holds the brick's last axis.
  template <class Act>
  void with_bitmaps(Act act) {
    brick_.n_last <= 16 ? act(narrow_) : brick_.n_last <= 32 ? act(middle_) : act(wide_);
  }
  bool over_fixed(TreeId tree) const {
    return overlap(nodes_.trees().axes(tree), fixed_.data(), nodes_.trees().axis_words());
  }
  bool over_others(TreeId tree) const;
  bool over_sensitive(TreeId tree) const {
    return overlap(nodes_.trees().axes(tree), sensitive_.data(), nodes_.trees().axis_words());
  }

  Nodes& nodes_;
  const Limits& limits_;
  Options options_;
  const std::atomic<bool>& halted_;
  Counters& counters_;
  std::vector<Word> fixed_, sensitive_;  ///< axes by role
  Brick brick_;
  Scale scale_;
  TreeReader reader_;
  Memo memo_;
  Bitmaps<std::uint16_t> narrow_;
  Bitmaps<std::uint32_t> middle_;
  Bitmaps<std::uint64_t> wide_;
  Blocks blocks_;
  bool small_ = true;

  std::vector<TreeId> base_;  ///< trees over no fixed axis: part of every shape
  std::vector<Choice> choices_;
  std::vector<std::int32_t> pending_;  ///< where the trees stand that are not settled; a stack of lists
  std::vector<std::int32_t> settled_;  ///< leaves that trees have come to; a stack of lists
  std::vector<std::int32_t> applied_;  ///< leaves whose tables are in the sum
  Margin constant_;
  Bounds bounds_;  ///< of the tables' sum
  std::vector<Scope> scopes_;
  int n_scopes_ = 0;
  std::vector<Leaf> leaves_;
  Room<Cells> leaf_cells_, sums_, extremes_, shape_sums_, small_cells_;
  /// One table a scope over the last three axes, for every position of the outer ones: what the other mixed trees add.
  struct Small {
    Cells* cells = nullptr;
    std::int64_t size = 1;
    int trees = 0;  ///< that are in it now
  };
  Small small_tables_[Tile::scopes];
  std::vector<int> votes_;  ///< cut -> how many pending trees test it next; all 0 between uses
  int n_x_ = 1, n_y_ = 1;
  std::int64_t n_outer_ = 1;
  const Cells* dense_ = nullptr;  ///< the sums over all cells of the base trees and of those that test S
  int depth_ = 0;                 ///< how many of the latter
  std::vector<Bounds> dense_bounds_;
  int kept_ = 0;  ///< extremes kept instead of all combinations (Theorem 8b), 0 all
  std::vector<Word> domain_;
  std::vector<double> axis_mass_;
  std::vector<Word> kept_words_;  ///< what narrowed axes held before; a stack
  bool at_extremes_ = false;      ///< dense_ is the extremes over S
  bool listing_ = false;          ///< the shape is complete: list its offsets
  std::vector<Offset> offsets_;
  WalkShape shape_;
  Extent extent_{};  ///< of the shape's sums
  Masses* masses_ = nullptr;
};

}  // namespace boxqte
