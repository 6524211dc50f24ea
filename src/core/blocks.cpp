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
  // moving axes only: the rows of another combination belong to another bitmap
  while (n_inner < std::min(brick_.n_levels() + 1, Tile::inner_axes) &&
         cells * brick_.axes[n - 1 - n_inner]->size() <= most_cells)
    cells *= brick_.axes[n - 1 - n_inner++]->size();
  n_outer_ = n - n_inner;
  tile_ = {};
  tile_.n_y = n_inner > 1 ? brick_.axes[n - 2]->size() : 1;
  tile_.n_x = n_inner > 2 ? brick_.axes[n - 3]->size() : 1;
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
  const auto add = [&](TreeId tree, int sign) {
    const int scope = Tile::scope(reader_.places(tree), static_cast<int>(brick_.axes.size()));
    tile_.table[scope] = tables_[scope];
    reader_.add(tree, scopes_[scope], scale_, sign, tables_[scope]);
  };
  for (std::size_t t = 0; t < trees.size(); ++t)
    if (trees[t] != shown_[t]) {
      if (shown_[t] != nothing) add(shown_[t], -1);
      add(trees[t], 1);
      shown_[t] = trees[t];
    }
}

/// Narrow sums: in the block that begins at this row, look up exactly what lies within the guard.
template <class W>
void Blocks::settle(std::int64_t row, const Margin& offset, const Target<W>& target, const Bitmaps<W>& bitmaps) {
  const Cells cut = scale_.limit(*target.limit, offset);
  const std::uint32_t band = 2 * static_cast<std::uint32_t>(scale_.guard);
  const int n = static_cast<int>(brick_.axes.size());
  for (int x = 0; x < tile_.n_x; ++x)
    for (int y = 0; y < tile_.n_y; ++y, ++row)
      for (int z = 0; z < brick_.n_last; ++z) {
        const int group[Tile::inner_axes] = {z, y, x};
        Cells sum = 0;
        for (int s = 0; s < Tile::scopes; ++s) {
          if (tile_.table[s] == nullptr) continue;
          std::int64_t at = 0;
          for (const Scope::Axis& axis : scopes_[s].axes) at += group[n - 1 - axis.place] * axis.stride;
          sum += tables_[s][at];
        }
        if (static_cast<std::uint32_t>(sum - cut - 1 + scale_.guard) >= band) continue;
        for (int i = n_outer_; i < n; ++i) stand_[i] = group[n - 1 - i];
        Margin margin = offset;
        for (const TreeId tree : held_[0]) margin += reader_.at(tree, stand_.data());
        put(target.words[bitmaps.at(static_cast<int>(row / brick_.rows), row % brick_.rows)], z,
            limits_.holds(margin, *target.limit) != target.flip);
      }
}

template <class W>
void Blocks::walk(int place, std::int64_t row, std::span<const Offset> offsets, const Bitmaps<W>& bitmaps) {
  if (halted_.load(std::memory_order_relaxed)) return;
  if (place == n_outer_) {
    show(held_[n_outer_]);
    for (std::size_t k = 0; k < offsets.size(); ++k) {
      const Targets<W> targets = bitmaps.targets(static_cast<int>(k));
      if (bitmaps.write(tile_, row, scale_, offsets[k].margin, targets)) continue;
      for (const Target<W>& target : targets) settle(row, offsets[k].margin, target, bitmaps);
    }
    return;
  }
  std::int64_t rows = std::int64_t{tile_.n_x} * tile_.n_y;
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
  for (int s = 0; s < Tile::scopes; ++s)
    if (tile_.table[s] != nullptr) {
      std::fill_n(tables_[s], scopes_[s].size, 0);
      tile_.table[s] = nullptr;
    }
  walk(0, 0, offsets, bitmaps);
}

template void Blocks::write(std::span<const TreeId>, std::span<const Offset>, const Bitmaps<std::uint16_t>&);
template void Blocks::write(std::span<const TreeId>, std::span<const Offset>, const Bitmaps<std::uint32_t>&);
template void Blocks::write(std::span<const TreeId>, std::span<const Offset>, const Bitmaps<std::uint64_t>&);

}  // namespace boxqte
