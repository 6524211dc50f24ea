// The search for epsilon > 0: x' may also move along some axes (docs/engine.md, 'Epsilon > 0').
//
// Only fixed axes are split. Once few trees mix them with others, the box becomes a brick, which a walk measures.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <vector>

#include "walk.hpp"

namespace boxqte {

/// What became of a batch of boxes: settled parts and open ones, disjoint, together all of it.
struct WindowReply {
  Masses decided;
  std::vector<Word> settled;         ///< part x axis x word
  std::vector<double> settled_mass;  ///< part x [fair, unfair, low]
  std::vector<Word> open;
  std::vector<double> open_mass;
  std::int64_t nodes = 0, tiles = 0;
};

struct WindowOptions {
  int mixed_limit = 10;      ///< measure a box once at most this many of its trees mix fixed and other axes
  double cell_limit = 1024;  ///< or once those trees span at most this many cells of the fixed axes
  Walk::Options walk;
  std::size_t memory = 0;
};

class WindowWorker {
 public:
  WindowWorker(const Problem& problem, const WindowOptions& options);

  /// Take boxes apart depth first, until the work of about `budget` nodes is done.
  WindowReply work(const Word* boxes, std::size_t n, std::int64_t budget);

  /// From another thread: leave the brick under work, however large it is; its box stays open.
  void halt() { halted_.store(true, std::memory_order_relaxed); }

  std::size_t bytes() const;

 private:
  struct Frame {
    Node node;
    int cut = -1;
    int side = 0;  ///< how many sides are done
  };
  enum class Outcome { settled, split };

  void search(const Word* box, std::int64_t budget, WindowReply& reply, std::vector<Word>& open,
              std::vector<double>& open_mass);
  Outcome settle(Frame& frame, Masses& masses);
  int choose_cut(const Node& node);
  void score(TreeId tree, double weight);
  void keep_rules(Node& node) const;
  int cut_of_rule(const Node& node) const;
  bool is_brick(const Node& node);
  Frame& frame(std::size_t f);

  const Problem& problem_;
  WindowOptions options_;
  Limits limits_;
  Memory memory_;
  std::atomic<bool> halted_{false};
  Counters counters_;
  Nodes nodes_;
  Layouts layouts_;
  Walk walk_;
  std::vector<Word> fixed_, active_;
  std::vector<double> score_;
  std::deque<Frame> frames_;
};

}  // namespace boxqte
