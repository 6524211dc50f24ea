#include "blocks.hpp"

#include <algorithm>

namespace boxqte {

namespace {
constexpr TreeId nothing = 0;  // record 0 is the leaf 0
}

Blocks::Blocks(Nodes& nodes, const Brick& brick, const Limits& limits, Memory& memory, const std::atomic<bool>& halted)
    : nodes_(nodes), brick_(brick), limits_(limits), halted_(halted), reader_(nodes, brick), room_(memory) {}

void Blocks::lay(const Scale& scale, std::int64_t most_cells) {
  scale_ = scale;
  const int n = static_cast<int>(brick_.axes.size());
  int n_inner = 1;
  std::int64_t cells = brick_.padded;
  while (n_inner < std::min(n, inner_axes) && cells * brick_.axes[n - 1 - n_inner]->size() <= most_cells)
    cells *= brick_.axes[n - 1 - n_inner++]->size();
  n_outer_ = n - n_inner;
  n_y_ = n_inner > 1 ? brick_.axes[n - 2]->size() : 1;
  n_x_ = n_inner > 2 ? brick_.axes[n - 3]->size() : 1;
  const Problem& problem = nodes_.problem();
  sides_.assign(n_outer_, {});
  for (int i = 0; i < n_outer_; ++i) {
    const AxisLayout& layout = *brick_.axes[i];
    sides_[i].resize(layout.size());
    for (int k = problem.cuts.start[layout.axis]; k < problem.cuts.start[layout.axis + 1]; ++k)
      for (int g = 0; g < layout.size(); ++g) {
        if (problem.cuts.prefix[k] == layout.cell[g]) sides_[i][g].below = k;
        if (g + 1 < layout.size() && problem.cuts.prefix[k] == layout.cell[g + 1]) sides_[i][g].above = k;
      }
  }
  std::int64_t size = 0;
  for (int s = 0; s < 1 << n_inner; ++s) {
    scopes_[s].lay(brick_, std::uint64_t(s & 1) << (n - 1) | (n > 1 ? std::uint64_t(s >> 1 & 1) << (n - 2) : 0) |
                               (n > 2 ? std::uint64_t(s >> 2) << (n - 3) : 0));
    size += (scopes_[s].size + 15) / 8 * 8;
  }
  Cells* at = room_.of(static_cast<std::size_t>(size));
  std::fill_n(at, size, 0);
  filled_ = 0;
  for (int s = 0; s < 1 << n_inner; ++s) {
    tables_[s] = at;
    at += (scopes_[s].size + 15) / 8 * 8;
  }
  held_.resize(n_outer_ + 1);
  stand_.assign(n, 0);
}

/// The tree where an outer axis stands at a group.
TreeId Blocks::at_group(TreeId tree, int place, int group) {
  const int axis = brick_.axes[place]->axis;
  ResidualTrees& trees = nodes_.trees();
  if (!trees.tests(tree, axis)) return tree;
  const Problem& problem = nodes_.problem();
  if (problem.axes.chain[axis]) {  // the nearest cut to each side settles the others
    const Sides& sides = sides_[place][group];
    if (sides.below >= 0) tree = trees.restrict(tree, sides.below, 0);
    if (sides.above >= 0) tree = trees.restrict(tree, sides.above, 1);
    return tree;
  }
  const int cell = brick_.axes[place]->cell[group];
  for (int k = problem.cuts.start[axis]; k < problem.cuts.start[axis + 1]; ++k)
    tree = trees.restrict(tree, k, problem.cuts.sends_to_yes(k, cell) ? 1 : 0);
  return tree;
}

/// Only trees that a step changes are taken out of the tables and added anew: integers, so exactly.
void Blocks::show(std::span<const TreeId> trees) {
  const int base = static_cast<int>(brick_.axes.size()) - inner_axes;
  const auto add = [&](TreeId tree, int sign) {
    const std::uint64_t places = reader_.places(tree);
    const auto s = static_cast<int>(base >= 0 ? places >> base : places << -base);
    const int scope = (s & 4 ? 1 : 0) | (s & 2) | (s & 1 ? 4 : 0);
    filled_ |= std::uint64_t{1} << scope;
    reader_.add(tree, scopes_[scope], scale_, sign, tables_[scope]);
  };
  for (std::size_t t = 0; t < trees.size(); ++t)
    if (trees[t] != shown_[t]) {
      if (shown_[t] != nothing) add(shown_[t], -1);
      add(trees[t], 1);
      shown_[t] = trees[t];
    }
}

template <class W, int Vectors>
void Blocks::write_block(std::int64_t row, const Margin& offset, const Target<W>& target) {
  const Cells cut = scale_.limit(*target.limit, offset);
  const Eight shift = Eight{} + scale_.guard;
  EightUnsigned near = EightUnsigned{} + 0xFFFFFFFFu;
  const std::uint64_t full = low_bits(brick_.n_last), flip = target.flip ? full : 0;
  const int n_y = n_y_;
  const bool has_yz = filled_ >> 3 & 1, has_xyz = filled_ >> 7 & 1;
  W* to = target.words + row;
  for (int x = 0; x < n_x_; ++x) {
    Cells here = tables_[0][0] - cut - 1;
    if (filled_ >> 4 & 1) here += tables_[4][x];
    Eight line[Vectors];
    for (int v = 0; v < Vectors; ++v) {
      line[v] = load(tables_[1] + 8 * v) + here;
      if (filled_ >> 5 & 1) line[v] += load(tables_[5] + (x * Vectors + v) * 8);
    }
    const Cells* xy = filled_ >> 6 & 1 ? tables_[6] + x * n_y : nullptr;
    const Cells* y_only = filled_ >> 2 & 1 ? tables_[2] : nullptr;
    const Cells *yz = tables_[3], *xyz = has_xyz ? tables_[7] + std::int64_t{x} * n_y * Vectors * 8 : nullptr;
    const auto rows = [&]<bool Yz, bool Xyz>() {
      for (int y = 0; y < n_y; ++y) {
        const Eight scalar = Eight{} + ((xy ? xy[y] : 0) + (y_only ? y_only[y] : 0));
        std::uint64_t bits = 0;
        for (int v = 0; v < Vectors; ++v) {
          Eight sign = line[v] + scalar;
          if constexpr (Yz) sign += load(yz + (y * Vectors + v) * 8);
          if constexpr (Xyz) sign += load(xyz + (y * Vectors + v) * 8);
          near = smaller(near, reinterpret_cast<EightUnsigned>(sign + shift));
          bits |= std::uint64_t{negative_bits(sign)} << (8 * v);
        }
        *to++ = static_cast<W>((bits & full) ^ flip);
      }
    };
    if (has_yz && has_xyz) {
      rows.template operator()<true, true>();
    } else if (has_yz) {
      rows.template operator()<true, false>();
    } else if (has_xyz) {
      rows.template operator()<false, true>();
    } else {
      rows.template operator()<false, false>();
    }
  }
  if (least_of(near) < 2 * static_cast<std::uint32_t>(scale_.guard)) settle(row, offset, target, cut);
}

/// Narrow sums: in the block that begins at this row, look up exactly what lies within the guard.
template <class W>
void Blocks::settle(std::int64_t row, const Margin& offset, const Target<W>& target, Cells cut) {
  const std::uint32_t band = 2 * static_cast<std::uint32_t>(scale_.guard);
  const int n = static_cast<int>(brick_.axes.size());
  for (int x = 0; x < n_x_; ++x)
    for (int y = 0; y < n_y_; ++y, ++row)
      for (int z = 0; z < brick_.n_last; ++z) {
        const int group[inner_axes] = {z, y, x};
        Cells sum = 0;
        for (int s = 0; s < 1 << inner_axes; ++s) {
          if ((filled_ >> s & 1) == 0) continue;
          std::int64_t at = 0;
          for (const Scope::Axis& axis : scopes_[s].axes) at += group[n - 1 - axis.place] * axis.stride;
          sum += tables_[s][at];
        }
        if (static_cast<std::uint32_t>(sum - cut - 1 + scale_.guard) >= band) continue;
        for (int i = n_outer_; i < n; ++i) stand_[i] = group[n - 1 - i];
        Margin margin = offset;
        for (const TreeId tree : held_[0]) margin += reader_.at(tree, stand_.data());
        const W bit = static_cast<W>(W{1} << z);
        const bool set = limits_.holds(margin, *target.limit) != target.flip;
        target.words[row] = static_cast<W>(set ? target.words[row] | bit : target.words[row] & ~bit);
      }
}

template <class W>
void Blocks::walk(int place, std::int64_t row, std::span<const Offset> offsets, const Bitmaps<W>& bitmaps) {
  if (halted_.load(std::memory_order_relaxed)) return;
  if (place == n_outer_) {
    show(held_[n_outer_]);
    with_vectors<W>(brick_.padded / 8, [&]<int Vectors>() {
      for (std::size_t k = 0; k < offsets.size(); ++k)
        for (const Target<W>& target : bitmaps.targets(static_cast<int>(k)))
          write_block<W, Vectors>(row, offsets[k].margin, target);
    });
    return;
  }
  std::int64_t rows = std::int64_t{n_x_} * n_y_;
  for (int i = place + 1; i < n_outer_; ++i) rows *= brick_.axes[i]->size();
  std::vector<TreeId>& to = held_[place + 1];
  for (int g = 0; g < brick_.axes[place]->size(); ++g) {
    stand_[place] = g;
    for (std::size_t t = 0; t < to.size(); ++t) to[t] = at_group(held_[place][t], place, g);
    walk(place + 1, row + g * rows, offsets, bitmaps);
  }
}

template <class W>
void Blocks::write(std::span<const TreeId> trees, std::span<const Offset> offsets, const Bitmaps<W>& bitmaps) {
  held_[0].assign(trees.begin(), trees.end());
  for (std::vector<TreeId>& level : held_) level.resize(trees.size());
  shown_.assign(trees.size(), nothing);
  for (int s = 0; s < 1 << inner_axes; ++s)
    if (filled_ >> s & 1) std::fill_n(tables_[s], scopes_[s].size, 0);
  filled_ = 0;
  walk(0, 0, offsets, bitmaps);
}

template void Blocks::write(std::span<const TreeId>, std::span<const Offset>, const Bitmaps<std::uint16_t>&);
template void Blocks::write(std::span<const TreeId>, std::span<const Offset>, const Bitmaps<std::uint32_t>&);
template void Blocks::write(std::span<const TreeId>, std::span<const Offset>, const Bitmaps<std::uint64_t>&);

}  // namespace boxqte
