#include "enclose.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace boxqte {

namespace {
constexpr int most_own_cells = 1 << 12;  // a tree on a larger grid of its own counts with its smallest and largest leaf
constexpr int bucket_cells = 2048;       // of the grid of trees that lie in both halves
constexpr int block = 64;                // sums are taken in blocks of this many terms, as in finish.cpp
constexpr std::int64_t n_buckets = 1 << 13;
}  // namespace

void Distribution::assign(const std::int64_t* value, const double* mass, int n) {
  least_ = *std::min_element(value, value + n);
  most_ = *std::max_element(value, value + n);
  for (shift_ = 0; (most_ - least_) >> shift_ >= n_buckets;) ++shift_;
  top_ = (most_ - least_) >> shift_;
  below_.assign(top_ + 4, 0.0);
  for (int i = 0; i < n; ++i) below_[((value[i] - least_) >> shift_) + 2] += mass[i];
  for (std::int64_t k = 2; k < top_ + 4; ++k) below_[k] += below_[k - 1];
}

Encloser::Encloser(const Problem& problem, std::size_t memory)
    : problem_(problem),
      memory_(memory),
      trees_(std::make_unique<Trees>(problem)),
      mask_(problem.axes.size()),
      tree_low_(most_own_cells),
      tree_high_(most_own_cells) {}

void Encloser::check_boxes(std::size_t n_axes, std::size_t words) const {
  if (n_axes != static_cast<std::size_t>(problem_.axes.size()) || words != static_cast<std::size_t>(problem_.cuts.words))
    throw std::invalid_argument("boxes: expected box x axis x word");
}

std::size_t Encloser::bytes() const {
  return trees_->nodes.bytes() + 8 * (pool_.capacity() + 6 * mass_[0].capacity() + 8 * mass_[1].capacity());
}

// --- one tree ----------------------------------------------------------------------------------------------------------

Encloser::Scope Encloser::scope_of(TreeId tree) const {
  Scope scope{};
  for (int h = 0; h < 2; ++h) {
    const std::vector<int>& axis = trees_->halves.half(h).axis;
    for (std::size_t i = 0; i < axis.size(); ++i)
      if (trees_->nodes.trees().tests(tree, axis[i])) scope[h] |= Word{1} << i;
  }
  return scope;
}

std::int64_t Encloser::cells_of(const Scope& scope) const {
  std::int64_t cells = 1;
  for (int h = 0; h < 2; ++h)
    for (Word word = scope[h]; word != 0 && cells <= most_own_cells; word &= word - 1)
      cells *= trees_->halves.half(h).size[first_bit(word)];
  return cells;
}

void Encloser::lay_out(const Scope& scope) {
  own_.clear();
  own_cells_ = {1, 1};
  own_axes_ = scope;
  for (int h = 0; h < 2; ++h) {
    const Half& half = trees_->halves.half(h);
    for (Word word = scope[h]; word != 0; word &= word - 1) {
      const int i = first_bit(word);
      own_.push_back({half.axis[i], half.size[i], 1});
      own_cells_[h] *= half.size[i];
      mask_[half.axis[i]] = low_bits(half.size[i]);
    }
  }
  for (int i = static_cast<int>(own_.size()) - 2; i >= 0; --i) own_[i].stride = own_[i + 1].stride * own_[i + 1].size;
}

void Encloser::fill_anew(TreeId tree) {
  const int cells = own_cells_[0] * own_cells_[1];
  std::fill_n(tree_low_.begin(), cells, std::numeric_limits<std::int64_t>::max());
  std::fill_n(tree_high_.begin(), cells, std::numeric_limits<std::int64_t>::min());
  fill(tree);
}

void Encloser::fill(TreeId tree) {
  // A cell of a coarse grid may reach several leaves: where a cut was forgotten, both sides count.
  const Record record = trees_->nodes.trees()[tree];
  if (record.is_leaf()) return fill_block(record.least);
  const int axis = problem_.cuts.axis[record.cut];
  if (trees_->halves.half_of(axis) < 0) {
    fill(record.yes);
    return fill(record.no);
  }
  const Word held = mask_[axis];
  for (const int side : {1, 0}) {
    mask_[axis] = held & trees_->halves.can(record.cut, side);
    if (mask_[axis]) fill(side ? record.yes : record.no);
  }
  mask_[axis] = held;
}

void Encloser::fill_block(std::int64_t value) {
  const auto visit = [&](const auto& self, std::size_t i, std::ptrdiff_t at) -> void {
    if (i == own_.size()) {
      tree_low_[at] = std::min(tree_low_[at], value);
      tree_high_[at] = std::max(tree_high_[at], value);
      return;
    }
    for (Word word = mask_[own_[i].axis]; word != 0; word &= word - 1)
      self(self, i + 1, at + first_bit(word) * own_[i].stride);
  };
  visit(visit, 0, 0);
}

Encloser::Piece Encloser::add_piece(int half, std::span<const std::int64_t> low, std::span<const std::int64_t> high) {
  const std::size_t at = pool_.size();
  pool_.insert(pool_.end(), low.begin(), low.end());
  pool_.insert(pool_.end(), high.begin(), high.end());
  return {at, static_cast<int>(low.size()), own_axes_[half], own_axes_[half] ? last_bit(own_axes_[half]) : -1};
}

void Encloser::put_into_bucket(TreeId tree, const Scope& scope) {
  Bucket* best = nullptr;
  double growth = 0.0;
  Scope joint{};
  for (int i = 0; i < n_buckets_; ++i) {
    const Scope both{buckets_[i].scope[0] | scope[0], buckets_[i].scope[1] | scope[1]};
    const std::int64_t cells = cells_of(both);
    const double longer = static_cast<double>(cells) / static_cast<double>(buckets_[i].cells);
    if (cells > bucket_cells || (best && longer >= growth)) continue;
    best = &buckets_[i];
    growth = longer;
    joint = both;
  }
  if (!best) {
    if (n_buckets_ == static_cast<int>(buckets_.size())) buckets_.emplace_back();
    best = &buckets_[n_buckets_++];
    best->trees.clear();
    joint = scope;
  }
  best->trees.push_back(tree);
  best->scope = joint;
  best->cells = cells_of(joint);
}

void Encloser::enclose_common() {
  const Node& node = trees_->node;
  n_buckets_ = 0;
  for (int t = 0; t < node.n_common; ++t) {
    const TreeId tree = node.common[t];
    const Scope scope = scope_of(tree);
    if (cells_of(scope) > most_own_cells) {
      loose_.add(trees_->nodes.trees()[tree]);
    } else if (scope[0] && scope[1]) {
      put_into_bucket(tree, scope);
    } else {
      lay_out(scope);
      fill_anew(tree);
      const int half = scope[1] ? Halves::scalar : Halves::vector;
      const auto cells = static_cast<std::size_t>(own_cells_[half]);
      pieces_[half].push_back(add_piece(half, {tree_low_.data(), cells}, {tree_high_.data(), cells}));
    }
  }
  for (int b = 0; b < n_buckets_; ++b) {
    lay_out(buckets_[b].scope);
    const auto cells = static_cast<std::size_t>(buckets_[b].cells);
    sum_low_.assign(cells, 0);
    sum_high_.assign(cells, 0);
    for (const TreeId tree : buckets_[b].trees) {
      fill_anew(tree);
      for (std::size_t i = 0; i < cells; ++i) {
        sum_low_[i] += tree_low_[i];
        sum_high_[i] += tree_high_[i];
      }
    }
    divide();
  }
}

void Encloser::divide() {
  // Nearly a sum of two functions u(x1) + v(x2): halfway between the extremes, first along one half, then along the other.
  const auto [n1, n2] = own_cells_;
  const std::int64_t *low = sum_low_.data(), *high = sum_high_.data();
  part_low_.resize(n1 + n2);
  part_high_.resize(n1 + n2);
  std::int64_t *u = part_low_.data(), *v = u + n1;
  for (int i = 0; i < n1; ++i) {
    std::int64_t least = low[i * n2], most = high[i * n2];
    for (int j = 1; j < n2; ++j) {
      least = std::min(least, low[i * n2 + j]);
      most = std::max(most, high[i * n2 + j]);
    }
    u[i] = least + (most - least) / 2;
  }
  for (int j = 0; j < n2; ++j) {
    std::int64_t least = low[j] - u[0], most = high[j] - u[0];
    for (int i = 1; i < n1; ++i) {
      least = std::min(least, low[i * n2 + j] - u[i]);
      most = std::max(most, high[i * n2 + j] - u[i]);
    }
    v[j] = least + (most - least) / 2;
  }
  // One half takes its function as it is; the other takes what is then left, cell by cell the smallest and the largest.
  std::vector<std::int64_t>& left_low = spare_[0];
  std::vector<std::int64_t>& left_high = spare_[1];
  left_low.assign(n1 + n2, std::numeric_limits<std::int64_t>::max());
  left_high.assign(n1 + n2, std::numeric_limits<std::int64_t>::min());
  for (int i = 0; i < n1; ++i)
    for (int j = 0; j < n2; ++j) {
      const std::int64_t from = low[i * n2 + j], to = high[i * n2 + j];
      left_low[i] = std::min(left_low[i], from - v[j]);
      left_high[i] = std::max(left_high[i], to - v[j]);
      left_low[n1 + j] = std::min(left_low[n1 + j], from - u[i]);
      left_high[n1 + j] = std::max(left_high[n1 + j], to - u[i]);
    }
  double width[2] = {0.0, 0.0};
  for (int i = 0; i < n1; ++i) width[0] += static_cast<double>(left_high[i] - left_low[i]) / n1;
  for (int j = n1; j < n1 + n2; ++j) width[1] += static_cast<double>(left_high[j] - left_low[j]) / n2;
  const std::size_t n[2] = {static_cast<std::size_t>(n1), static_cast<std::size_t>(n2)};
  const int takes = width[0] <= width[1] ? 0 : 1, other = 1 - takes;
  const std::size_t first[2] = {0, n[0]};
  pieces_[takes].push_back(
      add_piece(takes, {left_low.data() + first[takes], n[takes]}, {left_high.data() + first[takes], n[takes]}));
  pieces_[other].push_back(
      add_piece(other, {part_low_.data() + first[other], n[other]}, {part_low_.data() + first[other], n[other]}));
}

Encloser::Piece Encloser::row_piece(TreeId tree) {
  for (const RowPiece& known : row_pieces_)
    if (known.tree == tree) return known.piece;
  const Record record = trees_->nodes.trees()[tree];
  std::size_t n1 = 1;
  const Scope scope = scope_of(tree);
  if (cells_of(scope) <= most_own_cells) {
    lay_out(scope);
    fill_anew(tree);
    const int n2 = own_cells_[Halves::scalar];
    n1 = own_cells_[Halves::vector];
    part_low_.resize(n1);
    part_high_.resize(n1);
    for (std::size_t i = 0; i < n1; ++i) {
      part_low_[i] = *std::min_element(&tree_low_[i * n2], &tree_low_[i * n2] + n2);
      part_high_[i] = *std::max_element(&tree_high_[i * n2], &tree_high_[i * n2] + n2);
    }
  } else {
    own_axes_ = {0, 0};
    part_low_.assign(1, record.least);
    part_high_.assign(1, record.most);
  }
  row_pieces_.push_back({tree, add_piece(Halves::vector, {part_low_.data(), n1}, {part_high_.data(), n1})});
  return row_pieces_.back().piece;
}

// --- sums on a half ----------------------------------------------------------------------------------------------------

void Encloser::add_spread(const Piece& piece, const int* size, int first, int n, std::int64_t sign, Enclosed& out) {
  // Add the piece to the grid of the half's axes first..n-1. Neighbouring axes that are all in the piece, or all outside it, are
  // one long axis.
  struct Run {
    std::ptrdiff_t length, stride, at;
  };
  std::array<Run, word_bits> runs;
  int n_runs = 0;
  std::ptrdiff_t stride = piece.cells;
  for (int i = first; i < n; ++i) {
    const bool inside = (piece.axes >> i & 1) != 0;
    if (inside) stride /= size[i];
    const std::ptrdiff_t own = inside ? stride : 0;
    if (n_runs > 0 && runs[n_runs - 1].stride == own * size[i]) {
      runs[n_runs - 1].length *= size[i];
      runs[n_runs - 1].stride = own;
    } else {
      runs[n_runs++] = {size[i], own, 0};
    }
  }
  const std::int64_t *from = pool_.data() + piece.at, *to = from + piece.cells;
  std::int64_t *low = out.low.data(), *high = out.high.data();
  if (n_runs == 0) {
    *low += sign * *from;
    *high += sign * *to;
    return;
  }
  const Run inner = runs[n_runs - 1];
  for (;;) {
    if (inner.stride != 0) {
      for (std::ptrdiff_t j = 0; j < inner.length; ++j) {
        low[j] += sign * from[j];
        high[j] += sign * to[j];
      }
    } else {
      const std::int64_t least = sign * *from, most = sign * *to;
      for (std::ptrdiff_t j = 0; j < inner.length; ++j) {
        low[j] += least;
        high[j] += most;
      }
    }
    low += inner.length;
    high += inner.length;
    int i = n_runs - 2;
    for (; i >= 0; --i) {
      from += runs[i].stride;
      to += runs[i].stride;
      if (++runs[i].at < runs[i].length) break;
      from -= runs[i].stride * runs[i].length;
      to -= runs[i].stride * runs[i].length;
      runs[i].at = 0;
    }
    if (i < 0) return;
  }
}

void Encloser::grow(int h, Enclosed& out) {
  // The grid grows axis by axis: a piece joins as soon as all its axes are there.
  const Half& half = trees_->halves.half(h);
  out.resize(half.cells);
  out.low[0] = out.high[0] = 0;
  std::ptrdiff_t cells = 1;
  const int n = static_cast<int>(half.axis.size());
  for (int grown = 0; grown <= n; ++grown) {
    if (grown > 0) {
      const int size = half.size[grown - 1];
      for (std::ptrdiff_t cell = cells - 1; cell >= 0; --cell) {
        std::fill_n(out.low.begin() + cell * size, size, out.low[cell]);
        std::fill_n(out.high.begin() + cell * size, size, out.high[cell]);
      }
      cells *= size;
    }
    for (const Piece& piece : pieces_[h])
      if (piece.last == grown - 1) add_spread(piece, half.size.data(), 0, grown, 1, out);
  }
}

void Encloser::enclose_rows() {
  // The sums of one class become the next one's: most of their trees are the same.
  const Node& node = trees_->node;
  const Half& half = trees_->halves.half(Halves::vector);
  const int n = static_cast<int>(half.axis.size()), first = n - trees_->halves.row_axes();
  std::size_t cells = 1;
  for (int i = first; i < n; ++i) cells *= half.size[i];
  row_pieces_.clear();
  rows_.low.assign(cells, 0);
  rows_.high.assign(cells, 0);
  const bool simple = problem_.thresholds.simple;
  if (!simple && classes_.size() < static_cast<std::size_t>(node.n_classes)) classes_.resize(node.n_classes);
  for (int c = 0; c < node.n_classes; ++c) {
    for (int r = 0; r < node.n_rows; ++r) {
      const TreeId tree = node.row(r)[c];
      if (c > 0 && tree == node.row(r)[c - 1]) continue;
      if (c > 0) add_spread(row_piece(node.row(r)[c - 1]), half.size.data(), first, n, -1, rows_);
      add_spread(row_piece(tree), half.size.data(), first, n, 1, rows_);
    }
    const std::int64_t offset = node.offset[c];
    if (c == 0) {
      least_.resize(cells);
      most_.resize(cells);
    }
    const int counted = problem_.thresholds.counted;  // Theorem 2a: one of the extremes is that of x, who is in class 0
    for (std::size_t i = 0; i < cells; ++i) {
      const std::int64_t low = rows_.low[i] + offset, high = rows_.high[i] + offset;
      if (c == 0 || counted >= 0) {
        least_.low[i] = c == 0 ? low : std::min(least_.low[i], low);
        least_.high[i] = c == 0 ? high : std::min(least_.high[i], high);
      }
      if (c == 0 || counted <= 0) {
        most_.low[i] = c == 0 ? low : std::max(most_.low[i], low);
        most_.high[i] = c == 0 ? high : std::max(most_.high[i], high);
      }
    }
    if (simple) continue;
    classes_[c].low.assign(rows_.low.begin(), rows_.low.end());
    classes_[c].high.assign(rows_.high.begin(), rows_.high.end());
  }
}

void Encloser::cell_masses(int h, std::vector<double>& out) const {
  const Half& half = trees_->halves.half(h);
  out.resize(half.cells);
  out[0] = 1.0;
  std::ptrdiff_t cells = 1;
  for (std::size_t i = 0; i < half.axis.size(); ++i) {
    const int size = half.size[i];
    for (std::ptrdiff_t cell = cells - 1; cell >= 0; --cell) {
      const double mass = out[cell];
      for (int g = 0; g < size; ++g) out[cell * size + g] = mass * trees_->halves.group_mass(half.axis[i], g);
    }
    cells *= size;
  }
}

// --- counting ----------------------------------------------------------------------------------------------------------

void Encloser::count_signs(Proved& found) {
  // Theorem 10 (a). `fair` is what may be unfair, for now.
  const Thresholds& t = problem_.thresholds;
  const std::int64_t margin = t.band + t.fuzz;
  const int n_rows = static_cast<int>(rows_.low.size()), n_outer = trees_->halves.half(Halves::vector).cells / n_rows;
  const std::int64_t at_most = t.neg - loose_.low + margin, at_least = t.neg - loose_.high - margin;
  Sum may, must;
  double may_block = 0.0, must_block = 0.0;
  int terms = 0;
  for (int o = 0; o < n_outer; ++o) {
    const std::int64_t *low = sums_[0].low.data() + static_cast<std::ptrdiff_t>(o) * n_rows,
                       *high = sums_[0].high.data() + static_cast<std::ptrdiff_t>(o) * n_rows;
    const double* mass = mass_[0].data() + static_cast<std::ptrdiff_t>(o) * n_rows;
    for (int r = 0; r < n_rows; ++r) {
      const std::int64_t maybe_neg = at_most - low[r] - least_.low[r], never_pos = at_least - high[r] - most_.high[r];
      if (maybe_neg < low_.least() || never_pos >= high_.most()) continue;
      may_block += mass[r] * std::max(low_.at_most(maybe_neg) - high_.at_least(never_pos), 0.0);
      const std::int64_t some_neg = at_least - high[r] - least_.high[r], no_pos = at_most - low[r] - most_.low[r];
      if (some_neg > no_pos) {
        const double both = high_.at_least(some_neg) - low_.at_most(no_pos);
        must_block += mass[r] * std::max(both, 0.0);
      }
      if (++terms % block != 0) continue;
      may.add(may_block);
      must.add(must_block);
      may_block = must_block = 0.0;
    }
  }
  may.add(may_block);
  must.add(must_block);
  found.fair = may.value();
  found.unfair = must.value();
}

void Encloser::count_confident(Proved& found) {
  // Theorem 10 (b), class by class.
  const Thresholds& t = problem_.thresholds;
  const Node& node = trees_->node;
  const std::int64_t margin = t.band + t.fuzz, down = loose_.low - margin, up = loose_.high + margin;
  const int n_rows = static_cast<int>(rows_.low.size()), n_cells = trees_->halves.half(Halves::vector).cells;
  const auto low_below = [&](std::int64_t limit) { return low_.at_most(limit); };
  const auto high_below = [&](std::int64_t limit) { return high_.at_least(limit); };
  const double all = low_.all();
  Sum fair, unfair, low;
  for (int cell = 0, r = 0; cell < n_cells; ++cell, r = r + 1 == n_rows ? 0 : r + 1) {
    const std::int64_t from = sums_[0].low[cell] + down, to = sums_[0].high[cell] + up;
    const double some_neg = high_below(t.neg - to - least_.high[r]),
                 some_pos_not = low_below(t.pos - 1 - from - most_.low[r]);
    double cell_fair = 0.0, cell_unfair = 0.0, cell_low = 0.0;
    for (int c = 0; c < node.n_classes; ++c) {
      const std::int64_t own_low = from + classes_[c].low[r] + node.offset[c];
      const std::int64_t own_high = to + classes_[c].high[r] + node.offset[c];
      const double maybe_below_pos = low_below(t.conf_pos - 1 - own_low), in_neg = high_below(t.conf_neg - own_high);
      const double mass = node.class_mass[c];
      const double between = high_below(t.conf_pos - 1 - own_high) - low_below(t.conf_neg - own_low);
      cell_low += mass * std::max(between, 0.0);
      cell_unfair += mass * (std::max(some_neg - maybe_below_pos, 0.0) + std::max(in_neg - some_pos_not, 0.0));
      const std::int64_t not_pos = std::max(t.conf_pos - 1 - own_low, t.neg - from - least_.low[r]);
      const std::int64_t neg = std::min(t.conf_neg - own_high, t.pos - 1 - to - most_.high[r]);
      cell_fair += mass * (std::max(all - low_below(not_pos), 0.0) + high_below(neg));
    }
    const double w = mass_[0][cell];
    fair.add(w * cell_fair);
    unfair.add(w * cell_unfair);
    low.add(w * cell_low);
  }
  found = {fair.value(), unfair.value(), low.value()};
}

Proved Encloser::enclose(const Word* box, double cells) {
  if (trees_->nodes.bytes() > memory_) trees_ = std::make_unique<Trees>(problem_);
  Node& node = trees_->node;
  trees_->nodes.load(box, node);
  trees_->halves.choose(node, cells);
  pool_.clear();
  pieces_[0].clear();
  pieces_[1].clear();
  loose_ = {};
  enclose_common();
  enclose_rows();
  for (int h = 0; h < 2; ++h) {
    grow(h, sums_[h]);
    cell_masses(h, mass_[h]);
  }
  const int n = trees_->halves.half(Halves::scalar).cells;
  low_.assign(sums_[1].low.data(), mass_[1].data(), n);
  high_.assign(sums_[1].high.data(), mass_[1].data(), n);
  double outside = 1.0;
  for (int axis = 0; axis < problem_.axes.size(); ++axis)
    if (trees_->halves.half_of(axis) < 0) outside *= node.axis_mass[axis];
  Proved found;
  if (problem_.thresholds.simple) {
    count_signs(found);
    return {std::max(node.mass() - outside * found.fair, 0.0) * node.allowed, outside * found.unfair * node.allowed,
            node.mass() * node.forbidden};
  }
  count_confident(found);
  return {outside * found.fair, outside * found.unfair, outside * found.low + node.mass() * node.forbidden};
}

}  // namespace boxqte
