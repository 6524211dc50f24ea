#include "walk.hpp"

#include <algorithm>

namespace boxqte {

namespace {
constexpr std::size_t most_offsets = 4096;  // listed before they are measured
constexpr int most_bitmaps = 16;            // written together, while they are small
constexpr std::int64_t bitmap_words = 1 << 20;
}  // namespace

Walk::Walk(Nodes& nodes, const Limits& limits, const Options& options, Memory& memory, const std::atomic<bool>& halted,
           Counters& counters)
    : nodes_(nodes),
      limits_(limits),
      options_(options),
      halted_(halted),
      counters_(counters),
      fixed_(nodes.trees().axis_words()),
      sensitive_(nodes.trees().axis_words()),
      reader_(nodes, brick_),
      memo_(memory),
      narrow_(memory, memo_, limits, halted),
      middle_(memory, memo_, limits, halted),
      wide_(memory, memo_, limits, halted),
      blocks_(nodes, brick_, limits, memory, halted),
      leaf_cells_(memory),
      sums_(memory),
      extremes_(memory),
      shape_sums_(memory),
      small_cells_(memory),
      votes_(nodes.problem().cuts.size()) {
  const Axes& axes = nodes.problem().axes;
  for (int a = 0; a < axes.size(); ++a) {
    if (axes.role[a] == Role::fixed) set_bit(fixed_.data(), a);
    if (axes.role[a] == Role::sensitive) set_bit(sensitive_.data(), a);
  }
  shape_.walk = this;
  shape_.fuzz = limits.fuzz;
}

bool Walk::over_others(TreeId tree) const {
  const Word* axes = nodes_.trees().axes(tree);
  for (std::size_t w = 0; w < fixed_.size(); ++w)
    if ((axes[w] & ~fixed_[w]) != 0) return true;
  return false;
}

bool Walk::lay(const Node& node, Layouts& layouts) {
  brick_.lay(nodes_, node, layouts, limits_.simple);
  small_ = brick_.cells() <= static_cast<double>(options_.dense_cells);
  return small_;
}

double Walk::box_mass() const {
  double product = 1.0;
  for (const double mass : axis_mass_) product *= mass;
  return product;
}

int Walk::scope_of(TreeId tree) {
  const std::uint64_t places = reader_.places(tree);
  for (int s = 0; s < n_scopes_; ++s)
    if (scopes_[s].mask == places) return s;
  if (n_scopes_ == static_cast<int>(scopes_.size())) scopes_.emplace_back();
  scopes_[n_scopes_].lay(brick_, places);
  scopes_[n_scopes_].lay_rows(brick_);
  return n_scopes_++;
}

/// A cut on a fixed axis that the tree tests, the nearest to its root; -1 if there is none.
int Walk::first_fixed_cut(TreeId tree) {
  std::vector<TreeId> todo{tree};
  for (std::size_t i = 0; i < todo.size(); ++i) {
    const Record record = nodes_.trees()[todo[i]];
    if (record.is_leaf()) continue;
    if (nodes_.problem().axes.role[nodes_.problem().cuts.axis[record.cut]] == Role::fixed) return record.cut;
    todo.push_back(record.yes);
    todo.push_back(record.no);
  }
  return -1;
}

/// The tree as a decision tree over fixed axes with tables at its leaves.
std::int32_t Walk::plant(TreeId tree, Part part) {
  const auto made = static_cast<std::int32_t>(choices_.size());
  choices_.emplace_back();
  choices_[made].part = part;
  choices_[made].least = nodes_.trees()[tree].least;
  choices_[made].most = nodes_.trees()[tree].most;
  const int cut = over_fixed(tree) ? first_fixed_cut(tree) : -1;
  if (cut >= 0) {
    const TreeId yes = nodes_.trees().restrict(tree, cut, 1), no = nodes_.trees().restrict(tree, cut, 0);
    choices_[made].cut = cut;
    const std::int32_t first = plant(yes, part), second = plant(no, part);
    choices_[made].yes = first;
    choices_[made].no = second;
    return made;
  }
  const Record record = nodes_.trees()[tree];
  if (record.is_leaf()) {
    choices_[made].residue = record.residue();
    return made;
  }
  std::size_t known = 0;
  while (known < leaves_.size() && leaves_[known].tree != tree) ++known;
  if (known == leaves_.size()) leaves_.push_back({tree, scope_of(tree), 0});
  choices_[made].table = static_cast<std::int32_t>(known);
  return made;
}

void Walk::lay_trees(const Node& node) {
  choices_.clear();
  pending_.clear();
  base_.clear();
  leaves_.clear();
  applied_.clear();
  offsets_.clear();
  n_scopes_ = 0;
  std::uint64_t range = static_cast<std::uint64_t>(std::abs(node.offset[0]));
  for (int t = 0; t < node.n_common; ++t) {
    const TreeId tree = node.common[t];
    const Record record = nodes_.trees()[tree];
    range += static_cast<std::uint64_t>(std::max(std::abs(record.least), std::abs(record.most)));
    if (over_fixed(tree)) {
      pending_.push_back(plant(tree, over_sensitive(tree) ? Part::sensitive
                                     : over_others(tree)  ? Part::mixed
                                                          : Part::pure));
    } else {
      base_.push_back(tree);
    }
  }
  scale_ = Scale::of(range, node.n_common, limits_.fuzz, options_.sum_bits);
  constant_ = {node.offset[0], node.residue[0]};
  bounds_ = {};
  domain_ = node.domain;
  axis_mass_ = node.axis_mass;
}

/// The tables of a small brick: the leaves' own, and the sum of the trees that are part of every shape.
void Walk::lay_sums() {
  const int vectors = brick_.padded / 8;
  const std::int64_t single = brick_.rows * brick_.padded, all = single * brick_.combinations;
  kept_ = 0;  // Theorem 8b: at simple limits windows see the extremes over S only
  if (limits_.simple && brick_.combinations > (brick_.own_matters ? 4 : 2)) kept_ = brick_.own_matters ? 4 : 2;
  std::size_t size = 0;
  for (Leaf& leaf : leaves_) {
    leaf.at = size;
    size += static_cast<std::size_t>(scopes_[leaf.scope].size + 15) / 8 * 8;
  }
  std::vector<std::pair<int, std::size_t>> based;  // scope -> where the base trees' sum begins
  for (const TreeId tree : base_) {
    const int scope = scope_of(tree);
    if (std::none_of(based.begin(), based.end(), [&](const auto& b) { return b.first == scope; })) {
      based.push_back({scope, size});
      size += static_cast<std::size_t>(scopes_[scope].size + 15) / 8 * 8;
    }
  }
  Cells* cells = leaf_cells_.of(size);
  std::fill_n(cells, size, 0);
  for (const Leaf& leaf : leaves_) reader_.add(leaf.tree, scopes_[leaf.scope], scale_, 1, cells + leaf.at);
  for (const TreeId tree : base_)
    for (const auto& [scope, at] : based)
      if (scopes_[scope].mask == reader_.places(tree)) reader_.add(tree, scopes_[scope], scale_, 1, cells + at);
  const auto n_sensitive = std::count_if(pending_.begin(), pending_.end(),
                                         [&](std::int32_t c) { return choices_[c].part == Part::sensitive; });
  Cells* sums = sums_.of(static_cast<std::size_t>(all * (n_sensitive + 1)));
  std::fill_n(sums, all, 0);
  for (const auto& [s, at] : based) {
    const Scope& scope = scopes_[s];
    if (scope.wide) {
      add_table(sums, cells + at, scope, brick_.all_rows(), vectors, sums);
    } else {
      for (int c = 0; c < brick_.combinations; ++c)
        add_table(sums + c * single, cells + at, scope, brick_.rows, vectors, sums + c * single);
    }
  }
  dense_ = sums;
  const auto [least, most] = std::minmax_element(sums, sums + all);
  bounds_ = {scale_.least(*least), scale_.most(*most)};
  if (kept_ > 0) extremes_.of(static_cast<std::size_t>(single) * kept_);
  n_y_ = brick_.n_levels() > 0 ? brick_.level(brick_.n_levels() - 1).size() : 1;
  n_x_ = brick_.n_levels() > 1 ? brick_.level(brick_.n_levels() - 2).size() : 1;
  n_outer_ = brick_.rows / (n_x_ * n_y_);
  const auto size_of = [&](int s) {
    return (std::int64_t{s & 1 ? brick_.padded : 1} * (s & 2 ? n_y_ : 1) * (s & 4 ? n_x_ : 1));
  };
  bool used[Tile::scopes] = {};
  for (const Leaf& leaf : leaves_)
    if (!scopes_[leaf.scope].wide)
      used[Tile::scope(scopes_[leaf.scope].mask, static_cast<int>(brick_.axes.size()))] = true;
  std::size_t total = 0;
  for (int s = 0; s < Tile::scopes; ++s)
    if (used[s]) total += static_cast<std::size_t>((size_of(s) * n_outer_ + 15) / 8 * 8);
  Cells* small = small_cells_.of(total);
  std::fill_n(small, total, 0);
  for (int s = 0; s < Tile::scopes; ++s) {
    small_tables_[s] = {small, size_of(s), 0};
    if (used[s]) small += (size_of(s) * n_outer_ + 15) / 8 * 8;
  }
}

/// Add or take back a mixed tree's table, in place: integers, so exactly.
void Walk::add_small(const Leaf& leaf, int sign) {
  const Scope& scope = scopes_[leaf.scope];
  Small& into = small_tables_[Tile::scope(scope.mask, static_cast<int>(brick_.axes.size()))];
  into.trees += sign;
  const Cells* table = leaf_cells_.data() + leaf.at;
  Cells* to = into.cells;
  const std::int64_t size = into.size;
  for (std::int64_t o = 0; o < n_outer_; ++o, to += size) {
    const Cells* from = table + scope.row[o * n_x_ * n_y_];
    std::int64_t i = 0;
    for (; i + 8 <= size; i += 8) store(to + i, load(to + i) + sign * load(from + i));
    for (; i < size; ++i) to[i] += sign * from[i];
  }
}

Tile Walk::tile(int copy, std::int64_t outer) const {
  Tile tile;
  tile.n_x = n_x_;
  tile.n_y = n_y_;
  tile.dense = dense_ + (copy * brick_.rows + outer * n_x_ * n_y_) * brick_.padded;
  for (int s = 0; s < Tile::scopes; ++s)
    if (small_tables_[s].trees > 0) tile.table[s] = small_tables_[s].cells + outer * small_tables_[s].size;
  return tile;
}

/// All trees that test S are walked: of the sums over S only the extremes are needed from now on, and who has them (Theorem 8b).
void Walk::keep_extremes() {
  const std::int64_t single = brick_.rows * brick_.padded;
  const Cells* sums = dense_;
  Cells* low = extremes_.data();
  Cells *high = low + single, *low_2 = high + single, *high_2 = low_2 + single;
  for (std::int64_t c = 0; c < single; ++c) {
    low[c] = std::min(sums[c], sums[single + c]);
    high[c] = std::max(sums[c], sums[single + c]);
  }
  if (kept_ == 4) {
    std::copy_n(high, single, low_2);
    std::copy_n(low, single, high_2);
  }
  for (int s = 2; s < brick_.combinations; ++s) {
    const Cells* mine = sums + s * single;
    for (std::int64_t c = 0; c < single && kept_ == 4; ++c) {
      low_2[c] = std::min(low_2[c], std::max(low[c], mine[c]));
      high_2[c] = std::max(high_2[c], std::min(high[c], mine[c]));
    }
    for (std::int64_t c = 0; c < single; ++c) {
      low[c] = std::min(low[c], mine[c]);
      high[c] = std::max(high[c], mine[c]);
    }
  }
  if (kept_ == 4) with_bitmaps([&](auto& bitmaps) { bitmaps.note_extremes(sums, low, high); });
  dense_ = low;
}

void Walk::measure(const Node& node, Masses& masses) {
  masses_ = &masses;
  lay_trees(node);
  const int count =
      small_ ? 1 : static_cast<int>(std::clamp<std::int64_t>(bitmap_words / brick_.all_rows(), 1, most_bitmaps));
  with_bitmaps([&](auto& bitmaps) { bitmaps.lay(brick_, count); });
  if (small_) {
    lay_sums();
  } else {
    kept_ = 0;
    blocks_.lay(scale_, options_.table_cells);
    for (const TreeId tree : base_) bounds_ += {nodes_.trees()[tree].least, nodes_.trees()[tree].most};
  }
  depth_ = 0;
  listing_ = at_extremes_ = false;
  dense_bounds_.assign(pending_.size() + 1, bounds_);
  go(0, pending_.size(), -1);
}

/// Go on where the pending trees are pending_[begin..end) and an axis (-1: any) was narrowed.
///
/// Trees that this settles are added at once: the earlier, the fewer times.
void Walk::go(std::size_t begin, std::size_t end, int axis) {
  if (halted_.load(std::memory_order_relaxed)) return;
  const Cuts& cuts = nodes_.problem().cuts;
  const std::size_t first = pending_.size(), n_applied = applied_.size();
  const Margin constant = constant_;
  const Bounds bounds = bounds_;
  const std::size_t first_leaf = settled_.size();
  Bounds total = bounds_;
  for (std::size_t i = begin; i < end; ++i) {
    std::int32_t c = pending_[i];
    while (choices_[c].cut >= 0 && (axis < 0 || cuts.axis[choices_[c].cut] == axis)) {
      const int side = side_of(choices_[c].cut);
      if (side < 0) break;
      c = side == 1 ? choices_[c].yes : choices_[c].no;
    }
    // below the cuts on the narrowed axis, others may have been settled before
    while (choices_[c].cut >= 0 && c != pending_[i]) {
      const int side = side_of(choices_[c].cut);
      if (side < 0) break;
      c = side == 1 ? choices_[c].yes : choices_[c].no;
    }
    total += {choices_[c].least, choices_[c].most};
    (choices_[c].cut < 0 ? settled_ : pending_).push_back(c);
  }
  if (!settles(total)) {
    for (std::size_t i = first_leaf; i < settled_.size(); ++i) apply(choices_[settled_[i]]);
    advance(first);
    while (applied_.size() > n_applied) take_back();
  }
  settled_.resize(first_leaf);
  pending_.resize(first);
  constant_ = constant;
  bounds_ = bounds;
}

/// Account for the box if these bounds of the whole sum, without the constant, settle it.
bool Walk::settles(const Bounds& total) {
  const Kind kind = limits_.one_kind(constant_.value + total.least, constant_.value + total.most);
  if (kind == Kind::unknown) return false;
  masses_->add(kind, box_mass());
  return true;
}

/// All that is settled is added; branch at a pending tree, those that test S first, or measure.
void Walk::advance(std::size_t first) {
  std::int32_t next = -1;
  Part part = Part::none;
  Bounds total = bounds_;
  for (std::size_t i = first; i < pending_.size(); ++i) {
    const Choice& choice = choices_[pending_[i]];
    total += {choice.least, choice.most};
    part = std::min(part, choice.part);
  }
  if (settles(total)) return;  // sums over all cells tell more than their trees' bounds
  int most = 0;                // the cut that most of them test next
  for (std::size_t i = first; i < pending_.size(); ++i) {
    const Choice& choice = choices_[pending_[i]];
    if (choice.part != part || ++votes_[choice.cut] <= most) continue;
    most = votes_[choice.cut];
    next = choice.cut;
  }
  for (std::size_t i = first; i < pending_.size(); ++i) votes_[choices_[pending_[i]].cut] = 0;
  const Cells* const dense = dense_;
  const bool joins = kept_ > 0 && !at_extremes_ && part != Part::sensitive;
  if (joins) {
    keep_extremes();
    at_extremes_ = true;
  }
  const bool completes = part >= Part::pure && !listing_;
  listing_ |= completes;
  if (part != Part::none) {
    branch(first, next);
  } else {
    offsets_.push_back({constant_, box_mass()});
  }
  if (completes) listing_ = false;
  if (completes || offsets_.size() == most_offsets) measure_shape();
  if (joins) {
    at_extremes_ = false;
    dense_ = dense;
  }
}

void Walk::branch(std::size_t first, int cut) {
  const Problem& problem = nodes_.problem();
  const int axis = problem.cuts.axis[cut], words = problem.cuts.words;
  const Word* mask = problem.cuts.mask_of(cut);
  Word* held = &domain_[static_cast<std::size_t>(axis) * words];
  const double mass = axis_mass_[axis];
  const double* cell_mass = problem.axes.mass_of(axis);
  const std::size_t end = pending_.size(), kept = kept_words_.size();
  kept_words_.insert(kept_words_.end(), held, held + words);
  for (const bool side : {true, false}) {
    double total = 0.0;
    for (int w = 0; w < words; ++w) held[w] = kept_words_[kept + w] & (side ? mask[w] : ~mask[w]);
    each_bit(held, words, [&](int cell) { total += cell_mass[cell]; });
    axis_mass_[axis] = total;
    go(first, end, axis);
  }
  std::copy_n(kept_words_.begin() + static_cast<std::ptrdiff_t>(kept), words, held);
  kept_words_.resize(kept);
  axis_mass_[axis] = mass;
}

int Walk::side_of(int cut) const {
  const Cuts& cuts = nodes_.problem().cuts;
  const Word* held = &domain_[static_cast<std::size_t>(cuts.axis[cut]) * cuts.words];
  const Word* mask = cuts.mask_of(cut);
  Word yes = 0, no = 0;
  for (int w = 0; w < cuts.words; ++w) {
    yes |= held[w] & mask[w];
    no |= held[w] & ~mask[w];
  }
  return yes && no ? -1 : yes ? 1 : 0;
}

/// A tree ended at this leaf: its constant, or its table, joins the sum.
void Walk::apply(const Choice& choice) {
  if (choice.table < 0) {
    constant_ += {choice.least, choice.residue};
    return;
  }
  const Leaf& leaf = leaves_[choice.table];
  const Scope& scope = scopes_[leaf.scope];
  applied_.push_back(choice.table);
  ++counters_.nodes;
  counters_.work += scope.size / 32;
  if (!scope.wide) {
    add_small(leaf, 1);
    bounds_ += {choice.least, choice.most};
    return;
  }
  const std::int64_t single = brick_.rows * brick_.padded;
  const Cells* table = leaf_cells_.data() + leaf.at;
  Cells* to = sums_.data() + ++depth_ * single * brick_.combinations;
  const Extent extent = add_table(dense_, table, scope, brick_.all_rows(), brick_.padded / 8, to);
  dense_ = to;
  const Bounds before = dense_bounds_[depth_ - 1], after = {scale_.least(extent.least), scale_.most(extent.most)};
  bounds_ += {after.least - before.least, after.most - before.most};
  dense_bounds_[depth_] = after;
  counters_.work += brick_.combinations * single / 32;
}

/// Take back the table that joined last.
void Walk::take_back() {
  const Leaf& leaf = leaves_[applied_.back()];
  applied_.pop_back();
  if (scopes_[leaf.scope].wide) {
    dense_ = sums_.data() + --depth_ * brick_.rows * brick_.padded * brick_.combinations;
  } else {
    add_small(leaf, -1);
  }
}

Margin Walk::WalkShape::exact_of(int combination, std::int64_t row, int cell) const {
  const Brick& brick = walk->brick_;
  std::vector<std::int32_t> groups(brick.axes.size());
  groups.back() = cell;
  for (int i = brick.n_levels() - 1; i >= 0; --i) {
    groups[brick.n_sensitive + i] = static_cast<std::int32_t>(row % brick.level(i).size());
    row /= brick.level(i).size();
  }
  for (int i = brick.n_sensitive - 1; i >= 0; --i) {
    groups[i] = combination % brick.axes[i]->size();
    combination /= brick.axes[i]->size();
  }
  Margin margin;
  for (const TreeId tree : walk->base_) margin += walk->reader_.at(tree, groups.data());
  for (const std::int32_t leaf : walk->applied_) margin += walk->reader_.at(walk->leaves_[leaf].tree, groups.data());
  return margin;
}

/// Sort the offsets, and merge equal ones.
void Walk::merge_offsets() {
  if (offsets_.size() < 2) return;
  std::sort(offsets_.begin(), offsets_.end(),
            [&](const Offset& a, const Offset& b) { return compare(a.margin, b.margin, 2 * limits_.fuzz) < 0; });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < offsets_.size();) {
    const Margin margin = offsets_[i].margin;
    Sum weight;
    for (; i < offsets_.size() && offsets_[i].margin == margin; ++i) weight.add(offsets_[i].weight);
    offsets_[kept++] = {margin, weight.value()};
  }
  offsets_.resize(kept);
}

/// Account for the offsets that settle every cell, given bounds of the shape's sums.
void Walk::drop_settled(std::int64_t least, std::int64_t most) {
  std::size_t kept = 0;
  for (const Offset& offset : offsets_) {
    const Kind kind = limits_.one_kind(least + offset.margin.value, most + offset.margin.value);
    if (kind == Kind::unknown) {
      offsets_[kept++] = offset;
    } else {
      masses_->add(kind, offset.weight);
    }
  }
  offsets_.resize(kept);
}

void Walk::add_fractions(const Fractions& found, double weight) {
  masses_->add(Kind::fair, weight * found.fair);
  masses_->add(Kind::unfair, weight * found.unfair);
  masses_->add(Kind::low, weight * found.low);
}

/// Measure the shape for all of its offsets: one bitmap each, and limit by limit.
void Walk::measure_shape() {
  merge_offsets();
  drop_settled(bounds_.least, bounds_.most);
  if (offsets_.empty()) return;
  ++counters_.shapes;
  measure_offsets();
  offsets_.clear();
}

void Walk::measure_offsets() {
  if (!small_) return measure_large();
  shape_.extremes = kept_ > 0;
  shape_.copies = kept_ > 0 ? kept_ : brick_.combinations;
  shape_.combinations = brick_.combinations;
  shape_.sums = nullptr;
  if (offsets_.size() == 1) {
    with_bitmaps([&](auto& bitmaps) { measure_one(bitmaps, offsets_[0]); });
    return;
  }
  write_shape();
  drop_settled(scale_.least(extent_.least), scale_.most(extent_.most));
  const int n = static_cast<int>(offsets_.size());
  counters_.tiles += n;
  counters_.work += n * brick_.all_rows();
  for (int at = 0; at < n && !halted_.load(std::memory_order_relaxed); ++at)
    with_bitmaps([&](auto& bitmaps) {
      bitmaps.write(shape_, scale_, offsets_[at].margin);
      add_fractions(bitmaps.measure(0, shape_.copies, shape_.extremes), offsets_[at].weight);
    });
}

/// The shape's sums, for several offsets.
void Walk::write_shape() {
  const std::int64_t tile_cells = std::int64_t{n_x_} * n_y_ * brick_.padded;
  Cells* to = shape_sums_.of(static_cast<std::size_t>(tile_cells * n_outer_ * shape_.copies));
  shape_.sums = to;
  bool first = true;
  for (int copy = 0; copy < shape_.copies; ++copy)
    for (std::int64_t o = 0; o < n_outer_; ++o, to += tile_cells) {
      const Extent part = write_sums(tile(copy, o), brick_.padded / 8, to);
      extent_ = first ? part : Extent{std::min(extent_.least, part.least), std::max(extent_.most, part.most)};
      first = false;
    }
}

/// One offset: its signs are written without the sums.
template <class W>
void Walk::measure_one(Bitmaps<W>& bitmaps, const Offset& offset) {
  ++counters_.tiles;
  counters_.work += brick_.all_rows();
  bool clear = true;
  for (int copy = 0; copy < shape_.copies; ++copy)
    for (std::int64_t o = 0; o < n_outer_; ++o)
      clear &=
          bitmaps.write(tile(copy, o), (copy * n_outer_ + o) * n_x_ * n_y_, scale_, offset.margin, bitmaps.targets(0));
  if (!clear) {
    write_shape();
    bitmaps.write(shape_, scale_, offset.margin);
  }
  add_fractions(bitmaps.measure(0, shape_.copies, shape_.extremes), offset.weight);
}

void Walk::measure_large() {
  const auto n = static_cast<std::int64_t>(offsets_.size());
  counters_.tiles += n;
  counters_.work += n * brick_.all_rows();
  const std::int64_t count = std::clamp<std::int64_t>(bitmap_words / brick_.all_rows(), 1, most_bitmaps);
  with_bitmaps([&](auto& bitmaps) {
    for (std::int64_t at = 0; at < n; at += count) {
      const std::span<const Offset> part{offsets_.data() + at, static_cast<std::size_t>(std::min(count, n - at))};
      blocks_.write(std::span<const TreeId>(base_), part, bitmaps);
      for (std::size_t k = 0; k < part.size() && !halted_.load(std::memory_order_relaxed); ++k)
        add_fractions(bitmaps.measure(static_cast<int>(k), brick_.combinations, false), part[k].weight);
    }
  });
}

}  // namespace boxqte
