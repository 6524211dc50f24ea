#include "exchange.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

namespace boxqte {

namespace {

constexpr std::size_t frame_limit = 128;
constexpr std::size_t frame_bytes = std::size_t{1} << 28;
constexpr std::size_t most_closed = 4096;  // notes of one call

}  // namespace

ExchangeWorker::ExchangeWorker(const Problem& problem, const ExchangeOptions& options)
    : problem_(problem),
      options_(options),
      decision_(problem),
      box_words_(static_cast<std::size_t>(problem.axes.size()) * problem.cuts.words) {
  finish_limit_ = countable_cells(problem, options.finish_limit);
  forget_trees();
  const std::size_t one = trees_->nodes.root().bytes();
  most_frames_ = std::min(frame_limit, std::max(frame_bytes / (one + 1), std::size_t{8}));
  // Room for the root alone says little about the next boxes.
  tree_limit_ = std::max(options.memory / 2, 4 * trees_->nodes.bytes());
  frames_.reserve(most_frames_);
  frames_.push_back(trees_->nodes.room());
}

void ExchangeWorker::forget_trees() { trees_ = std::make_unique<Trees>(problem_, options_.memory / 2, halt_); }

void ExchangeWorker::check_boxes(std::size_t n, std::size_t n_axes, std::size_t words, std::size_t n_masses) const {
  if (n_axes != static_cast<std::size_t>(problem_.axes.size()) ||
      words != static_cast<std::size_t>(problem_.cuts.words) || n != n_masses)
    throw std::invalid_argument("boxes: expected box x axis x word, and one mass a box");
}

std::size_t ExchangeWorker::bytes() const {
  return trees_->nodes.bytes() + trees_->finisher.bytes() + (frames_.size() + 1) * frames_[0].bytes();
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
  return halt_.is_set() ||
         (reply.nodes > 1 &&
          (reply.nodes >= call.budget || reply.work >= options_.call_work ||
           reply.cost.size() >= 2 * static_cast<std::size_t>(options_.batch) + 256 || reply.how.size() >= most_closed));
}

void ExchangeWorker::search(Call& call, const Word* box) {
  trees_->nodes.load(box, frames_[0]);
  int top = 0;
  try {
    explore(call, top);
  } catch (const Halted&) {
    call.out_of_budget = true;
    trees_->finisher.forget();
  }
  for (; top >= 0; --top)  // stopped half-way: the frames that are left are open boxes
    open(call, frames_[top].domain.data(), frames_[top].mass(), ExchangeReply::unknown_cost);
}

void ExchangeWorker::explore(Call& call, int& top) {
  ExchangeReply& reply = call.reply;
  Nodes& nodes = trees_->nodes;
  const std::int64_t entered = reply.nodes;
  if (problem_.partners.order != 0 && problem_.thresholds.fuzz == 0 && problem_.thresholds.all_confident &&
      trees_->order.holds(frames_[0], problem_.partners, halt_)) {  // Theorem 13
    Masses settled;
    settled.add(Kind::fair, frames_[0].mass() * frames_[0].allowed);
    settled.add(Kind::low, frames_[0].mass() * frames_[0].forbidden);
    ++reply.nodes;
    close(call, frames_[0], ExchangeReply::by_bounds, settled);
    --top;
    return;
  }
  while (top >= 0) {
    Node& node = frames_[top];
    const std::int64_t n_trees = node.n_common + std::int64_t{node.n_rows} * node.n_classes;
    ++reply.nodes;
    reply.work += n_trees;
    Masses settled;
    if (decision_.decide(node, nodes.trees())) {
      decision_.count(node, settled);
      close(call, node, ExchangeReply::by_bounds, settled);
      --top;
      continue;
    }
    const double cost = trees_->parts.find(node);
    if (cost <= finish_limit_) {
      reply.work += static_cast<std::int64_t>(cost) *
                    (problem_.thresholds.simple && !problem_.partners.asked() ? 4 : 4 + node.n_classes);
      if (trees_->finisher.finish(node, trees_->parts, settled, halt_)) {
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
      return;
    }
    reply.work += 64 * n_trees;
    const int cut = trees_->chooser.choose(node);
    if (cut == Chooser::nothing_to_split) {  // a single margin per class, and 64 bits cannot place one of them exactly
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
