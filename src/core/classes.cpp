#include "classes.hpp"

#include <algorithm>
#include <stdexcept>

#include "masses.hpp"

namespace boxqte {

namespace {

/// The leaves of a tree that a box reaches, class by class.
struct TreeBounds {
  std::vector<std::int64_t> least, most, lead;
  int axis = -1;  ///< of the first test that the box does not settle
  std::int64_t cell = 0;
  std::vector<std::int32_t> stack;

  explicit TreeBounds(int n_classes)
      : least(n_classes), most(n_classes), lead(static_cast<std::size_t>(n_classes) * n_classes) {}

  void visit(const Forest& forest, int tree, const std::int32_t* low, const std::int32_t* high) {
    const auto n = static_cast<int>(least.size());
    const int output = forest.output[tree];
    bool first = true;
    axis = -1;
    stack.assign(1, forest.root[tree]);
    while (!stack.empty()) {
      int node = stack.back();
      stack.pop_back();
      while (forest.axis[node] >= 0) {
        const int a = forest.axis[node], side = forest.side(node, low[a], high[a]);
        if (side < 0) {
          if (axis < 0) {
            axis = a;
            cell = forest.cut[node] >= 0 ? forest.cut[node] : (low[a] + high[a] + 1) / 2;
          }
          stack.push_back(forest.no[node]);
        }
        node = side == 0 ? forest.no[node] : node + 1;
      }
      for (int c = output < 0 ? 0 : output; c < (output < 0 ? n : output + 1); ++c) {
        const std::int64_t v = forest.adds(tree, node, c);
        least[c] = first ? v : std::min(least[c], v);
        most[c] = first ? v : std::max(most[c], v);
        for (int r = 0; output < 0 && r < n; ++r) {
          const std::int64_t d = v - forest.adds(tree, node, r);
          std::int64_t& smallest = lead[static_cast<std::size_t>(c) * n + r];
          smallest = first ? d : std::min(smallest, d);
        }
      }
      first = false;
    }
  }
};

}  // namespace

void bound_classes(const Forest& forest, const std::int32_t* low, const std::int32_t* high, std::size_t n_boxes,
                   const ClassBounds& out) {
  const int n = forest.n_outputs(), n_axes = forest.n_axes();
  std::vector<std::size_t> line_start(1, 0);
  for (int a = 0; a < n_axes; ++a) line_start.push_back(line_start.back() + forest.of(a).n_cells + 1);
  std::vector<std::int64_t> score(line_start.back() + 1);
  TreeBounds tree(n);
  for (std::size_t i = 0; i < n_boxes; ++i) {
    std::int64_t *least = out.least + i * n, *most = out.most + i * n, *lead = out.lead + i * n * n,
                 *cut = out.cut + 2 * i;
    for (int c = 0; c < n; ++c) {
      least[c] = most[c] = forest.base[c];
      for (int r = 0; r < n; ++r) lead[c * n + r] = forest.base[c] - forest.base[r];
    }
    std::fill(score.begin(), score.end(), 0);
    std::int64_t best = 0;
    cut[0] = -1;
    cut[1] = 0;
    for (int t = 0; t < static_cast<int>(forest.root.size()); ++t) {
      tree.visit(forest, t, low + i * n_axes, high + i * n_axes);
      const int output = forest.output[t];
      std::int64_t spread = 0;
      for (int c = output < 0 ? 0 : output; c < (output < 0 ? n : output + 1); ++c) {
        least[c] += tree.least[c];
        most[c] += tree.most[c];
        spread = std::max(spread, tree.most[c] - tree.least[c]);
        for (int r = 0; r < n; ++r) {
          if (output < 0) {
            lead[c * n + r] += tree.lead[static_cast<std::size_t>(c) * n + r];
          } else if (r != c) {
            lead[c * n + r] += tree.least[c];
            lead[r * n + c] -= tree.most[c];
          }
        }
      }
      if (tree.axis < 0) continue;
      std::int64_t& here = score[line_start[tree.axis] + tree.cell];
      here += spread;
      if (here > best) {
        best = here;
        cut[0] = tree.axis;
        cut[1] = tree.cell;
      }
    }
  }
}

void split_boxes(const Forest& forest, const std::int64_t* ranges, const std::int64_t* cut, std::size_t n,
                 std::int64_t* sides) {
  const std::size_t width = 2 * static_cast<std::size_t>(forest.n_axes());
  std::copy_n(ranges, n * width, sides);
  std::copy_n(ranges, n * width, sides + n * width);
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t* box = ranges + i * width;
    std::int64_t a = cut[2 * i], at = 0;
    if (a >= 0) {
      const std::vector<std::int32_t>& base = forest.of(static_cast<int>(a)).base;
      at = std::lower_bound(base.begin(), base.end(), cut[2 * i + 1]) - base.begin();
    } else {
      a = 0;
      for (int b = 1; b < forest.n_axes(); ++b)
        if (box[2 * b + 1] - box[2 * b] > box[2 * a + 1] - box[2 * a]) a = b;
      at = (box[2 * a] + box[2 * a + 1] + 1) / 2;
    }
    sides[i * width + 2 * a + 1] = at - 1;
    sides[(n + i) * width + 2 * a] = at;
  }
}

void box_masses(const std::int64_t* ranges, std::size_t n, std::size_t n_axes, const double* mass, std::size_t width,
                double* total) {
  for (std::size_t i = 0; i < n; ++i) {
    total[i] = 1.0;
    for (std::size_t a = 0; a < n_axes; ++a) {
      const std::int64_t first = ranges[2 * (i * n_axes + a)], last = ranges[2 * (i * n_axes + a) + 1];
      if (first < 0 || last >= static_cast<std::int64_t>(width)) throw std::invalid_argument("classes: cells of a box");
      Sum sum;
      for (std::int64_t r = first; r <= last; ++r) sum.add(mass[a * width + r]);
      total[i] *= sum.value();
    }
  }
}

}  // namespace boxqte
