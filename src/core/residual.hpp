// Residual trees, hash-consed: each distinct subtree that a restriction can leave is one immutable record.
//
// make(cut, yes, no) returns `yes` if both sides are equal and otherwise the one record of that triple; restricting a tree
// to one side of a cut is a memoised walk. Equal functions of the same shape have equal numbers, so comparing two residual
// trees is comparing two integers.
#pragma once

#include <cstdint>
#include <vector>

#include "problem.hpp"

namespace boxqte {

using TreeId = std::uint32_t;

struct Record {
  std::int32_t cut;          ///< -1 at a leaf
  TreeId yes, no;            ///< of a leaf: the two halves of its residue
  std::int64_t least, most;  ///< bounds of its leaves

  bool is_leaf() const { return cut < 0; }
  std::uint64_t residue() const { return (std::uint64_t{no} << 32) | yes; }
  std::int64_t spread() const { return most - least; }
};

class ResidualTrees {
 public:
  explicit ResidualTrees(const Problem& problem);

  /// The record of the tree rooted at a node of the problem.
  TreeId of_root(int tree) const { return roots_[tree]; }

  /// Valid until the next tree is made.
  const Record& operator[](TreeId tree) const { return records_[tree]; }
  const Word* axes(TreeId tree) const { return axes_.data() + std::size_t{tree} * axis_words_; }
  const Word* cuts(TreeId tree) const { return cuts_.data() + std::size_t{tree} * cut_words_; }
  bool tests(TreeId tree, int axis) const { return has_bit(axes(tree), axis); }
  int axis_words() const { return axis_words_; }
  int cut_words() const { return cut_words_; }

  /// The tree on the points that `cut` sends to `side` (1 yes, 0 no).
  TreeId restrict(TreeId tree, int cut, int side) {
    if (!tests(tree, problem_.cuts.axis[cut])) return tree;
    const TreeId known = known_move(move_key(tree, cut, side));
    return known != none ? known : restrict_anew(tree, cut, side);
  }

  std::size_t bytes() const;

 private:
  static constexpr TreeId none = 0xFFFFFFFF;

  static std::uint64_t move_key(TreeId tree, int cut, int side) {
    return (std::uint64_t{tree} << 32) | (static_cast<std::uint32_t>(cut) << 1) | static_cast<std::uint32_t>(side);
  }
  static std::uint64_t mixed(std::uint64_t key) {
    key ^= key >> 33;
    key *= 0xFF51AFD7ED558CCDull;
    key ^= key >> 33;
    key *= 0xC4CEB9FE1A85EC53ull;
    return key ^ (key >> 33);
  }
  TreeId known_move(std::uint64_t key) const {
    const std::size_t last = moves_.size() - 1;
    for (std::size_t at = mixed(key) & last;; at = (at + 1) & last) {
      if (moves_[at].key == key) return moves_[at].to;
      if (moves_[at].key == 0) return none;
    }
  }

  struct Move {
    std::uint64_t key = 0;  ///< 0 is free: record 0 is a leaf and never restricted
    TreeId to = 0;
  };

  TreeId leaf(std::int64_t value, std::uint64_t residue);
  TreeId make(int cut, TreeId yes, TreeId no);
  TreeId restrict_anew(TreeId tree, int cut, int side);
  TreeId found_or_added(const Record& record, std::uint64_t hash);
  void grow_unique();
  void grow_moves();

  const Problem& problem_;
  int axis_words_, cut_words_;
  std::vector<Record> records_;
  std::vector<Word> axes_, cuts_;      ///< record x word: the axes and the cuts it tests
  std::vector<std::uint32_t> unique_;  ///< open addressing: the record of a triple, + 1
  std::vector<Move> moves_;            ///< open addressing: memoised restrictions
  std::size_t n_moves_ = 0;
  std::vector<TreeId> roots_;
};

}  // namespace boxqte
