// The search for epsilon = 0: x and x' share every non-sensitive attribute, only sensitive values are exchanged.
//
// A node of the search is a box of non-sensitive values, its residual trees, and one column per class of sensitive values
// that still behave differently. The mathematics, with proofs, is in docs/engine.md; the names are the same there.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bounds.hpp"
#include "choose.hpp"
#include "components.hpp"
#include "finish.hpp"
#include "halt.hpp"
#include "masses.hpp"
#include "node.hpp"
#include "order.hpp"

namespace boxqte {

struct ExchangeOptions {
  double finish_limit = 8000;      ///< count a box in value space once that takes at most about so many cells
  double depth_first_below = 1e6;  ///< boxes that cost less are worked on depth first
  std::int64_t call_work = 10'000'000;
  int batch = 8;
  bool notes = false;  ///< write down every box that is closed, and how the batch was taken apart
  std::size_t memory = std::size_t{1} << 28;
};

/// What became of a batch. Batch = decided parts + open boxes + points, without overlap.
struct ExchangeReply {
  /// Events other than a cut, as boxqte.engines.box.driver has them.
  enum Event : std::int32_t { closed_next = -1, opened_next = -2, point_next = -3 };
  enum How : std::int8_t { by_bounds = 0, by_counting = 1 };
  static constexpr double unknown_cost = -1.0;

  struct Boxes {
    std::vector<Word> domain;  ///< box x axis x word
    std::vector<double> mass;
    void add(const Word* box, std::size_t words, double its_mass) {
      domain.insert(domain.end(), box, box + words);
      mass.push_back(its_mass);
    }
  };

  Masses decided;
  Boxes open;
  std::vector<double> cost;  ///< open box -> what it is expected to cost
  Boxes points;              ///< boxes with one margin per class, which 64 bits cannot place
  std::vector<Word> closed;
  std::vector<double> closed_masses;  ///< closed box x kind
  std::vector<std::int8_t> how;
  std::vector<std::int32_t> events;  ///< the search in preorder, yes side first
  std::int64_t nodes = 0, finished = 0, work = 0;
};

class ExchangeWorker {
 public:
  ExchangeWorker(const Problem& problem, const ExchangeOptions& options);

  /// Throws std::invalid_argument unless the arrays are boxes of this problem and their masses.
  void check_boxes(std::size_t n, std::size_t n_axes, std::size_t words, std::size_t n_masses) const;

  /// Decide what can be decided of the boxes within about `budget` nodes. A box that is expensive to finish is split once
  /// and its children are handed back, so that the queue outside decides what comes next; a cheap one is finished here,
  /// depth first (depth_first: every one). Every call makes progress: its first box is settled or split.
  ExchangeReply work(const Word* boxes, std::span<const double> masses, std::int64_t budget, bool depth_first);

  /// From another thread: a call that is going on should come back now. For good.
  void halt() { halt_.set(); }

  std::size_t bytes() const;

 private:
  /// One batch on its way.
  struct Call {
    ExchangeReply reply;
    std::int64_t budget;
    double depth_first_below;
    bool out_of_budget = false;
  };

  void search(Call& call, const Word* box);
  void explore(Call& call, int& top);
  bool out_of_budget(const Call& call) const;
  void close(Call& call, const Node& node, ExchangeReply::How how, const Masses& masses);
  void open(Call& call, const Word* box, double mass, double cost);
  void note(Call& call, std::int32_t event);
  void forget_trees();

  const Problem& problem_;
  ExchangeOptions options_;
  double finish_limit_;
  Decision decision_;
  std::size_t box_words_;
  Halt halt_;

  // All that refers to residual trees, rebuilt when they take too much memory.
  struct Trees {
    Trees(const Problem& problem, std::size_t memory, const Halt& halt)
        : nodes(problem, problem.partners.asked()),
          parts(problem, nodes.trees()),
          finisher(problem, nodes.trees(), memory),
          chooser(nodes, halt),
          order(nodes.trees()) {}
    Nodes nodes;
    Parts parts;
    Finisher finisher;
    Chooser chooser;
    Order order;
  };
  std::unique_ptr<Trees> trees_;
  std::size_t tree_limit_ = 0;

  std::size_t most_frames_;
  std::vector<Node> frames_;  ///< the depth-first search's path
};

}  // namespace boxqte
