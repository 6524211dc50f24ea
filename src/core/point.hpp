// Batches of points: is this x confident, and is it a counterexample?
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "combination_sums.hpp"
#include "leaf_masks.hpp"
#include "masses.hpp"
#include "window_search.hpp"

namespace boxqte {

inline constexpr std::int8_t kind_close = 5;  ///< 64 bits cannot tell: to be decided in whole integers
inline constexpr std::int8_t kind_open = 6;   ///< confident, to be decided

/// Class and confidence of a binary model: as Thresholds in problem.hpp.
struct PointThresholds {
  std::int64_t pos, neg, conf_pos, conf_neg, counted;
};

/// Questions with partners (partners.hpp): what each x looks for, and among whom.
struct PointTargets {
  static constexpr std::int64_t nobody_below = std::numeric_limits<std::int64_t>::min(),
                                nobody_above = std::numeric_limits<std::int64_t>::max();

  const std::int64_t* target;  ///< point x 2: x' with F <= the first, or with F >= the second
  const std::int64_t* slack;   ///< point: sums and targets together are within this of the exact ones
  int axis = -1;               ///< the attribute that says who is a partner; -1: all are
  const std::int32_t* ranges;  ///< 4 x cell of that attribute: first and last for the first target, and for the second
  std::size_t n_cells = 0;
};

/// Points by their refined cells (point x attribute), and what becomes of them.
struct PointBatch {
  const std::int64_t* cells;
  std::size_t n;
  const std::int32_t* low =
      nullptr;  ///< if given: the first and last base cells that x' may take (point x attribute), within
  const std::int32_t* high = nullptr;  ///< those that the property allows
  std::int8_t* verdict;                ///< a Kind, kind_close or kind_open
  std::int32_t* witness;               ///< point x attribute: base cells of x', -1 if there is none
};

/// The combinations whose cell on an axis is first..last; without `place`: all.
struct PlaceRange {
  const std::int32_t* place = nullptr;  ///< combination -> its cell
  std::int32_t first = 0, last = 0;
};

class Points {
 public:
  Points(Forest forest, std::int64_t fuzz, int dense_limit, std::size_t mask_bytes);

  const Forest& forest() const { return forest_; }
  std::size_t bytes() const;

  /// A binary model: every point is decided.
  void decide(const PointBatch& batch, const PointThresholds& thresholds, std::int64_t budget, int workers,
              const std::function<void()>& poll);

  /// A binary model with partners: the points that are kind_open. x' has other sensitive cells than x; those of the same
  /// cells have its margin, which is never what it looks for.
  void decide_targets(const PointBatch& batch, const PointTargets& targets, std::int64_t budget, int workers,
                      const std::function<void()>& poll);

  /// Several classes: the points that are kind_open, whose classes are given.
  void decide_rivals(const PointBatch& batch, const std::int64_t* own_class, std::int64_t budget, int workers,
                     const std::function<void()>& poll);

  /// All outputs at base cells (point x attribute).
  void margins(const std::int64_t* cells, std::size_t n, std::int64_t* outputs, int workers,
               const std::function<void()>& poll);

 private:
  /// What a thread needs for itself.
  struct Desk {
    explicit Desk(const Points& points) : search(points.forest_, points.dense_limit_) {}
    Window window;
    WindowSearch search;
    LeafMasks local;
    std::vector<std::int32_t> cells;
    std::vector<std::int64_t> totals, outputs;
    std::vector<Question> questions;
  };
  class Lent;

  void in_chunks(const PointBatch& batch, int workers, const std::function<void()>& poll,
                 const std::function<void(Desk&, std::size_t, std::size_t, std::atomic<bool>&)>& work);
  void check_cells(const PointBatch& batch) const;
  bool place(const PointBatch& batch, std::size_t i, Window& window) const;
  void sum_up(const PointBatch& batch, std::size_t first, std::size_t last, Desk& desk) const;
  void enter(Desk& desk) const;
  bool ask(const PointThresholds& t, std::int64_t margin, std::int8_t& verdict, std::vector<Question>& questions) const;
  void ask_rivals(int own_class, std::vector<Question>& questions) const;
  Found answer(Desk& desk, const std::int64_t* totals, Effort& effort) const;
  Found look(const PointTargets& targets, std::size_t i, int cell, const std::vector<std::int32_t>& place, Desk& desk,
             const std::int64_t* totals, Effort& effort) const;
  Found among_combinations(Desk& desk, const std::int64_t* totals, const Question& question,
                           const PlaceRange& range = {}) const;
  void note(const PointBatch& batch, std::size_t i, Found found, const Desk& desk, bool idle_differs = true) const;

  Forest forest_;
  std::int64_t fuzz_;
  int dense_limit_;
  std::unique_ptr<LeafMasks> whole_;       ///< where they fit into memory; otherwise masks are made for each window
  std::unique_ptr<CombinationSums> sums_;  ///< where x' differs in sensitive cells only
  std::mutex mutex_;
  std::vector<std::unique_ptr<Desk>> desks_;
};

}  // namespace boxqte
