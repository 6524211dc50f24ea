// Residual trees, hash-consed: each distinct subtree that a restriction can leave is one immutable record.
//
// make(cut, yes, no) returns `yes` if both sides are equal and otherwise the one record of that triple; restricting a tree
// to one side of a cut is a memoised walk. Equal functions of the same shape have equal numbers, so comparing two residual
// trees is comparing two integers.
#pragma once

#include <bit>
#include <cstddef>
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

  /// Valid until the next tree is made, as is what the next two give.
  const Record& operator[](TreeId tree) const { return *reinterpret_cast<const Record*>(place(tree)); }
  const Word* axes(TreeId tree) const { return place(tree) + record_words; }
  const Word* cuts(TreeId tree) const { return axes(tree) + axis_words_; }
  bool tests(TreeId tree, int axis) const { return has_bit(axes(tree), axis); }
  int axis_words() const { return axis_words_; }
  int cut_words() const { return cut_words_; }

  /// The tree on the points that `cut` sends to `side` (1 yes, 0 no).
  TreeId restrict(TreeId tree, int cut, int side) {
    const int axis = problem_.cuts.axis[cut];
    if (!tests(tree, axis)) return tree;
    if (!problem_.axes.chain[axis]) {
      const TreeId known = known_move(move_key(tree, cut, side));
      return known != none ? known : restrict_by_set(tree, cut, side);
    }
    const int own = side == 1 ? own_cut_from(tree, cut, axis) : own_cut_up_to(tree, cut, axis);
    if (own < 0) return tree;
    const TreeId known = moves_along(tree)[2 * rank_of(tree, own) + side];
    return known != none ? known : restrict_by_prefix(tree, own, side);
  }

  std::size_t bytes() const;

 private:
  static constexpr TreeId none = 0xFFFFFFFF;
  static constexpr int record_words = sizeof(Record) / sizeof(Word);
  static_assert(sizeof(Record) % sizeof(Word) == 0);

  const Word* place(TreeId tree) const { return reinterpret_cast<const Word*>(pool_.data()) + tree; }

  // On a chain a restriction does the same to a tree as the nearest cut of its own that is settled by it, so each tree has
  // a short list of where its own cuts lead.
  /// The tree's first cut of the axis that is not before the given one; -1 if there is none.
  int own_cut_from(TreeId tree, int cut, int axis) const {
    const Word* own = cuts(tree);
    const int stop = problem_.cuts.start[axis + 1];
    int w = cut >> 6;
    Word word = own[w] & (~Word{0} << (cut & 63));
    while (word == 0) {
      if (++w << 6 >= stop) return -1;
      word = own[w];
    }
    const int found = (w << 6) + first_bit(word);
    return found < stop ? found : -1;
  }
  /// Its last cut of the axis that is not after the given one.
  int own_cut_up_to(TreeId tree, int cut, int axis) const {
    const Word* own = cuts(tree);
    const int start = problem_.cuts.start[axis];
    int w = cut >> 6;
    Word word = own[w] & low_bits((cut & 63) + 1);
    while (word == 0) {
      if (w-- << 6 <= start) return -1;
      word = own[w];
    }
    const int found = (w << 6) + last_bit(word);
    return found >= start ? found : -1;
  }
  /// How many cuts the tree has before this one of its own.
  int rank_of(TreeId tree, int cut) const {
    const Word* own = cuts(tree);
    int rank = std::popcount(own[cut >> 6] & ((Word{1} << (cut & 63)) - 1));
    for (int w = 0; w < cut >> 6; ++w) rank += std::popcount(own[w]);
    return rank;
  }
  /// Own cut x side -> the restricted tree, none if it is not known yet.
  const TreeId* moves_along(TreeId tree) const { return reinterpret_cast<const TreeId*>(cuts(tree) + cut_words_); }

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
  TreeId restrict_by_prefix(TreeId tree, int cut, int side);
  TreeId restrict_by_set(TreeId tree, int cut, int side);
  TreeId found_or_added(const Record& record, std::uint64_t hash);
  void grow_unique();
  void grow_moves();

  const Problem& problem_;
  int axis_words_, cut_words_;
  std::vector<std::byte> pool_;  ///< one after the other: record, axes, cuts, moves_along; a tree is its word in it
  std::vector<TreeId> all_;      ///< every tree
  std::vector<Word> cuts_;       ///< of the tree that is being made
  std::vector<std::uint32_t> unique_;  ///< open addressing: the record of a triple, + 1
  std::vector<Move> moves_;            ///< open addressing: memoised restrictions on axes that are no chains
  std::size_t n_moves_ = 0;
  std::vector<TreeId> roots_;
};

}  // namespace boxqte
