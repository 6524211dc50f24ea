#include "finish.hpp"

#include <algorithm>
#include <limits>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace boxqte {

namespace {

constexpr int block = 64;  // sums are taken in blocks of this many terms: fewer roundings on the way to each sum
constexpr int tile = 512;  // cells that stay in the nearest cache while B's entries go by

constexpr int four = 4;

/// Bit i says whether value i of four is in [lowest, highest].
unsigned between(const std::int64_t* values, std::int64_t lowest, std::int64_t highest) {
#if defined(__AVX2__)
  const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values));
  const __m256i outside = _mm256_or_si256(_mm256_cmpgt_epi64(_mm256_set1_epi64x(lowest), v),
                                          _mm256_cmpgt_epi64(v, _mm256_set1_epi64x(highest)));
  return ~static_cast<unsigned>(_mm256_movemask_pd(_mm256_castsi256_pd(outside))) & 15;
#else
  unsigned bits = 0;
  for (int i = 0; i < four; ++i) bits |= static_cast<unsigned>((lowest <= values[i]) & (values[i] <= highest)) << i;
  return bits;
#endif
}

}  // namespace

Finisher::Finisher(const Problem& problem, const ResidualTrees& trees, std::size_t memory)
    : problem_(problem),
      trees_(trees),
      grid_(problem, trees),
      memory_(memory),
      common_(grid_),
      least_sheet_(grid_),
      most_sheet_(grid_) {
  chosen_.reserve(problem.trees.root.size());
}

// --- the scalar parts: lists of values ---------------------------------------------------------------------------------

std::span<const TreeId> Finisher::trees_of_part(const Node& node, const Word* axes) {
  chosen_.clear();
  for (int t = 0; t < node.n_common; ++t)
    if (overlap(trees_.axes(node.common[t]), axes, trees_.axis_words())) chosen_.push_back(node.common[t]);
  return chosen_;
}

void Finisher::begin_key(const Node& node, const Parts& parts, Side side, int only) {
  // The trees of some parts and the cells of their axes: nothing else enters their list.
  key_.clear();
  const int words = problem_.cuts.words;
  for (int k = 1; k < parts.size(); ++k) {
    if (only >= 0 ? k != only : parts.side(k) != side) continue;
    const std::size_t head = key_.size();
    key_.push_back(0);
    for (const TreeId tree : trees_of_part(node, parts.axes(k))) key_.push_back(tree);
    key_[head] = (std::uint64_t{1} << 63) | key_.size();
    each_bit(parts.axes(k), trees_.axis_words(), [&](int axis) {
      key_.push_back(axis);
      const Word* held = &node.domain[static_cast<std::size_t>(axis) * words];
      key_.insert(key_.end(), held, held + words);
    });
  }
}

Values& Finisher::part_list(const Node& node, const Parts& parts, int k) {
  begin_key(node, parts, Side::a, k);
  if (Values* known = cache_.find(key_)) return *known;
  grid_.group_all(node, parts.active(), parts.axes(k));
  grid_.lay_out(parts.axes(k), layout_);
  Values& made = cache_.add(key_, layout_.cells);
  grid_.masses(layout_, 0, layout_.n, made.masses());
  grid_.sums(layout_, trees_of_part(node, parts.axes(k)), made.values());
  made.settle(work_);
  return made;
}

Values& Finisher::list(const Node& node, const Parts& parts, Side side) {
  int n = 0, only = 0;
  for (int k = 1; k < parts.size(); ++k)
    if (parts.side(k) == side) {
      ++n;
      only = k;
    }
  if (n == 1) return part_list(node, parts, only);
  begin_key(node, parts, side, -1);
  if (Values* known = cache_.find(key_)) return *known;
  joint_key_ = key_;
  lists_.clear();
  for (int k = 1; k < parts.size(); ++k)
    if (parts.side(k) == side) lists_.push_back(&part_list(node, parts, k));
  work_.entries.assign(1, {0, 1.0});
  for (const Values* list : lists_) {
    work_.add(*list);
    work_.sort_if_short();
  }
  return cache_.add(joint_key_, work_);
}

// --- the vector part: a grid of margins --------------------------------------------------------------------------------

template <class Visit>
void Finisher::each_class(const Node& node, Visit visit) {
  // visit(class, its constant, first cell, the rows' sums from there on, how many): for every tile class after class. The sums
  // of one class become the next one's: most of their trees are the same, and the difference is a sheet or two.
  while (own_.size() < static_cast<std::size_t>(node.n_classes)) own_.emplace_back(grid_);
  constant_.assign(node.offset.begin(), node.offset.begin() + node.n_classes);
  for (int c = 0; c < node.n_classes; ++c) {
    own_[c].begin(rows_);
    chosen_.clear();
    for (int r = 0; r < node.n_rows; ++r) {
      const TreeId tree = node.row(r)[c];
      if (trees_[tree].is_leaf())
        constant_[c] += trees_[tree].least;
      else if (c == 0)
        chosen_.push_back(tree);
      if (c > 0 && tree != node.row(r)[c - 1]) own_[c].replace(node.row(r)[c - 1], tree);
    }
    if (c == 0) own_[c].add(chosen_);
    own_[c].settle();
  }
  const int tile = own_[0].tile();
  if (tile_sum_.size() < static_cast<std::size_t>(tile)) tile_sum_.resize(tile);
  for (int o = 0; o < own_[0].outer(); ++o) {
    grid_.check_halt();
    std::fill_n(tile_sum_.begin(), tile, 0);
    for (int c = 0; c < node.n_classes; ++c) {
      own_[c].add_to(o, tile_sum_.data());
      visit(c, constant_[c], o * tile, tile_sum_.data(), tile);
    }
  }
}

void Finisher::lay_out_vector(const Node& node, const Parts& parts) {
  grid_.group_all(node, parts.active(), parts.axes(0));
  grid_.lay_out(parts.axes(0), layout_);
  grid_.lay_out_within(layout_, grid_.row_axes(), rows_);
}

void Finisher::row_extremes(const Node& node) {
  // Common trees add the same to all classes, so who is least is found among the rows alone, on the smaller grid of
  // their axes.
  row_least_.resize(rows_.cells);
  row_most_.resize(rows_.cells);
  each_class(node, [&](int c, std::int64_t constant, int first, const std::int64_t* sum, int n) {
    std::int64_t *least = row_least_.data() + first, *most = row_most_.data() + first;
    if (c == 0)
      for (int i = 0; i < n; ++i) {
        least[i] = sum[i] + constant;
        most[i] = sum[i] + constant;
      }
    else if (problem_.thresholds.counted == 0)
      for (int i = 0; i < n; ++i) {
        least[i] = std::min(least[i], sum[i] + constant);
        most[i] = std::max(most[i], sum[i] + constant);
      }
    else if (problem_.thresholds.counted > 0)  // Theorem 2a: x is in class 0 of the node, the others are its partners
      for (int i = 0; i < n; ++i) least[i] = std::min(least[i], sum[i] + constant);
    else
      for (int i = 0; i < n; ++i) most[i] = std::max(most[i], sum[i] + constant);
  });
}

void Finisher::open_cells(const Node& node, const Parts& parts, const Values& a, const Values& b, std::int64_t reach,
                          bool every) {
  // The extremes of the vector part's cells, but for those on which no sum can tell two classes apart: they count for nothing,
  // not even as closer than `reach` to a threshold. every: cells with equal extremes too. The rows' extremes are there.
  const Thresholds& t = problem_.thresholds;
  const std::int64_t highest = t.neg + reach - a.least() - b.least(), lowest = t.neg - reach - a.most() - b.most();
  common_.begin(layout_);
  common_.add(trees_of_part(node, parts.axes(0)));
  common_.settle();
  for (Sheets* extreme : {&least_sheet_, &most_sheet_}) {
    extreme->begin(layout_);
    extreme->add(rows_, (extreme == &least_sheet_ ? row_least_ : row_most_).data());
    extreme->settle();
  }
  const int tile = common_.tile(), outer = common_.outer();
  grid_.masses(layout_, 0, common_.outer_axes(), outer_mass_);
  grid_.masses(layout_, common_.outer_axes(), layout_.n, tile_mass_);
  const std::size_t room = static_cast<std::size_t>(layout_.cells);
  if (least_.size() < room) {
    least_.resize(room);
    most_.resize(room);
    cell_mass_.resize(room);
  }
  if (tile_sum_.size() < static_cast<std::size_t>(tile)) tile_sum_.resize(tile);
  int kept = 0;
  for (int o = 0; o < outer; ++o) {
    grid_.check_halt();
    std::int64_t* sum = tile_sum_.data();
    std::fill_n(sum, tile, 0);
    common_.add_to(o, sum);
    const std::int64_t *row_least = least_sheet_.row(o), *row_most = most_sheet_.row(o);
    const double mass = outer_mass_[o];
    std::int64_t open = 0;
    for (int j = 0; j < tile; ++j)
      open |= -static_cast<std::int64_t>((sum[j] + row_least[j] <= highest) & (sum[j] + row_most[j] >= lowest));
    if (!open) continue;
    for (int j = 0; j < tile; ++j) {
      const std::int64_t least = sum[j] + row_least[j], most = sum[j] + row_most[j];
      least_[kept] = least;
      most_[kept] = most;
      cell_mass_[kept] = mass * tile_mass_[j];
      kept += (least < most || every) & (least <= highest) & (most >= lowest);
    }
  }
  n_cells_ = kept;
}

void Finisher::row_sums(const Node& node) {
  const std::size_t row_cells = rows_.cells;
  row_sum_.resize(row_cells * node.n_classes);
  each_class(node, [&](int c, std::int64_t constant, int first, const std::int64_t* sum, int n) {
    std::int64_t* out = row_sum_.data() + c * row_cells + first;
    for (int i = 0; i < n; ++i) out[i] = sum[i] + constant;
  });
}

void Finisher::vector_margins(const Node& node, const Parts& parts) {
  lay_out_vector(node, parts);
  grid_.masses(layout_, 0, layout_.n, cell_mass_);
  n_cells_ = layout_.cells;
  grid_.sums(layout_, trees_of_part(node, parts.axes(0)), values_);
  if (margins_.size() < static_cast<std::size_t>(node.n_classes)) margins_.resize(node.n_classes);
  const std::size_t row_cells = rows_.cells;
  row_sums(node);
  for (int c = 0; c < node.n_classes; ++c) {
    margins_[c].assign(values_.begin(), values_.begin() + n_cells_);
    grid_.spread(rows_, row_sum_.data() + c * row_cells, layout_, margins_[c].data());
  }
  least_.assign(margins_[0].begin(), margins_[0].end());
  most_ = least_;
  for (int c = 1; c < node.n_classes; ++c)
    for (int i = 0; i < n_cells_; ++i) {
      least_[i] = std::min(least_[i], margins_[c][i]);
      most_[i] = std::max(most_[i], margins_[c][i]);
    }
}

// --- counting ----------------------------------------------------------------------------------------------------------

Finisher::Count Finisher::count_signs(const Values& a, const Values& b) {
  // Unfair where the smallest margin is at most neg and the largest above it: a difference of two ranks in B.
  const Thresholds& t = problem_.thresholds;
  const std::int64_t reach = std::max(t.band, t.fuzz);
  Count count;
  for (int i = 0; i < a.size(); ++i) {
    const std::int64_t limit = t.neg - a.value(i);
    if (limit - extremes_.low < b.least() - reach || limit - extremes_.high > b.most() + reach) continue;
    const double w = a.mass(i);
    for (int start = 0; start < n_cells_; start += block) {
      grid_.check_halt();
      double total = 0.0;
      for (int cell = start; cell < std::min(start + block, n_cells_); ++cell) {
        const std::int64_t low = limit - least_[cell], high = limit - most_[cell];
        const int at_low = b.rank(low), at_high = b.rank(high);
        total += cell_mass_[cell] * (b.prefix(at_low) - b.prefix(at_high));
        count.near += cell_mass_[cell] * w * (b.near(at_low, low, t.band) + b.near(at_high, high, t.band));
        if (t.fuzz > 0) count.fuzzy |= b.near(at_low, low, t.fuzz) + b.near(at_high, high, t.fuzz) > 0.0;
      }
      count.unfair.add(w * total);
    }
  }
  return count;
}

Finisher::Count Finisher::compare_cells(const Values& a, const Values& b) {
  // As count_signs, without an order: each entry of B, at most `block` of them, is compared with all cells.
  const Thresholds& t = problem_.thresholds;
  const std::int64_t reach = std::max(t.band, t.fuzz);
  const auto width = static_cast<std::uint64_t>(2 * reach);
  Count count;
  double share[tile];
  for (int start = 0; start < n_cells_; start += tile) {
    const int size = std::min(tile, n_cells_ - start);
    const std::int64_t *least = least_.data() + start, *most = most_.data() + start;
    const double* mass = cell_mass_.data() + start;
    for (int i = 0; i < a.size(); ++i) {
      grid_.check_halt();
      std::fill_n(share, size, 0.0);
      for (int j = 0; j < b.size(); ++j) {
        const std::int64_t limit = t.neg - a.value(i) - b.value(j), lowest = limit - reach;
        const double w = b.mass(j);
        std::uint64_t close = 0;
        for (int c = 0; c < size; ++c) {
          share[c] += (least[c] <= limit) & (most[c] > limit) ? w : 0.0;
          close |= (static_cast<std::uint64_t>(least[c] - lowest) <= width) |
                   (static_cast<std::uint64_t>(most[c] - lowest) <= width);
        }
        if (!close) continue;
        for (int c = 0; c < size; ++c) {
          const std::int64_t by_low = std::abs(limit - least[c]), by_high = std::abs(limit - most[c]);
          count.near += mass[c] * w * a.mass(i) * ((by_low <= t.band) + (by_high <= t.band));
          count.fuzzy |= t.fuzz > 0 && (by_low <= t.fuzz || by_high <= t.fuzz);
        }
      }
      for (int first = 0; first < size; first += block) {
        double total = 0.0;
        for (int c = first; c < std::min(first + block, size); ++c) total += mass[c] * share[c];
        count.unfair.add(a.mass(i) * total);
      }
    }
  }
  return count;
}

Finisher::Count Finisher::compare_entries(const Values& a, const Values& b) {
  // As compare_cells, the other way round: few cells, each with all entries of the longer list A. Few entries matter to any.
  const Thresholds& t = problem_.thresholds;
  const std::int64_t reach = std::max(t.band, t.fuzz);
  const std::int64_t* value = a.values();
  Count count;
  for (int j = 0; j < b.size(); ++j) {
    grid_.check_halt();
    const std::int64_t limit = t.neg - b.value(j), lowest = limit - extremes_.high - reach,
                       highest = limit - extremes_.low + reach;
    const auto weigh = [&](int i) {
      for (int cell = 0; cell < n_cells_; ++cell) {
        const std::int64_t high = limit - least_[cell] - value[i], low = limit - most_[cell] - value[i];
        const double w = a.mass(i) * (cell_mass_[cell] * b.mass(j));
        if (high >= 0 && low < 0) count.unfair.add(w);
        if (std::abs(high) > reach && std::abs(low) > reach) continue;
        count.near += w * ((std::abs(high) <= t.band) + (std::abs(low) <= t.band));
        count.fuzzy |= t.fuzz > 0 && (std::abs(high) <= t.fuzz || std::abs(low) <= t.fuzz);
      }
    };
    int i = 0;
    for (; i + four <= a.size(); i += four)
      for (unsigned found = between(value + i, lowest, highest); found; found &= found - 1) weigh(i + first_bit(found));
    for (; i < a.size(); ++i)
      if (lowest <= value[i] && value[i] <= highest) weigh(i);
  }
  return count;
}

Finisher::Count Finisher::count_cheaply(Values& a, Values& b) {
  // Either list may be looked up, or all is compared with all; estimates in nanoseconds.
  if (n_cells_ == 0) return {};
  const double cells = n_cells_, n_a = a.size(), n_b = b.size();
  const auto look_up = [&](const Values& inner, double n_inner, double n_outer) {
    return 8 * cells * n_outer + n_inner * (inner.indexed() ? 0 : inner.sorted() ? 5 : 35);
  };
  const double pairs = 0.45 * cells * n_a * n_b;
  const double by_cells = n_b <= block ? pairs + 5 * n_a * n_b : std::numeric_limits<double>::infinity();
  extremes_ = {*std::min_element(least_.begin(), least_.begin() + n_cells_),
               *std::max_element(most_.begin(), most_.begin() + n_cells_)};
  const Values& longer = n_a >= n_b ? a : b;
  const double range = static_cast<double>(longer.most() - longer.least()) + 1;
  const double hits = std::min(2 * static_cast<double>(extremes_.high - extremes_.low) / range, 1.0);
  const double by_entries = n_a * n_b * (0.4 + hits * (2 + 2 * cells));
  const double look_up_b = look_up(b, n_b, n_a), look_up_a = look_up(a, n_a, n_b);
  const double least = std::min({by_cells, by_entries, look_up_a, look_up_b});
  if (by_cells == least) return compare_cells(a, b);
  if (by_entries == least) return n_a >= n_b ? compare_entries(a, b) : compare_entries(b, a);
  Values &outer = look_up_b == least ? a : b, &inner = look_up_b == least ? b : a;
  inner.index(work_, cache_.arena());
  return count_signs(outer, inner);
}

Finisher::Count Finisher::count_confident(const Node& node, const Values& a, const Values& b) {
  // Each class on its own: confident from its own margin, unfair if some class of the cell has the other sign.
  const Thresholds& t = problem_.thresholds;
  const int n = node.n_classes;
  Count count;
  for (int i = 0; i < a.size(); ++i) {
    const std::int64_t add = a.value(i);
    double unfair = 0.0, low = 0.0;
    for (int cell = 0; cell < n_cells_; ++cell) {
      grid_.check_halt();
      const double w = cell_mass_[cell];
      const std::int64_t neg_limit = t.neg - add - least_[cell], pos_limit = t.pos - 1 - add - most_[cell];
      const int some_neg = b.rank(neg_limit), no_pos = b.rank(pos_limit);
      double edge = 0.0;
      if (least_[cell] != most_[cell]) edge = b.near(some_neg, neg_limit, t.band) + b.near(no_pos, pos_limit, t.band);
      if (t.fuzz > 0 && n > 1)
        count.fuzzy |= b.near(some_neg, neg_limit, t.fuzz) + b.near(no_pos, pos_limit, t.fuzz) > 0.0;
      double cell_unfair = 0.0, cell_low = 0.0;
      for (int c = 0; c < n; ++c) {
        const std::int64_t v = margins_[c][cell] + add;
        const std::int64_t pos_edge = t.conf_pos - 1 - v, neg_edge = t.conf_neg - v;
        const int below_pos = b.rank(pos_edge), in_neg = b.rank(neg_edge);
        const double mass = node.class_mass[c];
        cell_low += mass * (b.prefix(below_pos) - b.prefix(in_neg));
        if (some_neg > below_pos) cell_unfair += mass * (b.prefix(some_neg) - b.prefix(below_pos));
        if (in_neg > no_pos) cell_unfair += mass * (b.prefix(in_neg) - b.prefix(no_pos));
        count.near +=
            w * mass * a.mass(i) * (edge + b.near(below_pos, pos_edge, t.band) + b.near(in_neg, neg_edge, t.band));
        if (t.fuzz > 0) count.fuzzy |= b.near(below_pos, pos_edge, t.fuzz) + b.near(in_neg, neg_edge, t.fuzz) > 0.0;
      }
      unfair += w * cell_unfair;
      low += w * cell_low;
      if (cell % block == block - 1 || cell == n_cells_ - 1) {
        count.unfair.add(a.mass(i) * unfair);
        count.low.add(a.mass(i) * low);
        unfair = low = 0.0;
      }
    }
  }
  return count;
}

Finisher::Count Finisher::count_related(const Node& node, const Values& a, const Values& b) {
  // As count_confident, each class with the extremes of its own partners (Theorem 11).
  const Thresholds& t = problem_.thresholds;
  Count count;
  for (int i = 0; i < a.size(); ++i) {
    const std::int64_t add = a.value(i);
    double unfair = 0.0, low = 0.0;
    for (int cell = 0; cell < n_cells_; ++cell) {
      grid_.check_halt();
      double cell_unfair = 0.0, cell_low = 0.0, near = 0.0;
      for (int c = 0; c < node.n_classes; ++c) {
        const std::size_t at = static_cast<std::size_t>(c) * n_cells_ + cell;
        const std::int64_t v = margins_[c][cell] + add;
        const std::int64_t limits[] = {t.neg - add - partner_low_[at], t.pos - 1 - add - partner_high_[at],
                                       t.conf_pos - 1 - v, t.conf_neg - v};
        int ranks[4];
        for (int k = 0; k < 4; ++k) {
          ranks[k] = b.rank(std::clamp(limits[k], 1 - Partners::none, Partners::none - 1));
          if (std::abs(limits[k]) >= Partners::none / 2) continue;  // nobody is there to be close to a threshold
          near += node.class_mass[c] * b.near(ranks[k], limits[k], t.band);
          if (t.fuzz > 0) count.fuzzy |= b.near(ranks[k], limits[k], t.fuzz) > 0.0;
        }
        const auto [some_neg, no_pos, below_pos, in_neg] = ranks;
        const double mass = node.class_mass[c];
        cell_low += mass * (b.prefix(below_pos) - b.prefix(in_neg));
        if (some_neg > below_pos) cell_unfair += mass * (b.prefix(some_neg) - b.prefix(below_pos));
        if (in_neg > no_pos) cell_unfair += mass * (b.prefix(in_neg) - b.prefix(no_pos));
      }
      count.near += cell_mass_[cell] * a.mass(i) * near;
      unfair += cell_mass_[cell] * cell_unfair;
      low += cell_mass_[cell] * cell_low;
      if (cell % block == block - 1 || cell == n_cells_ - 1) {
        count.unfair.add(a.mass(i) * unfair);
        count.low.add(a.mass(i) * low);
        unfair = low = 0.0;
      }
    }
  }
  return count;
}

double Finisher::outside(const Node& node, const Parts& parts) const {
  double product = 1.0;
  for (int axis = 0; axis < problem_.axes.size(); ++axis)
    if (!parts.holds(axis)) product *= node.axis_mass[axis];
  return product;
}

bool Finisher::finish(const Node& node, const Parts& parts, Masses& masses, const Halt& halt) {
  grid_.listen(&halt);
  grid_.begin(node);
  Values& b = list(node, parts, Side::b);
  Values& a = list(node, parts, Side::a);
  Count count;
  double of_each = 1.0;  // where signs are all that matters, classes are counted as one
  const Partners& partners = problem_.partners;
  if (partners.scores.asked()) {
    count = count_scores(node, parts, a, b);
  } else if (partners.asked()) {
    vector_margins(node, parts);
    partners.extremes(
        node.members, n_cells_, [&](int c, bool) { return margins_[c].data(); }, partner_low_, partner_high_,
        partner_work_);
    b.index(work_, cache_.arena());
    count = count_related(node, a, b);
  } else if (problem_.thresholds.simple) {
    const Thresholds& t = problem_.thresholds;
    lay_out_vector(node, parts);
    row_extremes(node);
    open_cells(node, parts, a, b, std::max(t.band, t.fuzz), t.fuzz > 0);
    count = count_cheaply(a, b);
    of_each = node.allowed;
  } else {
    vector_margins(node, parts);
    b.index(work_, cache_.arena());
    count = count_confident(node, a, b);
  }
  if (count.fuzzy) return false;
  const double share = outside(node, parts) * of_each, everything = node.mass();
  const double unfair = std::max(share * count.unfair.value(), 0.0);
  const double low = std::max(share * count.low.value(), 0.0) + everything * node.forbidden;
  masses.add(Kind::unfair, unfair);
  masses.add(Kind::low, low);
  masses.add(Kind::fair, std::max(everything - unfair - low, 0.0));
  masses.add(Kind::ambiguous, std::min(share * count.near, everything));
  return true;
}

}  // namespace boxqte
