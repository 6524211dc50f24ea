// Certain bounds inside a box that is too large to finish (docs/engine.md, Theorem 10).
//
// As many trees as can be counted are kept, the widest first. The others are put into buckets with small joint grids, and each
// bucket is replaced by the interval of its sums; then the box is counted with thresholds that are moved outwards.
#pragma once

#include <cstdint>
#include <vector>

#include "components.hpp"
#include "finish.hpp"
#include "node.hpp"

namespace boxqte {

class Encloser {
 public:
  Encloser(Nodes& nodes, Finisher& finisher, double finish_limit);

  /// Lower bounds of the masses of the box; what they leave of its mass is not known.
  Certain enclose(const Word* box);

 private:
  /// Common trees whose sum is replaced by its smallest and largest value.
  struct Bucket {
    std::vector<TreeId> trees;
    std::vector<Word> axes, cuts;
    double cells = 1.0;
  };
  /// A tree of the box, or a row of trees, and how much its value varies.
  struct Candidate {
    std::int64_t spread;
    int at;
    bool row;
  };

  void rank_trees();
  void keep_widest();
  bool keep(const Candidate& candidate);
  void leave_out(TreeId tree);
  double joint_cells(const Bucket& bucket, TreeId tree);
  void put_into_bucket(TreeId tree);

  const Problem& problem_;
  Nodes& nodes_;
  const ResidualTrees& trees_;
  Finisher& finisher_;
  double finish_limit_;
  Node node_, kept_;
  Parts parts_, trial_;
  std::vector<Candidate> candidates_;
  std::vector<Bucket> buckets_;  ///< the first n_buckets_; the others are kept for their memory
  int n_buckets_ = 0;
  std::vector<Word> joint_axes_, joint_cuts_;
  std::vector<Interval> slack_;
};

}  // namespace boxqte
