#include "exchange.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

namespace boxqte {

namespace {

constexpr int n_candidates = 8;
constexpr std::size_t frame_limit = 128;
constexpr std::size_t frame_bytes = std::size_t{1} << 28;
constexpr std::size_t grid_bytes = std::size_t{1} << 28;
constexpr std::size_t most_closed = 4096;  // notes of one call
constexpr int nothing_to_split = -1;

}  // namespace

ExchangeWorker::ExchangeWorker(const Problem& problem, const ExchangeOptions& options)
    : problem_(problem), options_(options), box_words_(static_cast<std::size_t>(problem.axes.size()) * problem.cuts.words) {
  const auto n_classes = static_cast<std::size_t>(std::max(problem.combinations.size(), 1));
  finish_limit_ = std::min(options.finish_limit, std::max(static_cast<double>(grid_bytes / (8 * n_classes)), 16.0));
  margin_ = problem.thresholds.band + problem.thresholds.fuzz;
  forget_trees();
  const std::size_t one = trees_->nodes.root().bytes();
  most_frames_ = std::min(frame_limit, std::max(frame_bytes / (one + 1), std::size_t{8}));
  // Room for the root alone says little about the next boxes.
  tree_limit_ = std::max(options.memory / 2, 4 * trees_->nodes.bytes());
  frames_.reserve(most_frames_);
  frames_.push_back(trees_->nodes.room());
  spare_ = trees_->nodes.room();
  low_.resize(n_classes);
  high_.resize(n_classes);
  verdict_.resize(n_classes);
  score_.resize(problem.cuts.size());
}

void ExchangeWorker::forget_trees() { trees_ = std::make_unique<Trees>(problem_, options_.memory / 2); }

void ExchangeWorker::check_boxes(std::size_t n, std::size_t n_axes, std::size_t words, std::size_t n_masses) const {
  if (n_axes != static_cast<std::size_t>(problem_.axes.size()) || words != static_cast<std::size_t>(problem_.cuts.words) ||
      n != n_masses)
    throw std::invalid_argument("boxes: expected box x axis x word, and one mass a box");
}

std::size_t ExchangeWorker::bytes() const {
  return trees_->nodes.bytes() + trees_->finisher.bytes() + (frames_.size() + 1) * spare_.bytes();
}

// --- deciding by bounds ------------------------------------------------------------------------------------------------

bool ExchangeWorker::decided_by_bounds(const Node& node) {
  const Thresholds& t = problem_.thresholds;
  const ResidualTrees& trees = trees_->nodes.trees();
  const int n = node.n_classes;
  // Theorem 1: one class left, exchanging sensitive values changes nothing at all.
  if (t.simple && n == 1) {
    verdict_[0] = Kind::fair;
    return true;
  }
  std::int64_t bottom = 0, top = 0;
  for (int i = 0; i < node.n_common; ++i) {
    const Record& record = trees[node.common[i]];
    bottom += record.least;
    top += record.most;
  }
  for (int c = 0; c < n; ++c) {
    low_[c] = node.offset[c] + bottom;
    high_[c] = node.offset[c] + top;
  }
  for (int r = 0; r < node.n_rows; ++r) {
    const TreeId* row = node.row(r);
    for (int c = 0; c < n; ++c) {
      low_[c] += trees[row[c]].least;
      high_[c] += trees[row[c]].most;
    }
  }
  std::int64_t min_low = low_[0], max_low = low_[0], min_high = high_[0], max_high = high_[0];
  for (int c = 1; c < n; ++c) {
    min_low = std::min(min_low, low_[c]);
    max_low = std::max(max_low, low_[c]);
    min_high = std::min(min_high, high_[c]);
    max_high = std::max(max_high, high_[c]);
  }
  const bool surely_neg = min_high <= t.neg - margin_;  // some class is certainly of class 0
  const bool surely_pos = max_low >= t.pos + margin_;
  if (t.simple) {
    // Theorem 2: all classes of one sign, or two surely of opposite signs.
    const bool one_sign = min_low >= t.pos + margin_ || max_high <= t.neg - margin_;
    verdict_[0] = one_sign ? Kind::fair : Kind::unfair;
    return one_sign || (surely_neg && surely_pos);
  }
  // Theorem 3: class by class. All or none: an open box is kept as its cells alone, so no part of it may be counted early.
  const bool never_neg = min_low > t.neg + margin_, never_pos = max_high < t.pos - margin_;
  for (int c = 0; c < n; ++c) {
    if (high_[c] < t.conf_pos - margin_ && low_[c] > t.conf_neg + margin_)
      verdict_[c] = Kind::low;
    else if (low_[c] >= t.conf_pos + margin_ && (surely_neg || never_neg))
      verdict_[c] = surely_neg ? Kind::unfair : Kind::fair;
    else if (high_[c] <= t.conf_neg - margin_ && (surely_pos || never_pos))
      verdict_[c] = surely_pos ? Kind::unfair : Kind::fair;
    else
      return false;
  }
  return true;
}

bool ExchangeWorker::decide(const Node& node, Masses& masses) {
  if (!decided_by_bounds(node)) return false;
  const double mass = node.mass();
  if (problem_.thresholds.simple)
    masses.add(verdict_[0], mass);
  else
    for (int c = 0; c < node.n_classes; ++c) masses.add(verdict_[c], mass * node.class_mass[c]);
  return true;
}

// --- choosing a cut ----------------------------------------------------------------------------------------------------

int ExchangeWorker::find_candidates(const Node& node) {
  // The root cuts with the largest summed range of the trees rooted there, most first. The 1 is for trees whose range was
  // rounded to nothing: a box is a single point per class only without any tree.
  const ResidualTrees& trees = trees_->nodes.trees();
  scored_.clear();
  const auto score = [&](TreeId tree, double times) {
    const Record& record = trees[tree];
    if (record.is_leaf()) return;
    if (score_[record.cut] == 0.0) scored_.push_back(record.cut);
    score_[record.cut] += (1.0 + static_cast<double>(record.spread())) * times;
  };
  for (int t = 0; t < node.n_common; ++t) score(node.common[t], 1.0);
  const double share = 1.0 / node.n_classes;
  for (int r = 0; r < node.n_rows; ++r) {
    const TreeId* row = node.row(r);
    for (int c = 0, next; c < node.n_classes; c = next) {
      for (next = c + 1; next < node.n_classes && row[next] == row[c];) ++next;
      score(row[c], share * (next - c));
    }
  }
  const int n = std::min<int>(n_candidates, static_cast<int>(scored_.size()));
  best_.assign(scored_.begin(), scored_.end());
  std::partial_sort(best_.begin(), best_.begin() + n, best_.end(), [&](int one, int two) {
    return score_[one] != score_[two] ? score_[one] > score_[two] : one < two;
  });
  for (const std::int32_t cut : scored_) score_[cut] = 0.0;
  return n;
}

double ExchangeWorker::child_cost(const Node& node, int cut, int side) {
  trees_->nodes.child(node, spare_, cut, side);
  return decided_by_bounds(spare_) ? 0.0 : trees_->child_parts.find(spare_);
}

int ExchangeWorker::choose(const Node& node) {
  const int n = find_candidates(node);
  if (n == 0) return nothing_to_split;
  int chosen = best_[0];
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < n && n > 1; ++i) {
    double cost = child_cost(node, best_[i], 0);
    if (cost < least) cost += child_cost(node, best_[i], 1);
    if (cost < least) {
      least = cost;
      chosen = best_[i];
    }
  }
  return chosen;
}

// --- the search --------------------------------------------------------------------------------------------------------

void ExchangeWorker::note(Call& call, std::int32_t event) {
  if (options_.notes) call.reply.events.push_back(event);
}

void ExchangeWorker::open(Call& call, const Word* box, double mass, double cost) {
  call.reply.open.add(box, box_words_, mass);
  call.reply.cost.push_back(cost);
  note(call, ExchangeReply::opened_next);
}

void ExchangeWorker::close(Call& call, const Node& node, ExchangeReply::How how, const Masses& masses) {
  call.reply.decided.add(masses);
  if (!options_.notes) return;
  call.reply.closed.insert(call.reply.closed.end(), node.domain.begin(), node.domain.end());
  for (int kind = 0; kind < n_kinds; ++kind) call.reply.closed_masses.push_back(masses.of(static_cast<Kind>(kind)));
  call.reply.how.push_back(how);
  note(call, ExchangeReply::closed_next);
}

bool ExchangeWorker::out_of_budget(const Call& call) const {
  const ExchangeReply& reply = call.reply;
  return halted_.load(std::memory_order_relaxed) ||
         (reply.nodes > 1 &&
          (reply.nodes >= call.budget || reply.work >= options_.call_work ||
           reply.cost.size() >= 2 * static_cast<std::size_t>(options_.batch) + 256 || reply.how.size() >= most_closed));
}

void ExchangeWorker::search(Call& call, const Word* box) {
  ExchangeReply& reply = call.reply;
  Nodes& nodes = trees_->nodes;
  nodes.load(box, frames_[0]);
  const std::int64_t entered = reply.nodes;
  int top = 0;
  while (top >= 0) {
    Node& node = frames_[top];
    const std::int64_t n_trees = node.n_common + std::int64_t{node.n_rows} * node.n_classes;
    ++reply.nodes;
    reply.work += n_trees;
    Masses settled;
    if (decide(node, settled)) {
      close(call, node, ExchangeReply::by_bounds, settled);
      --top;
      continue;
    }
    const double cost = trees_->parts.find(node);
    if (cost <= finish_limit_) {
      reply.work += static_cast<std::int64_t>(cost) * (problem_.thresholds.simple ? 4 : 4 + node.n_classes);
      if (trees_->finisher.finish(node, trees_->parts, settled)) {
        ++reply.finished;
        close(call, node, ExchangeReply::by_counting, settled);
        --top;
        continue;
      }
    }
    const bool full = static_cast<std::size_t>(top) + 1 >= most_frames_;
    if ((reply.nodes - entered > 1 && cost > call.depth_first_below) || full) {
      open(call, node.domain.data(), node.mass(), cost);
      --top;
      continue;
    }
    if (out_of_budget(call)) {
      call.out_of_budget = true;
      break;
    }
    reply.work += 64 * n_trees;
    const int cut = choose(node);
    if (cut == nothing_to_split) {  // a single margin per class, and 64 bits cannot place one of them exactly
      reply.points.add(node.domain.data(), box_words_, node.mass());
      note(call, ExchangeReply::point_next);
      --top;
      continue;
    }
    note(call, cut);
    if (frames_.size() == static_cast<std::size_t>(top) + 1) frames_.push_back(nodes.room());
    nodes.child(frames_[top], frames_[top + 1], cut, 1);
    nodes.child(frames_[top], frames_[top], cut, 0);
    ++top;
  }
  for (; top >= 0; --top)  // stopped half-way: the frames that are left are open boxes
    open(call, frames_[top].domain.data(), frames_[top].mass(), ExchangeReply::unknown_cost);
}

ExchangeReply ExchangeWorker::work(const Word* boxes, std::span<const double> masses, std::int64_t budget,
                                   bool depth_first) {
  Call call;
  call.budget = budget;
  call.depth_first_below = depth_first ? std::numeric_limits<double>::infinity() : options_.depth_first_below;
  for (std::size_t i = 0; i < masses.size(); ++i) {
    const Word* box = boxes + i * box_words_;
    if (call.out_of_budget) {  // what was not begun goes back as it came
      open(call, box, masses[i], ExchangeReply::unknown_cost);
      continue;
    }
    trees_->finisher.tidy();
    if (trees_->nodes.bytes() > tree_limit_) forget_trees();
    search(call, box);
  }
  for (double& cost : call.reply.cost)
    if (cost < 0) cost = options_.depth_first_below;  // it was begun, so it was no dearer than this
  return std::move(call.reply);
}

}  // namespace boxqte
