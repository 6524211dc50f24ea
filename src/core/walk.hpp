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
    std::int64_t dense_cells = 1 << 14;  ///< keep sums over all cells of bricks up to this size
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
  struct Choice {
    std::int32_t cut = -1;  ///< -1 at a leaf
    std::int32_t yes = 0, no = 0;
    std::int32_t table = -1;  ///< of a leaf; -1 a constant
    Margin value;
  };
  struct Leaf {
    TreeId tree;
    int scope;
    std::size_t at;
    std::int64_t least, most;
  };
  /// The walk before a tree: the sum of the tables so far, and its smallest and largest cell.
  struct Stage {
    Cells* sums = nullptr;
    std::int64_t least = 0, most = 0;
    Margin constant;
    TreeId tree = 0;  ///< the table that was added last
  };
  /// The sums of the stage where a shape is complete.
  struct WalkShape final : Shape {
    const Walk* walk = nullptr;
    Margin exact_of(int combination, std::int64_t row, int cell) const override;
  };

  int scope_of(TreeId tree);
  std::int32_t plant(TreeId tree);
  int first_fixed_cut(TreeId tree);
  void lay_trees(const Node& node);
  void lay_sums(const Node& node);
  void keep_extremes();
  void descend(int t, std::int32_t choice);
  void leaf(int t, const Choice& choice);
  void next(int t);
  void add(int t, const Leaf& leaf);
  void tidy_offsets();
  void measure_shape();
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
  Ranks ranks_;
  Blocks blocks_;
  bool small_ = true;

  std::vector<TreeId> base_;  ///< trees over no fixed axis: part of every shape
  std::vector<Choice> choices_;
  std::vector<std::int32_t> roots_;
  int n_trees_ = 0, n_mixed_ = 0, n_sensitive_ = 0;   ///< trees: the sensitive ones first, then the other mixed ones
  std::vector<std::int64_t> rest_least_, rest_most_;  ///< tree -> bounds of the sum of this and all later trees
  std::vector<Scope> scopes_;
  int n_scopes_ = 0;
  std::vector<Leaf> leaves_;
  Room<Cells> leaf_cells_, sums_, extremes_;
  std::vector<Stage> stages_;
  int kept_ = 0;  ///< extremes kept instead of all combinations (Theorem 8b), 0 all
  std::vector<Word> domain_;
  std::vector<double> axis_mass_;
  std::vector<Offset> offsets_;
  WalkShape shape_;
  Masses* masses_ = nullptr;
};

}  // namespace boxqte
