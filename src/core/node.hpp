// A node of a search: a box and the residual trees on it. One child, load and root for both searches.
//
// Epsilon = 0: one column a class, a set of sensitive combinations that still behave alike; trees that are the same for all
// classes are common. Epsilon > 0: the sensitive attributes stay axes of the trees, so there is one class and no row.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "residual.hpp"

namespace boxqte {

struct Node {
  std::vector<Word> domain;       ///< axis x word: the cells that the box holds
  std::vector<double> axis_mass;  ///< axis -> mass of these cells; 1 on sensitive and moving axes
  std::vector<TreeId> common;     ///< the trees that are the same for every class
  int n_common = 0;
  std::vector<TreeId> rows;  ///< row x class: a sensitive-dependent tree, restricted to each class
  int n_rows = 0;
  int n_classes = 0;
  int width = 0;                       ///< classes that a row has room for
  std::vector<std::int64_t> offset;    ///< class -> the constant part of its margin
  std::vector<std::uint64_t> residue;  ///< class -> the exact constant modulo 2**64
  std::vector<double> class_mass;
  /// With rules, the combinations that are allowed in the box, else empty: all. Where classes are kept apart, class c is
  /// members[c].
  std::span<const std::int32_t> members;
  double allowed = 1.0, forbidden = 0.0;  ///< the mass of these, and of the others

  TreeId* row(int r) { return rows.data() + static_cast<std::ptrdiff_t>(r) * width; }
  const TreeId* row(int r) const { return rows.data() + static_cast<std::ptrdiff_t>(r) * width; }
  double mass() const {
    double product = 1.0;
    for (const double m : axis_mass) product *= m;
    return product;
  }
  std::size_t bytes() const;
};

/// Makes nodes out of nodes. Owns the residual trees; one per worker.
class Nodes {
 public:
  /// keep_apart: no classes are merged, so that class c of a node is combination c (drawing needs to know who is who).
  explicit Nodes(const Problem& problem, bool keep_apart = false);

  const Problem& problem() const { return problem_; }
  ResidualTrees& trees() { return trees_; }
  const ResidualTrees& trees() const { return trees_; }
  const Node& root() const { return root_; }
  int words() const { return problem_.cuts.words; }

  /// A node with room for any other.
  Node room() const;

  /// `node` becomes the node of the given box (axis x word), derived from the root. With rules, every rule has to hold on
  /// all of the box or nowhere in it, and some combination must be left.
  void load(const Word* domain, Node& node);

  /// Whether every rule holds on all of the box or nowhere in it, and leaves some combination.
  bool loads(const Word* domain);

  /// `to` becomes `from` restricted to one side of the cut; both may be the same.
  void child(const Node& from, Node& to, int cut, int side);

  /// 1 if the box lies wholly on the cut's yes side, 0 if wholly on the no side, -1 if on both.
  int side_of(const Node& node, int cut) const;

  /// Join classes that are the same function; member (if given): class before -> class after.
  void merge_classes(Node& node, std::int32_t* member = nullptr) const;

  std::size_t bytes() const { return trees_.bytes() + root_.bytes() + setting_bytes_; }

 private:
  /// What rules leave: some of the combinations, and a root with a class for each of these (or for those that differ).
  struct Setting {
    std::vector<std::int32_t> members;
    Node root;
  };

  const Setting* setting(const Word* domain);
  std::shared_ptr<Setting> left_by(const std::vector<Word>& active) const;
  double held_mass(const Node& node, int axis) const;
  void narrow(Node& node, int cut, int side) const;
  void restrict_trees(const Node& from, Node& to, int cut, int side);

  const Problem& problem_;
  bool keep_apart_;
  ResidualTrees trees_;
  Node root_;
  std::map<std::vector<Word>, std::shared_ptr<Setting>> settings_;  ///< by the rules that hold; null: nobody is left
  std::vector<Word> active_;
  std::size_t setting_bytes_ = 0;
};

}  // namespace boxqte
