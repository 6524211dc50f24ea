#include "node.hpp"

#include <algorithm>
#include <stdexcept>

#include "masses.hpp"

namespace boxqte {

std::size_t Node::bytes() const {
  return (domain.capacity() + offset.capacity() + residue.capacity()) * 8 +
         (axis_mass.capacity() + class_mass.capacity()) * sizeof(double) +
         (common.capacity() + rows.capacity()) * sizeof(TreeId);
}

Nodes::Nodes(const Problem& problem, bool keep_apart)
    : problem_(problem), keep_apart_(keep_apart), trees_(problem), root_(room()) {
  const Combinations& combinations = problem.combinations;
  const Cuts& cuts = problem.cuts;
  const int n = root_.width;
  root_.n_classes = n;
  for (int c = 0; c < n; ++c) {
    root_.offset[c] = problem.trees.base;
    root_.residue[c] = problem.trees.base_residue;
    root_.class_mass[c] = combinations.size() ? combinations.mass[c] : 1.0;
  }
  for (int t = 0; t < static_cast<int>(problem.trees.root.size()); ++t) {
    TreeId* row = root_.row(root_.n_rows);
    bool equal = true, leaves = true;
    for (int c = 0; c < n; ++c) {
      TreeId tree = trees_.of_root(t);
      for (int j = 0; j < static_cast<int>(combinations.axes.size()); ++j) {
        const int axis = combinations.axes[j];
        const int cell = combinations.cells[c * combinations.axes.size() + j];
        for (int k = cuts.start[axis]; k < cuts.start[axis + 1]; ++k)
          tree = trees_.restrict(tree, k, cuts.sends_to_yes(k, cell) ? 1 : 0);
      }
      row[c] = tree;
      equal &= tree == row[0];
      leaves &= trees_[tree].is_leaf();
    }
    if (leaves) {
      for (int c = 0; c < n; ++c) {
        root_.offset[c] += trees_[row[c]].least;
        root_.residue[c] += trees_[row[c]].residue();
      }
    } else if (equal) {
      root_.common[root_.n_common++] = row[0];
    } else {
      ++root_.n_rows;
    }
  }
  for (int a = 0; a < problem.axes.size(); ++a) {
    for (int cell = 0; cell < problem.axes.n_cells[a]; ++cell) set_bit(&root_.domain[a * words()], cell);
    root_.axis_mass[a] = held_mass(root_, a);
  }
  if (!keep_apart_ && problem.rules.size() == 0) merge_classes(root_);
}

// --- what rules leave --------------------------------------------------------------------------------------------------

const Nodes::Setting* Nodes::setting(const Word* domain) {
  // Theorem 14: which rules hold on the box tells who is left; null if a rule holds on some of it only, or nobody is left.
  const Rules& rules = problem_.rules;
  active_.assign(static_cast<std::size_t>(words_for(rules.size())), 0);
  for (int i = 0; i < rules.size(); ++i) {
    bool inside = true, outside = false;
    for (int part = rules.start[i]; part < rules.start[i + 1]; ++part) {
      const Word* held = domain + static_cast<std::ptrdiff_t>(rules.axis[part]) * words();
      const Word* mask = rules.mask.data() + static_cast<std::ptrdiff_t>(part) * words();
      outside |= !overlap(held, mask, words());
      inside &= within(held, mask, words());
    }
    if (!inside && !outside) return nullptr;
    if (!outside) set_bit(active_.data(), i);
  }
  const auto [at, is_new] = settings_.try_emplace(active_);
  if (is_new) {
    at->second = left_by(active_);
    if (at->second) setting_bytes_ += at->second->root.bytes() + 4 * at->second->members.size();
  }
  return at->second.get();
}

std::shared_ptr<Nodes::Setting> Nodes::left_by(const std::vector<Word>& active) const {
  const Rules& rules = problem_.rules;
  const int n = problem_.combinations.size();
  auto made = std::make_shared<Setting>();
  Sum allowed, forbidden;
  for (int c = 0; c < n; ++c) {
    bool banned = false;
    for (int i = 0; i < rules.size() && !banned; ++i)
      banned = has_bit(active.data(), i) && rules.bans[static_cast<std::size_t>(i) * n + c];
    (banned ? forbidden : allowed).add(problem_.combinations.mass[c]);
    if (!banned) made->members.push_back(c);
  }
  if (!(allowed.value() > 0.0)) return nullptr;
  Node& root = made->root;
  root = room();
  root.allowed = allowed.value();
  root.forbidden = forbidden.value();
  root.n_classes = static_cast<int>(made->members.size());
  std::copy_n(root_.common.begin(), root_.n_common, root.common.begin());
  root.n_common = root_.n_common;
  for (int k = 0; k < root.n_classes; ++k) {
    const int c = made->members[k];
    root.offset[k] = root_.offset[c];
    root.residue[k] = root_.residue[c];
    root.class_mass[k] = root_.class_mass[c];
  }
  for (int r = 0; r < root_.n_rows; ++r) {
    TreeId* row = root.row(root.n_rows);
    bool equal = true, leaves = true;
    for (int k = 0; k < root.n_classes; ++k) {
      row[k] = root_.row(r)[made->members[k]];
      equal &= row[k] == row[0];
      leaves &= trees_[row[k]].is_leaf();
    }
    if (leaves) {
      for (int k = 0; k < root.n_classes; ++k) {
        root.offset[k] += trees_[row[k]].least;
        root.residue[k] += trees_[row[k]].residue();
      }
    } else if (equal) {
      root.common[root.n_common++] = row[0];
    } else {
      ++root.n_rows;
    }
  }
  if (!keep_apart_) merge_classes(root);
  return made;
}

bool Nodes::loads(const Word* domain) { return problem_.rules.size() == 0 || setting(domain) != nullptr; }

Node Nodes::room() const {
  Node node;
  const auto n_axes = static_cast<std::size_t>(problem_.axes.size());
  const std::size_t n_trees = problem_.trees.root.size();
  const auto n_classes = static_cast<std::size_t>(std::max(problem_.combinations.size(), 1));
  node.width = static_cast<int>(n_classes);
  node.domain.resize(n_axes * words());
  node.axis_mass.resize(n_axes, 1.0);
  node.common.resize(n_trees + 1);
  node.rows.resize((n_trees + 1) * n_classes);
  node.offset.resize(n_classes);
  node.residue.resize(n_classes);
  node.class_mass.resize(n_classes);
  return node;
}

double Nodes::held_mass(const Node& node, int axis) const {
  if (problem_.axes.role[axis] != Role::fixed) return 1.0;  // the classes' business, or the windows'
  const double* mass = problem_.axes.mass_of(axis);
  double total = 0.0;
  each_bit(&node.domain[axis * words()], words(), [&](int cell) { total += mass[cell]; });
  return total;
}

int Nodes::side_of(const Node& node, int cut) const {
  const Word* held = &node.domain[problem_.cuts.axis[cut] * words()];
  const Word* mask = problem_.cuts.mask_of(cut);
  Word yes = 0, no = 0;
  for (int w = 0; w < words(); ++w) {
    yes |= held[w] & mask[w];
    no |= held[w] & ~mask[w];
  }
  return yes && no ? -1 : yes ? 1 : 0;
}

void Nodes::merge_classes(Node& node, std::int32_t* member) const {
  const int n_rows = node.n_rows;
  int kept = 0;
  for (int c = 0; c < node.n_classes; ++c) {
    int twin = -1;
    for (int k = 0; k < kept && twin < 0 && problem_.merges; ++k) {
      if (node.offset[k] != node.offset[c] || node.residue[k] != node.residue[c]) continue;
      int r = 0;
      while (r < n_rows && node.row(r)[k] == node.row(r)[c]) ++r;
      if (r == n_rows) twin = k;
    }
    if (member) member[c] = twin < 0 ? kept : twin;
    if (twin >= 0) {
      node.class_mass[twin] += node.class_mass[c];
      continue;
    }
    if (kept != c) {
      node.offset[kept] = node.offset[c];
      node.residue[kept] = node.residue[c];
      node.class_mass[kept] = node.class_mass[c];
      for (int r = 0; r < n_rows; ++r) node.row(r)[kept] = node.row(r)[c];
    }
    ++kept;
  }
  node.n_classes = kept;
}

void Nodes::narrow(Node& node, int cut, int side) const {
  const int axis = problem_.cuts.axis[cut];
  const Word* mask = problem_.cuts.mask_of(cut);
  Word* held = &node.domain[axis * words()];
  for (int w = 0; w < words(); ++w) held[w] &= side == 1 ? mask[w] : ~mask[w];
  node.axis_mass[axis] = held_mass(node, axis);
}

void Nodes::restrict_trees(const Node& from, Node& to, int cut, int side) {
  const int n = from.n_classes;
  std::int64_t constant = 0;
  std::uint64_t residue = 0;
  int n_common = 0;
  for (int t = 0; t < from.n_common; ++t) {
    const TreeId tree = trees_.restrict(from.common[t], cut, side);
    const Record& record = trees_[tree];
    if (record.is_leaf()) {
      constant += record.least;
      residue += record.residue();
    } else {
      to.common[n_common++] = tree;
    }
  }
  if (&from != &to) {
    std::copy_n(from.offset.begin(), n, to.offset.begin());
    std::copy_n(from.residue.begin(), n, to.residue.begin());
    std::copy_n(from.class_mass.begin(), n, to.class_mass.begin());
  }
  int n_rows = 0;
  for (int r = 0; r < from.n_rows; ++r) {
    const TreeId* source = from.row(r);
    TreeId* row = to.row(n_rows);
    bool equal = true, leaves = true;
    TreeId before = source[0], after = trees_.restrict(before, cut, side);
    const TreeId first = after;
    for (int c = 0; c < n; ++c) {
      if (source[c] != before) {  // neighbouring classes often share a tree
        before = source[c];
        after = trees_.restrict(before, cut, side);
      }
      row[c] = after;
      equal &= after == first;
      leaves &= trees_[after].is_leaf();
    }
    if (equal && leaves) {
      constant += trees_[first].least;
      residue += trees_[first].residue();
    } else if (equal) {
      to.common[n_common++] = first;
    } else if (leaves) {
      for (int c = 0; c < n; ++c) {
        to.offset[c] += trees_[row[c]].least;
        to.residue[c] += trees_[row[c]].residue();
      }
    } else {
      ++n_rows;
    }
  }
  for (int c = 0; c < n; ++c) {
    to.offset[c] += constant;
    to.residue[c] += residue;
  }
  to.n_common = n_common;
  to.n_rows = n_rows;
  to.n_classes = n;
}

void Nodes::child(const Node& from, Node& to, int cut, int side) {
  if (&from != &to) {
    std::copy(from.domain.begin(), from.domain.end(), to.domain.begin());
    std::copy(from.axis_mass.begin(), from.axis_mass.end(), to.axis_mass.begin());
    to.members = from.members;
    to.allowed = from.allowed;
    to.forbidden = from.forbidden;
  }
  narrow(to, cut, side);
  restrict_trees(from, to, cut, side);
  const int axis = problem_.cuts.axis[cut];
  if (!problem_.axes.chain[axis]) {
    // Sets are not nested: what is left of the axis may settle cuts that this one alone does not.
    for (int other = problem_.cuts.start[axis]; other < problem_.cuts.start[axis + 1]; ++other) {
      const int outcome = other == cut ? -1 : side_of(to, other);
      if (outcome >= 0) restrict_trees(to, to, other, outcome);
    }
  }
  if (!keep_apart_ && to.n_classes > 1) merge_classes(to);
}

void Nodes::load(const Word* domain, Node& node) {
  const Cuts& cuts = problem_.cuts;
  const Setting* left = problem_.rules.size() > 0 ? setting(domain) : nullptr;
  if (problem_.rules.size() > 0 && !left) throw std::invalid_argument("boxes: one that rules divide or empty");
  const Node& root = left ? left->root : root_;
  std::copy_n(domain, node.domain.size(), node.domain.begin());
  node.n_classes = root.n_classes;
  node.n_common = root.n_common;
  node.n_rows = root.n_rows;
  std::copy_n(root.offset.begin(), root.n_classes, node.offset.begin());
  std::copy_n(root.residue.begin(), root.n_classes, node.residue.begin());
  std::copy_n(root.class_mass.begin(), root.n_classes, node.class_mass.begin());
  std::copy_n(root.common.begin(), root.n_common, node.common.begin());
  std::copy_n(root.rows.begin(), root.n_rows * root.width, node.rows.begin());
  for (int a = 0; a < problem_.axes.size(); ++a) {
    node.axis_mass[a] = held_mass(node, a);
    if (problem_.axes.role[a] != Role::fixed) continue;
    int below = -1, above = -1;  // on a chain the tightest cut on either side settles all the others
    for (int cut = cuts.start[a]; cut < cuts.start[a + 1]; ++cut) {
      const int outcome = side_of(node, cut);
      if (outcome < 0) continue;
      if (!problem_.axes.chain[a]) {
        restrict_trees(node, node, cut, outcome);
      } else if (outcome == 0) {
        below = cut;
      } else if (above < 0) {
        above = cut;
      }
    }
    if (below >= 0) restrict_trees(node, node, below, 0);
    if (above >= 0) restrict_trees(node, node, above, 1);
  }
  if (left) {
    node.members = left->members;
    node.allowed = root.allowed;
    node.forbidden = root.forbidden;
  }
  if (!keep_apart_ && node.n_classes > 1) merge_classes(node);
}

}  // namespace boxqte
