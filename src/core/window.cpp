#include "window.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace boxqte {

WindowWorker::WindowWorker(const Problem& problem, const WindowOptions& options)
    : problem_(problem),
      options_(options),
      limits_(problem.thresholds),
      memory_{options.memory, 0},
      nodes_(problem),
      layouts_(problem),
      walk_(nodes_, limits_, options.walk, memory_, halted_, counters_),
      fixed_(nodes_.trees().axis_words()),
      active_(nodes_.trees().cut_words()),
      score_(problem.cuts.size()) {
  for (int a = 0; a < problem.axes.size(); ++a)
    if (problem.axes.role[a] == Role::fixed) set_bit(fixed_.data(), a);
}

std::size_t WindowWorker::bytes() const {
  std::size_t total = memory_.used + nodes_.bytes() + layouts_.bytes();
  for (const Frame& frame : frames_) total += frame.node.bytes();
  return total;
}

WindowWorker::Frame& WindowWorker::frame(std::size_t f) {
  while (frames_.size() <= f) frames_.push_back({nodes_.room(), -1, 0});
  return frames_[f];
}

/// A cut scores 2**-depth for every node of the tree that tests it.
void WindowWorker::score(TreeId tree, double weight) {
  const ResidualTrees& trees = nodes_.trees();
  if (!overlap(trees.axes(tree), fixed_.data(), trees.axis_words())) return;
  const Record& record = trees[tree];
  if (problem_.axes.role[problem_.cuts.axis[record.cut]] == Role::fixed) score_[record.cut] += weight;
  score(record.yes, 0.5 * weight);
  score(record.no, 0.5 * weight);
}

/// The cut on a fixed axis that resolves most of the mixed trees; -1 if there is none.
int WindowWorker::choose_cut(const Node& node) {
  const ResidualTrees& trees = nodes_.trees();
  std::fill(score_.begin(), score_.end(), 0.0);
  for (int t = 0; t < node.n_common; ++t) {
    bool others = false;
    for (int w = 0; w < trees.axis_words(); ++w) others |= (trees.axes(node.common[t])[w] & ~fixed_[w]) != 0;
    if (others) score(node.common[t], 1.0);
  }
  const auto best = std::max_element(score_.begin(), score_.end());
  return best == score_.end() || *best <= 0.0 ? -1 : static_cast<int>(best - score_.begin());
}

/// Few mixed trees are left, or they span few cells of the fixed axes.
bool WindowWorker::is_brick(const Node& node) {
  const ResidualTrees& trees = nodes_.trees();
  int n = 0;
  std::fill(active_.begin(), active_.end(), 0);
  for (int t = 0; t < node.n_common; ++t) {
    const Word* axes = trees.axes(node.common[t]);
    bool fixed = false, others = false;
    for (int w = 0; w < trees.axis_words(); ++w) {
      fixed |= (axes[w] & fixed_[w]) != 0;
      others |= (axes[w] & ~fixed_[w]) != 0;
    }
    if (!fixed || !others) continue;
    ++n;
    for (int w = 0; w < trees.cut_words(); ++w) active_[w] |= trees.cuts(node.common[t])[w];
  }
  if (n <= options_.mixed_limit) return true;
  double cells = 1.0;
  for (int a = 0; a < problem_.axes.size(); ++a)
    if (problem_.axes.role[a] == Role::fixed)
      cells *= 1 + count_bits(active_.data(), problem_.cuts.start[a], problem_.cuts.start[a + 1]);
  return cells <= options_.cell_limit;
}

/// All that is allowed in the box is surely of one class: what is left to ask is what is forbidden (Theorem 14).
void WindowWorker::keep_rules(Node& node) const {
  int kept = 0;
  for (int t = 0; t < node.n_common; ++t)
    if (limits_.is_rule(nodes_.trees()[node.common[t]].most)) node.common[kept++] = node.common[t];
  node.n_common = kept;
  node.offset[0] = limits_.sure_pos.bound.value;
  node.residue[0] = limits_.sure_pos.bound.residue;
}

/// A cut on a fixed axis that some rule still asks about; -1 if there is none.
int WindowWorker::cut_of_rule(const Node& node) const {
  const ResidualTrees& trees = nodes_.trees();
  for (int t = 0; t < node.n_common; ++t) {
    if (!limits_.is_rule(trees[node.common[t]].most)) continue;
    std::vector<TreeId> todo{node.common[t]};
    for (std::size_t i = 0; i < todo.size(); ++i) {
      const Record& record = trees[todo[i]];
      if (record.is_leaf()) continue;
      if (problem_.axes.role[problem_.cuts.axis[record.cut]] == Role::fixed) return record.cut;
      todo.push_back(record.yes);
      todo.push_back(record.no);
    }
  }
  return -1;
}

/// Settle the box of a frame, or choose the cut that should split it.
WindowWorker::Outcome WindowWorker::settle(Frame& at, Masses& masses) {
  Node& node = at.node;
  ++counters_.nodes;
  counters_.work += Walk::node_work;
  std::int64_t low = node.offset[0], high = low, forbidden = 0;
  for (int t = 0; t < node.n_common; ++t) {
    const Record& record = nodes_.trees()[node.common[t]];
    low += record.least;
    (limits_.is_rule(record.most) ? forbidden : high) += record.most;
  }
  const Kind kind = limits_.one_kind(low, high);
  if (kind == Kind::low || (kind == Kind::fair && forbidden == 0)) {
    masses.add(kind, node.mass());
    return Outcome::settled;
  }
  if (kind == Kind::fair) {
    keep_rules(node);
    high = node.offset[0];
  }
  limits_.look_at(high + forbidden);
  at.cut = choose_cut(node);
  at.side = 0;
  if (at.cut >= 0 && !is_brick(node)) return Outcome::split;
  // a brick in which nothing can be forbidden is measured faster: no rule may hold on some of its fixed cells only
  if (const int cut = limits_.capped ? cut_of_rule(node) : -1; cut >= 0) {
    at.cut = cut;
    return Outcome::split;
  }
  // a large brick is worth its compaction: first resolve all that mixes fixed and other axes
  if (!walk_.lay(node, layouts_) && at.cut >= 0) return Outcome::split;
  const double rows = static_cast<double>(walk_.brick().all_rows());
  if (walk_.brick().too_large || 20.0 * rows > static_cast<double>(memory_.limit))
    throw MemoryLimit("the attributes that epsilon moves span " + std::to_string(std::llround(rows)) +
                      " rows of cells, more than fit into the memory limit; give more memory, or a tolerance to fewer "
                      "attributes");
  walk_.measure(node, masses);
  return Outcome::settled;
}

void WindowWorker::search(const Word* box, std::int64_t budget, WindowReply& reply, std::vector<Word>& open,
                          std::vector<double>& open_mass) {
  const auto leave_open = [&](const Node& node) {
    open.insert(open.end(), node.domain.begin(), node.domain.end());
    open_mass.push_back(node.mass());
  };
  const std::int64_t end = counters_.work + budget * Walk::node_work;
  std::size_t f = 0;
  nodes_.load(box, frame(0).node);
  while (true) {
    Frame& at = frame(f);
    if (f > 0 && counters_.work >= end) break;
    Masses own;
    const Outcome outcome = settle(at, own);
    if (halted_.load(std::memory_order_relaxed)) break;
    if (outcome == Outcome::settled) {
      reply.settled.insert(reply.settled.end(), at.node.domain.begin(), at.node.domain.end());
      for (const Kind kind : {Kind::fair, Kind::unfair, Kind::low}) {
        reply.settled_mass.push_back(own.of(kind));
        reply.decided.add(kind, own.of(kind));
      }
      do {
        if (f == 0) return;
        --f;
      } while (frames_[f].side == 2);
    }
    Frame& parent = frames_[f];
    nodes_.child(parent.node, frame(f + 1).node, parent.cut, parent.side);
    ++parent.side;
    ++f;
  }
  leave_open(frames_[f].node);
  for (std::size_t g = f; g-- > 0;)
    if (frames_[g].side == 1) {
      nodes_.child(frames_[g].node, frame(f + 1).node, frames_[g].cut, 1);
      leave_open(frames_[f + 1].node);
    }
}

WindowReply WindowWorker::work(const Word* boxes, std::size_t n, std::int64_t budget) {
  WindowReply reply;
  const std::size_t size = static_cast<std::size_t>(problem_.axes.size()) * problem_.cuts.words;
  const Counters before = counters_;
  const auto spent = [&] { return (counters_.work - before.work) / Walk::node_work; };
  std::size_t begun = 0;
  std::vector<Word> box(size);
  // what is left, the next one last
  std::vector<Word> left, open;
  std::vector<double> left_mass, open_mass;
  for (std::size_t i = n; i-- > 0;) {
    left.insert(left.end(), boxes + i * size, boxes + (i + 1) * size);
    left_mass.push_back(-1.0);
  }
  while (!left_mass.empty() && !halted_.load(std::memory_order_relaxed) && (begun < n || spent() < budget)) {
    std::copy(left.end() - static_cast<std::ptrdiff_t>(size), left.end(), box.begin());
    left.resize(left.size() - size);
    left_mass.pop_back();
    ++begun;
    open.clear();
    open_mass.clear();
    search(box.data(), std::max<std::int64_t>(budget - spent(), 1), reply, open, open_mass);
    for (std::size_t i = open_mass.size(); i-- > 0;) {
      left.insert(left.end(), open.begin() + static_cast<std::ptrdiff_t>(i * size),
                  open.begin() + static_cast<std::ptrdiff_t>((i + 1) * size));
      left_mass.push_back(open_mass[i]);
    }
  }
  for (std::size_t i = left_mass.size(); i-- > 0;) {
    const Word* at = left.data() + i * size;
    reply.open.insert(reply.open.end(), at, at + size);
    if (left_mass[i] < 0.0) {  // never begun
      nodes_.load(at, frame(0).node);
      left_mass[i] = frames_[0].node.mass();
    }
    reply.open_mass.push_back(left_mass[i]);
  }
  reply.nodes = counters_.nodes - before.nodes;
  reply.tiles = counters_.tiles - before.tiles;
  return reply;
}

}  // namespace boxqte
