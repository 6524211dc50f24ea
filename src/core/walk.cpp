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
      ranks_(memory, limits),
      blocks_(nodes, brick_, limits, memory, halted),
      leaf_cells_(memory),
      sums_(memory),
      extremes_(memory) {
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
  brick_.lay(nodes_, node, layouts);
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
std::int32_t Walk::plant(TreeId tree) {
  const auto made = static_cast<std::int32_t>(choices_.size());
  choices_.emplace_back();
  const int cut = over_fixed(tree) ? first_fixed_cut(tree) : -1;
  if (cut >= 0) {
    const TreeId yes = nodes_.trees().restrict(tree, cut, 1), no = nodes_.trees().restrict(tree, cut, 0);
    choices_[made].cut = cut;
    const std::int32_t first = plant(yes), second = plant(no);
    choices_[made].yes = first;
    choices_[made].no = second;
    return made;
  }
  const Record record = nodes_.trees()[tree];
  if (record.is_leaf()) {
    choices_[made].value = {record.least, record.residue()};
    return made;
  }
  std::size_t known = 0;
  while (known < leaves_.size() && leaves_[known].tree != tree) ++known;
  if (known == leaves_.size()) leaves_.push_back({tree, scope_of(tree), 0, record.least, record.most});
  choices_[made].table = static_cast<std::int32_t>(known);
  return made;
}

void Walk::lay_trees(const Node& node) {
  choices_.clear();
  roots_.clear();
  base_.clear();
  leaves_.clear();
  n_scopes_ = n_mixed_ = n_sensitive_ = 0;
  rest_least_.clear();
  rest_most_.clear();
  std::uint64_t range = static_cast<std::uint64_t>(std::abs(node.offset[0]));
  for (int t = 0; t < node.n_common; ++t) {
    const Record& record = nodes_.trees()[node.common[t]];
    range += static_cast<std::uint64_t>(std::max(std::abs(record.least), std::abs(record.most)));
    if (!over_fixed(node.common[t])) base_.push_back(node.common[t]);
  }
  scale_ = Scale::of(range, node.n_common, limits_.fuzz, options_.sum_bits);
  for (int kind = 0; kind < 3; ++kind)
    for (int t = 0; t < node.n_common; ++t) {
      const TreeId tree = node.common[t];
      if (!over_fixed(tree) || kind != (over_sensitive(tree) ? 0 : over_others(tree) ? 1 : 2)) continue;
      rest_least_.push_back(nodes_.trees()[tree].least);
      rest_most_.push_back(nodes_.trees()[tree].most);
      roots_.push_back(plant(tree));
      n_sensitive_ += kind == 0;
      n_mixed_ += kind < 2;
    }
  n_trees_ = static_cast<int>(roots_.size());
  for (int t = n_trees_ - 2; t >= 0; --t) {
    rest_least_[t] += rest_least_[t + 1];
    rest_most_[t] += rest_most_[t + 1];
  }
  rest_least_.push_back(0);
  rest_most_.push_back(0);
  stages_.assign(n_trees_ + 1, {});
  stages_[0].constant = {node.offset[0], node.residue[0]};
  domain_ = node.domain;
  axis_mass_ = node.axis_mass;
  offsets_.clear();
}

/// The tables of a small brick: the leaves' own, and the sum of the trees that are part of every shape.
void Walk::lay_sums(const Node&) {
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
  Cells* sums = sums_.of(static_cast<std::size_t>(all) * (n_mixed_ + 1));
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
  stages_[0].sums = sums;
  const auto [least, most] = std::minmax_element(sums, sums + all);
  stages_[0].least = scale_.least(*least);
  stages_[0].most = scale_.most(*most);
  for (int t = 1; t <= n_mixed_; ++t) stages_[t].sums = sums + t * all;
  if (kept_ > 0) extremes_.of(static_cast<std::size_t>(single) * kept_ * (n_mixed_ - n_sensitive_ + 1));
}

/// All trees that test S are walked: of the sums over S only the extremes are needed from now on, and who has them (Theorem 8b).
void Walk::keep_extremes() {
  const std::int64_t single = brick_.rows * brick_.padded;
  const Cells* sums = stages_[n_sensitive_].sums;
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
  stages_[n_sensitive_].sums = low;
}

void Walk::measure(const Node& node, Masses& masses) {
  masses_ = &masses;
  lay_trees(node);
  const int count =
      small_ ? 1 : static_cast<int>(std::clamp<std::int64_t>(bitmap_words / brick_.all_rows(), 1, most_bitmaps));
  with_bitmaps([&](auto& bitmaps) { bitmaps.lay(brick_, count); });
  if (small_) {
    ranks_.lay(brick_);
    lay_sums(node);
  } else {
    kept_ = 0;
    blocks_.lay(scale_, options_.table_cells);
    for (const TreeId tree : base_) {
      stages_[0].least += nodes_.trees()[tree].least;
      stages_[0].most += nodes_.trees()[tree].most;
    }
  }
  next(0);
}

/// All trees before t are walked.
void Walk::next(int t) {
  if (t == n_sensitive_ && kept_ > 0) keep_extremes();
  if (t < n_mixed_) return descend(t, roots_[t]);
  offsets_.clear();
  if (t < n_trees_) {
    descend(t, roots_[t]);
  } else {
    offsets_.push_back({stages_[t].constant, box_mass()});
  }
  measure_shape();
}

/// Walk a tree from one of its choices on, where the fixed axes are in domain_.
void Walk::descend(int t, std::int32_t at) {
  const Choice& choice = choices_[at];
  if (choice.cut < 0) return leaf(t, choice);
  const Cuts& cuts = nodes_.problem().cuts;
  const int axis = cuts.axis[choice.cut], words = cuts.words;
  const Word* mask = cuts.mask_of(choice.cut);
  Word* held = &domain_[static_cast<std::size_t>(axis) * words];
  Word yes = 0, no = 0;
  for (int w = 0; w < words; ++w) {
    yes |= held[w] & mask[w];
    no |= held[w] & ~mask[w];
  }
  if (yes == 0 || no == 0) return descend(t, no == 0 ? choice.yes : choice.no);
  if (halted_.load(std::memory_order_relaxed)) return;
  const double mass = axis_mass_[axis];
  Word kept[8];
  std::vector<Word> more;  // axes of more than 512 cells
  Word* before = kept;
  if (words > 8) {
    more.resize(words);
    before = more.data();
  }
  std::copy_n(held, words, before);
  const double* cell_mass = nodes_.problem().axes.mass_of(axis);
  for (const bool side : {true, false}) {
    double total = 0.0;
    for (int w = 0; w < words; ++w) held[w] = before[w] & (side ? mask[w] : ~mask[w]);
    each_bit(held, words, [&](int cell) { total += cell_mass[cell]; });
    axis_mass_[axis] = total;
    descend(t, side ? choice.yes : choice.no);
  }
  std::copy_n(before, words, held);
  axis_mass_[axis] = mass;
}

/// Tree t ends at this leaf: settle the box by bounds, or go on to the next tree.
void Walk::leaf(int t, const Choice& choice) {
  const Stage& now = stages_[t];
  Stage& then = stages_[t + 1];
  then.constant = now.constant + choice.value;
  const auto kind = [&](std::int64_t least, std::int64_t most) {
    return limits_.one_kind(then.constant.value + rest_least_[t + 1] + least,
                            then.constant.value + rest_most_[t + 1] + most);
  };
  Kind settled = Kind::unknown;
  if (choice.table < 0) {
    then.sums = now.sums;
    then.least = now.least;
    then.most = now.most;
    then.tree = 0;
    settled = kind(then.least, then.most);
  } else {
    const Leaf& leaf = leaves_[choice.table];
    settled = kind(now.least + leaf.least, now.most + leaf.most);  // often enough, without the sum
    if (settled == Kind::unknown) {
      add(t, leaf);
      settled = kind(then.least, then.most);
    }
  }
  if (settled != Kind::unknown) {
    masses_->add(settled, box_mass());
  } else if (t + 1 <= n_mixed_) {
    next(t + 1);
  } else if (t + 1 < n_trees_) {
    descend(t + 1, roots_[t + 1]);
  } else {
    offsets_.push_back({then.constant, box_mass()});
    if (offsets_.size() == most_offsets) {
      measure_shape();
      offsets_.clear();
    }
  }
}

/// The stage after tree t, whose walk ended at a leaf with this table.
void Walk::add(int t, const Leaf& leaf) {
  const std::int64_t single = brick_.rows * brick_.padded;
  const bool kept = kept_ > 0 && t >= n_sensitive_;
  const int copies = kept ? kept_ : brick_.combinations, vectors = brick_.padded / 8;
  const Cells *from = stages_[t].sums, *table = leaf_cells_.data() + leaf.at;
  Cells* to = kept ? extremes_.data() + (t + 1 - n_sensitive_) * single * kept_
                   : sums_.data() + (t + 1) * single * brick_.combinations;
  const Scope& scope = scopes_[leaf.scope];
  Extent extent{};
  if (scope.wide) {
    extent = add_table(from, table, scope, brick_.all_rows(), vectors, to);
  } else {
    for (int c = 0; c < copies; ++c) {
      const Extent part = add_table(from + c * single, table, scope, brick_.rows, vectors, to + c * single);
      extent = c == 0 ? part : Extent{std::min(extent.least, part.least), std::max(extent.most, part.most)};
    }
  }
  Stage& then = stages_[t + 1];
  then.sums = to;
  then.least = scale_.least(extent.least);
  then.most = scale_.most(extent.most);
  then.tree = leaf.tree;
  ++counters_.nodes;
  counters_.work += copies * single / 32;
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
  for (int t = 1; t <= walk->n_mixed_; ++t) margin += walk->reader_.at(walk->stages_[t].tree, groups.data());
  return margin;
}

/// Sort the offsets, merge equal ones, account for those that settle every cell.
void Walk::tidy_offsets() {
  const auto order = [&](const Offset& a, const Offset& b) { return compare(a.margin, b.margin, 2 * limits_.fuzz) < 0; };
  if (offsets_.size() > 1) std::sort(offsets_.begin(), offsets_.end(), order);
  const Stage& stage = stages_[n_mixed_];
  std::size_t kept = 0;
  for (std::size_t i = 0; i < offsets_.size();) {
    const Margin margin = offsets_[i].margin;
    Sum weight;
    for (; i < offsets_.size() && offsets_[i].margin == margin; ++i) weight.add(offsets_[i].weight);
    const Kind kind = limits_.one_kind(stage.least + margin.value, stage.most + margin.value);
    if (kind == Kind::unknown) {
      offsets_[kept++] = {margin, weight.value()};
    } else {
      masses_->add(kind, weight.value());
    }
  }
  offsets_.resize(kept);
}

void Walk::add_fractions(const Fractions& found, double weight) {
  masses_->add(Kind::fair, weight * found.fair);
  masses_->add(Kind::unfair, weight * found.unfair);
  masses_->add(Kind::low, weight * found.low);
}

/// Measure the shape for all of its offsets: by ranks if they are many enough, else one bitmap each.
void Walk::measure_shape() {
  if (offsets_.empty()) return;
  tidy_offsets();
  const int n = static_cast<int>(offsets_.size());
  counters_.tiles += n;
  ++counters_.shapes;
  counters_.work += n * brick_.all_rows();
  if (!small_) return measure_large();
  shape_.sums = stages_[n_mixed_].sums;
  shape_.extremes = kept_ > 0;
  shape_.copies = kept_ > 0 ? kept_ : brick_.combinations;
  shape_.combinations = brick_.combinations;
  for (int at = 0; at < n && !halted_.load(std::memory_order_relaxed);) {
    if (ranks_.pays_for(n - at) && kept_ < 4) {
      const int size = std::min(Ranks::most_offsets, n - at);
      add_fractions(ranks_.measure(shape_, scale_, {offsets_.data() + at, static_cast<std::size_t>(size)}), 1.0);
      at += size;
      continue;
    }
    with_bitmaps([&](auto& bitmaps) {
      bitmaps.write(shape_, scale_, offsets_[at].margin);
      add_fractions(bitmaps.measure(0, shape_.copies, shape_.extremes), offsets_[at].weight);
    });
    ++at;
  }
}

void Walk::measure_large() {
  const auto n = static_cast<std::int64_t>(offsets_.size());
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
