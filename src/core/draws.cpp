#include "draws.hpp"

#include <algorithm>
#include <stdexcept>

#include "masses.hpp"
#include "threads.hpp"

namespace boxqte {

namespace {

constexpr std::size_t chunk_points = 4096;

std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

}  // namespace

void DrawAxis::prepare() {
  if (mass.empty() || place.size() != mass.size()) throw std::invalid_argument("draws: cells of an attribute");
  Sum sum;
  below.assign(1, 0.0);
  for (std::size_t r = 0; r < mass.size(); ++r) {
    if (!(mass[r] >= 0)) throw std::invalid_argument("draws: masses");
    if (place[r] < 0 || (r > 0 && place[r] < place[r - 1])) throw std::invalid_argument("draws: places of cells");
    sum.add(mass[r]);
    below.push_back(std::max(sum.value(), below.back()));
  }
  if (!(below.back() > 0)) throw std::invalid_argument("draws: an attribute without mass");
  const auto n = static_cast<int>(mass.size());
  guide.resize(n + 1);
  for (int g = 0, r = 0; g <= n; ++g) {
    while (r + 1 < n && below[r + 1] <= below[n] * g / n) ++r;
    guide[g] = r;
  }
  first.assign(place.back() + 1, n);
  last.assign(place.back() + 1, -1);
  for (int r = 0; r < n; ++r) {
    first[place[r]] = std::min(first[place[r]], r);
    last[place[r]] = r;
  }
}

int DrawAxis::pick(int low, int high, double chance) const {
  const auto n = static_cast<int>(mass.size());
  const double at = below[low] + chance * (below[high + 1] - below[low]);
  int r = std::max(guide[std::clamp(static_cast<int>(at / below[n] * n), 0, n)] - 1, low);
  while (r < high && below[r + 1] <= at) ++r;
  while (r > low && mass[r] == 0.0) --r;
  while (r < high && mass[r] == 0.0) ++r;
  return r;
}

Draws::Draws(std::vector<DrawAxis> axes, std::uint64_t seed)
    : axes_(std::move(axes)), key_(mixed(seed + 0x9E3779B97F4A7C15ull)) {
  for (DrawAxis& axis : axes_) axis.prepare();
}

double Draws::random(std::uint64_t n) const {
  return static_cast<double>(mixed(key_ + (n + 1) * 0x9E3779B97F4A7C15ull) >> 11) * 0x1.0p-53;
}

void Draws::places(std::size_t n, double mass, double* out) {
  for (std::size_t i = 0; i < n; ++i)
    out[i] = (static_cast<double>(i) + random(used_ + i)) / static_cast<double>(n) * mass;
  used_ += n;
}

Draws::Held Draws::held(const DrawAxis& axis, const Word* words, int n_words) const {
  int lowest = -1, highest = -1, count = 0;
  for (int w = 0; w < n_words; ++w) {
    if (words[w] == 0) continue;
    if (lowest < 0) lowest = w * word_bits + first_bit(words[w]);
    highest = w * word_bits + last_bit(words[w]);
    count += std::popcount(words[w]);
  }
  if (count == 0 || highest >= static_cast<int>(axis.first.size()))
    throw std::invalid_argument(
        "draws: a box without cells, or with cells "
        "that its attribute does not have");
  if (count != highest - lowest + 1 || axis.first[lowest] > axis.last[highest]) return {-1, -1};
  return {axis.first[lowest], axis.last[highest]};
}

int Draws::pick_among(const DrawAxis& axis, const Word* words, double chance) const {
  const auto n = static_cast<int>(axis.mass.size());
  Sum total;
  for (int r = 0; r < n; ++r)
    if (has_bit(words, axis.place[r])) total.add(axis.mass[r]);
  double at = chance * total.value();
  int chosen = 0;
  for (int r = 0; r < n; ++r) {
    if (axis.mass[r] == 0.0 || !has_bit(words, axis.place[r])) continue;
    chosen = r;
    if (at < axis.mass[r]) break;
    at -= axis.mass[r];
  }
  return chosen;
}

void Draws::cells(const std::int64_t* index, std::size_t n, const Word* boxes, std::size_t n_boxes, int box_axes,
                  int words, std::int64_t* out, int workers, const std::function<void()>& poll) {
  for (const DrawAxis& axis : axes_)
    if (axis.box_axis >= box_axes || (axis.box_axis >= 0 && axis.place.back() >= words * word_bits))
      throw std::invalid_argument("draws: boxes do not fit the attributes");
  for (std::size_t i = 0; i < n; ++i)
    if (index[i] < 0 || static_cast<std::size_t>(index[i]) >= n_boxes)
      throw std::invalid_argument("draws: no such box");
  const std::size_t width = axes_.size();
  const auto row = [&](std::size_t box, int axis) {
    return boxes + (box * static_cast<std::size_t>(box_axes) + static_cast<std::size_t>(axis)) *
                       static_cast<std::size_t>(words);
  };
  std::vector<Held> held_cells(n_boxes * width);
  for (std::size_t b = 0; b < n_boxes; ++b)
    for (std::size_t g = 0; g < width; ++g) {
      const DrawAxis& axis = axes_[g];
      const auto all = static_cast<std::int32_t>(axis.mass.size()) - 1;
      held_cells[b * width + g] = axis.box_axis < 0 ? Held{0, all} : held(axis, row(b, axis.box_axis), words);
    }
  const auto chunk = [&](std::size_t c) {
    const std::size_t end = std::min(n, (c + 1) * chunk_points);
    for (std::size_t i = c * chunk_points; i < end; ++i) {
      const auto box = static_cast<std::size_t>(index[i]);
      for (std::size_t g = 0; g < width; ++g) {
        const double chance = random(used_ + i * width + g);
        const Held& h = held_cells[box * width + g];
        out[i * width + g] = h.first >= 0 ? axes_[g].pick(h.first, h.last, chance)
                                          : pick_among(axes_[g], row(box, axes_[g].box_axis), chance);
      }
    }
  };
  std::atomic<bool> halt{false};
  const std::size_t n_chunks = (n + chunk_points - 1) / chunk_points;
  if (n_chunks == 1)
    chunk(0);
  else
    in_threads(workers, n_chunks, halt, poll, chunk);
  used_ += n * width;
}

}  // namespace boxqte
