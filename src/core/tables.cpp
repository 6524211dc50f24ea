#include "tables.hpp"

#include <algorithm>
#include <limits>

#include "masses.hpp"

namespace boxqte {

Limits::Limits(const Thresholds& t)
    : neg{{t.neg, t.neg_residue}, false},
      pos{{t.pos, t.pos_residue}, true},
      sure_neg{{t.conf_neg, t.conf_neg_residue}, false},
      sure_pos{{t.conf_pos, t.conf_pos_residue}, true},
      cap{{t.cap, t.cap_residue}, true},
      ruled(t.capped),
      capped(t.capped),
      simple(t.simple && !t.capped),
      no_ties(t.simple || (t.fuzz == 0 ? t.pos == t.neg + 1 : t.pos_residue - t.neg_residue == 1)),
      fuzz(t.fuzz),
      signs_only(t.simple) {}

void Limits::look_at(std::int64_t high) {
  if (!ruled) return;
  capped = high + fuzz >= cap.bound.value;
  simple = signs_only && !capped;
}

Kind Limits::one_kind(std::int64_t low, std::int64_t high) const {
  low -= fuzz;
  high += fuzz;
  if (ruled && high >= cap.bound.value) return low >= cap.bound.value ? Kind::low : Kind::unknown;  // Theorem 14
  if (low > sure_neg.bound.value && high < sure_pos.bound.value) return Kind::low;
  if ((low >= sure_pos.bound.value && low > neg.bound.value) || (high <= sure_neg.bound.value && high < pos.bound.value))
    return Kind::fair;
  return Kind::unknown;
}

// Narrow sums: each term is within half a unit of its table entry, so n terms are within n / 2 units; the limit is rounded
// down, and 64-bit values are within `fuzz` of the exact ones.
Scale Scale::of(std::uint64_t range, int n_terms, std::int64_t fuzz, int bits) {
  Scale scale;
  scale.shift = std::max(0, static_cast<int>(std::bit_width(range)) - bits);
  if (scale.shift > 0 || fuzz > 0) scale.guard = static_cast<Cells>(n_terms / 2 + 2 + (fuzz >> scale.shift));
  return scale;
}

Cells Scale::limit(const Limit& limit, const Margin& offset) const {
  constexpr std::int64_t beyond = std::int64_t{1} << 30;  // further away than any sum
  const std::int64_t most = limit.bound.value - offset.value - (limit.below ? 1 : 0);
  return static_cast<Cells>(std::clamp(most >> shift, -beyond, beyond));
}

void Scope::lay(const Brick& brick, std::uint64_t places) {
  mask = places;
  axes.clear();
  size = 1;
  wide = over_last = false;
  row.clear();
  for (int i = static_cast<int>(brick.axes.size()) - 1; i >= 0; --i) {
    if (((places >> i) & 1) == 0) continue;
    axes.push_back({i, size});
    const bool last = i == static_cast<int>(brick.axes.size()) - 1;
    size *= last ? brick.padded : brick.axes[i]->size();
    over_last |= last;
    wide |= i < brick.n_sensitive;
  }
  std::reverse(axes.begin(), axes.end());
}

void Scope::lay_rows(const Brick& brick) {
  if (!row.empty()) return;
  const int first = wide ? 0 : brick.n_sensitive, n = static_cast<int>(brick.axes.size()) - 1;
  row.assign(1, 0);
  for (int i = first; i < n; ++i) {  // one axis more: each row so far becomes one for every group
    std::int64_t stride = 0;
    for (const Axis& axis : axes)
      if (axis.place == i) stride = axis.stride;
    std::vector<std::int32_t> longer;
    longer.reserve(row.size() * brick.axes[i]->size());
    for (const std::int32_t at : row)
      for (int g = 0; g < brick.axes[i]->size(); ++g) longer.push_back(static_cast<std::int32_t>(at + g * stride));
    row.swap(longer);
  }
}

std::uint64_t TreeReader::places(TreeId tree) const {
  std::uint64_t mask = 0;
  each_bit(nodes_.trees().axes(tree), nodes_.trees().axis_words(),
           [&](int axis) { mask |= std::uint64_t{1} << brick_.place[axis]; });
  return mask;
}

void TreeReader::add(TreeId tree, const Scope& scope, const Scale& scale, int sign, Cells* table) {
  scope_ = &scope;
  scale_ = &scale;
  table_ = table;
  sign_ = sign;
  first_.assign(brick_.axes.size(), 0);
  end_.resize(brick_.axes.size());
  for (std::size_t i = 0; i < end_.size(); ++i) end_[i] = brick_.axes[i]->size();
  descend(tree);
}

void TreeReader::descend(TreeId tree) {
  const Record record = nodes_.trees()[tree];
  if (record.is_leaf()) {
    add_block(0, 0, sign_ * scale_->narrow(record.least));
    return;
  }
  const Problem& problem = nodes_.problem();
  const int axis = problem.cuts.axis[record.cut];
  const int i = brick_.place[axis];
  const std::int32_t first = first_[i], end = end_[i];
  if (problem.axes.chain[axis]) {
    const std::int32_t middle = brick_.axes[i]->yes_groups[record.cut - problem.cuts.start[axis]];
    if (first < middle) {
      end_[i] = std::min(middle, end);
      descend(record.yes);
      end_[i] = end;
    }
    if (middle < end) {
      first_[i] = std::max(middle, first);
      descend(record.no);
      first_[i] = first;
    }
    return;
  }
  for (std::int32_t g = first; g < end; ++g) {  // an axis without order: group by group
    first_[i] = g;
    end_[i] = g + 1;
    descend(problem.cuts.sends_to_yes(record.cut, brick_.axes[i]->cell[g]) ? record.yes : record.no);
  }
  first_[i] = first;
  end_[i] = end;
}

void TreeReader::add_block(std::size_t axis, std::int64_t at, Cells value) {
  if (axis == scope_->axes.size()) {
    table_[at] += value;
    return;
  }
  const auto [i, stride] = scope_->axes[axis];
  const bool last = i == static_cast<int>(brick_.axes.size()) - 1;
  const std::int32_t first = first_[i], end = last && end_[i] == brick_.n_last ? brick_.padded : end_[i];
  if (stride == 1) {
    for (std::int32_t g = first; g < end; ++g) table_[at + g] += value;
    return;
  }
  for (std::int32_t g = first; g < end; ++g) add_block(axis + 1, at + g * stride, value);
}

Margin TreeReader::at(TreeId tree, const std::int32_t* groups) const {
  const Cuts& cuts = nodes_.problem().cuts;
  Record record = nodes_.trees()[tree];
  while (!record.is_leaf()) {
    const int i = brick_.place[cuts.axis[record.cut]];
    const bool yes = cuts.sends_to_yes(record.cut, brick_.axes[i]->cell[groups[i]]);
    record = nodes_.trees()[yes ? record.yes : record.no];
  }
  return {record.least, record.residue()};
}

namespace {

template <int Vectors>
Extent add_rows(const Cells* from, const Cells* table, const Scope& scope, std::int64_t rows, Cells* to) {
  Eight least = Eight{} + std::numeric_limits<Cells>::max(), most = -least;
  for (std::int64_t r = 0; r < rows; ++r) {
    const Cells* mine = table + scope.row[r];
    const Eight value = Eight{} + mine[0];
    for (int v = 0; v < Vectors; ++v) {
      const std::int64_t cell = (r * Vectors + v) * 8;
      const Eight sum = load(from + cell) + (scope.over_last ? load(mine + 8 * v) : value);
      store(to + cell, sum);
      least = smaller(least, sum);
      most = larger(most, sum);
    }
  }
  return {least_of(least), most_of(most)};
}

template <int Vectors>
struct SumWriter {
  Cells* to;
  Eight least = Eight{} + std::numeric_limits<Cells>::max(), most = -least;

  void row(const Eight (&sums)[Vectors]) {
    for (int v = 0; v < Vectors; ++v) {
      store(to + 8 * v, sums[v]);
      least = smaller(least, sums[v]);
      most = larger(most, sums[v]);
    }
    to += 8 * Vectors;
  }
  void end_line() {}
};

/// act.template operator()<vectors>()
template <class Act>
Extent with_vectors(int vectors, Act act) {
  switch (vectors) {
    case 1:
      return act.template operator()<1>();
    case 2:
      return act.template operator()<2>();
    case 3:
      return act.template operator()<3>();
    case 4:
      return act.template operator()<4>();
    case 5:
      return act.template operator()<5>();
    case 6:
      return act.template operator()<6>();
    case 7:
      return act.template operator()<7>();
    default:
      return act.template operator()<8>();
  }
}

}  // namespace

Extent add_table(const Cells* from, const Cells* table, const Scope& scope, std::int64_t rows, int vectors, Cells* to) {
  return with_vectors(vectors, [&]<int Vectors> { return add_rows<Vectors>(from, table, scope, rows, to); });
}

Extent write_sums(const Tile& tile, int vectors, Cells* to) {
  return with_vectors(vectors, [&]<int Vectors> {
    const auto done = each_row<Vectors>(tile, SumWriter<Vectors>{to});
    return Extent{least_of(done.least), most_of(done.most)};
  });
}

}  // namespace boxqte
