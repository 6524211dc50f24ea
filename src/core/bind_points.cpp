// Single points, boxes of many classes, draws: nothing but names.
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>

#include "binding.hpp"
#include "classes.hpp"
#include "draws.hpp"
#include "point.hpp"

using namespace nanobind::literals;

namespace boxqte {

namespace {

/// Lets Ctrl-C through while threads work.
void poll_signals() {
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

using Table32 = Array<const std::int32_t, 2>;
using Flags = Array<const bool, 2>;

Forest make_forest(Array<const std::int32_t, 1> axis, Array<const std::int32_t, 1> cut, Array<const std::int32_t, 1> no,
                   Array<const std::int64_t, 2> value, Array<const std::int32_t, 1> root,
                   Array<const std::int32_t, 1> output, Array<const std::int64_t, 1> base, Table32 odd,
                   Array<const std::int32_t, 1> tested, Array<const std::int32_t, 1> n_cells,
                   Array<const std::int32_t, 1> ordered, Array<const bool, 1> sensitive,
                   Array<const std::int32_t, 1> n_refined, Table32 base_cell, Table32 near_lo, Table32 near_hi,
                   Flags single) {
  Forest f;
  f.axis = to_vector(axis);
  f.cut = to_vector(cut);
  f.no = to_vector(no);
  f.value = to_vector(value);
  f.width = static_cast<int>(value.shape(1));
  f.root = to_vector(root);
  f.output = to_vector(output);
  f.base = to_vector(base);
  f.odd = to_vector(odd);
  f.odd_width = static_cast<int>(odd.shape(1));
  f.tested = to_vector(tested);
  const std::size_t n = n_cells.size(), width = base_cell.shape(1);
  if (ordered.size() != n || sensitive.size() != n || n_refined.size() != n || base_cell.shape(0) != n ||
      near_lo.shape(0) != n || near_hi.shape(0) != n || single.shape(0) != n || near_lo.shape(1) != width ||
      near_hi.shape(1) != width)
    throw std::invalid_argument("points: attributes");
  for (std::size_t g = 0; g < n; ++g) {
    const std::size_t refined = n_refined.data()[g];
    if (refined > width) throw std::invalid_argument("points: refined cells");
    PointAxis a;
    a.n_cells = n_cells.data()[g];
    a.ordered = ordered.data()[g];
    a.sensitive = sensitive.data()[g];
    const auto row = [&](const Table32& t) {
      return std::vector<std::int32_t>(t.data() + g * width, t.data() + g * width + refined);
    };
    a.base = row(base_cell);
    a.low = row(near_lo);
    a.high = row(near_hi);
    a.single.assign(single.data() + g * single.shape(1), single.data() + (g + 1) * single.shape(1));
    f.grid.push_back(std::move(a));
  }
  return f;
}

using Cells = Array<const std::int64_t, 2>;
using Bounds = std::optional<Array<const std::int32_t, 2>>;

PointBatch make_batch(const Points& points, const Cells& cells, const Array<std::int8_t, 1>& verdict,
                      const Array<std::int32_t, 2>& witness, const Bounds& low, const Bounds& high) {
  const std::size_t n = cells.shape(0), width = points.forest().grid.size();
  const auto fits = [&](const auto& table) { return table.shape(0) == n && table.shape(1) == width; };
  if (!fits(cells) || !fits(witness) || verdict.size() != n || low.has_value() != high.has_value() ||
      (low && (!fits(*low) || !fits(*high))))
    throw std::invalid_argument("points: arrays do not fit each other");
  return {cells.data(), n, low ? low->data() : nullptr, high ? high->data() : nullptr, verdict.data(), witness.data()};
}

void check_boxes(const Points& points, const Table32& low, const Table32& high) {
  const Forest& forest = points.forest();
  const auto axes = static_cast<std::size_t>(forest.n_axes());
  if (low.shape(1) != axes || high.shape(1) != axes || low.shape(0) != high.shape(0))
    throw std::invalid_argument("points: arrays do not fit each other");
  for (std::size_t i = 0; i < low.size(); ++i)
    if (low.data()[i] < 0 || low.data()[i] > high.data()[i] ||
        high.data()[i] >= forest.of(static_cast<int>(i % axes)).n_cells)
      throw std::invalid_argument("points: cells of a box");
}

}  // namespace

void bind_points(nb::module_& m) {
  m.attr("POINT_CLOSE") = static_cast<int>(kind_close);
  m.attr("POINT_OPEN") = static_cast<int>(kind_open);
  nb::class_<Points>(m, "Points")
      .def(
          "__init__",
          [](Points* self, Array<const std::int32_t, 1> axis, Array<const std::int32_t, 1> cut,
             Array<const std::int32_t, 1> no, Array<const std::int64_t, 2> value, Array<const std::int32_t, 1> root,
             Array<const std::int32_t, 1> output, Array<const std::int64_t, 1> base, Table32 odd,
             Array<const std::int32_t, 1> tested, Array<const std::int32_t, 1> n_cells,
             Array<const std::int32_t, 1> ordered, Array<const bool, 1> sensitive,
             Array<const std::int32_t, 1> n_refined, Table32 base_cell, Table32 near_lo, Table32 near_hi, Flags single,
             std::int64_t fuzz, int dense_limit, std::size_t mask_bytes) {
            Forest f = make_forest(axis, cut, no, value, root, output, base, odd, tested, n_cells, ordered, sensitive,
                                   n_refined, base_cell, near_lo, near_hi, single);
            const nb::gil_scoped_release released;
            new (self) Points(std::move(f), fuzz, dense_limit, mask_bytes);
          },
          nb::kw_only(), "axis"_a, "cut"_a, "no"_a, "value"_a, "root"_a, "output"_a, "base"_a, "odd"_a, "tested"_a,
          "n_cells"_a, "ordered"_a, "sensitive"_a, "n_refined"_a, "base_cell"_a, "near_lo"_a, "near_hi"_a, "single"_a,
          "fuzz"_a, "dense_limit"_a, "mask_bytes"_a)
      .def_prop_ro("bytes", &Points::bytes)
      .def(
          "decide",
          [](Points& self, Cells cells, Array<std::int8_t, 1> verdict, Array<std::int32_t, 2> witness,
             std::array<std::int64_t, 5> thresholds, std::int64_t budget, int workers, Bounds low, Bounds high) {
            const PointBatch batch = make_batch(self, cells, verdict, witness, low, high);
            const PointThresholds t{thresholds[0], thresholds[1], thresholds[2], thresholds[3], thresholds[4]};
            const nb::gil_scoped_release released;
            self.decide(batch, t, budget, workers, poll_signals);
          },
          "cells"_a, "verdict"_a, "witness"_a, "thresholds"_a, "budget"_a, "workers"_a, "low"_a.none(), "high"_a.none())
      .def(
          "decide_targets",
          [](Points& self, Cells cells, Array<std::int8_t, 1> verdict, Array<std::int32_t, 2> witness,
             Array<const std::int64_t, 2> target, Array<const std::int64_t, 1> slack, int axis, Table32 ranges,
             std::int64_t budget, int workers, Bounds low, Bounds high) {
            const PointBatch batch = make_batch(self, cells, verdict, witness, low, high);
            if (target.shape(0) != batch.n || target.shape(1) != 2 || slack.size() != batch.n || ranges.shape(0) != 4)
              throw std::invalid_argument("points: arrays do not fit each other");
            const PointTargets targets{target.data(), slack.data(), axis, ranges.data(), ranges.shape(1)};
            const nb::gil_scoped_release released;
            self.decide_targets(batch, targets, budget, workers, poll_signals);
          },
          "cells"_a, "verdict"_a, "witness"_a, "target"_a, "slack"_a, "axis"_a, "ranges"_a, "budget"_a, "workers"_a,
          "low"_a.none(), "high"_a.none())
      .def(
          "decide_rivals",
          [](Points& self, Cells cells, Array<const std::int64_t, 1> own_class, Array<std::int8_t, 1> verdict,
             Array<std::int32_t, 2> witness, std::int64_t budget, int workers, Bounds low, Bounds high) {
            const PointBatch batch = make_batch(self, cells, verdict, witness, low, high);
            if (own_class.size() != batch.n) throw std::invalid_argument("points: arrays do not fit each other");
            const nb::gil_scoped_release released;
            self.decide_rivals(batch, own_class.data(), budget, workers, poll_signals);
          },
          "cells"_a, "own_class"_a, "verdict"_a, "witness"_a, "budget"_a, "workers"_a, "low"_a.none(), "high"_a.none())
      .def(
          "margins",
          [](Points& self, Cells cells, Array<std::int64_t, 2> outputs, int workers) {
            if (cells.shape(1) != self.forest().grid.size() || outputs.shape(0) != cells.shape(0) ||
                outputs.shape(1) != static_cast<std::size_t>(self.forest().n_outputs()))
              throw std::invalid_argument("points: arrays do not fit each other");
            const nb::gil_scoped_release released;
            self.margins(cells.data(), cells.shape(0), outputs.data(), workers, poll_signals);
          },
          "cells"_a, "outputs"_a, "workers"_a)
      .def(
          "bound_classes",
          [](const Points& self, Table32 low, Table32 high) {
            const std::size_t n = low.shape(0), k = static_cast<std::size_t>(self.forest().n_outputs());
            check_boxes(self, low, high);
            std::vector<std::int64_t> least(n * k), most(n * k), lead(n * k * k), cut(n * 2);
            {
              const nb::gil_scoped_release released;
              bound_classes(self.forest(), low.data(), high.data(), n,
                            {least.data(), most.data(), lead.data(), cut.data()});
            }
            return nb::make_tuple(to_numpy(std::move(least), {n, k}), to_numpy(std::move(most), {n, k}),
                                  to_numpy(std::move(lead), {n, k, k}), to_numpy(std::move(cut), {n, 2}));
          },
          "low"_a, "high"_a)
      .def(
          "split_boxes",
          [](const Points& self, Array<const std::int64_t, 3> ranges, Cells cut) {
            const std::size_t n = ranges.shape(0), axes = static_cast<std::size_t>(self.forest().n_axes());
            if (ranges.shape(1) != axes || ranges.shape(2) != 2 || cut.shape(0) != n || cut.shape(1) != 2 || axes == 0)
              throw std::invalid_argument("points: arrays do not fit each other");
            for (std::size_t i = 0; i < n; ++i)
              if (cut.data()[2 * i] >= static_cast<std::int64_t>(axes))
                throw std::invalid_argument("points: no such axis");
            std::vector<std::int64_t> sides(2 * n * axes * 2);
            split_boxes(self.forest(), ranges.data(), cut.data(), n, sides.data());
            return to_numpy(std::move(sides), {2 * n, axes, 2});
          },
          "ranges"_a, "cut"_a);
  m.def(
      "box_masses",
      [](Array<const std::int64_t, 3> ranges, Array<const double, 2> mass) {
        if (ranges.shape(1) != mass.shape(0) || ranges.shape(2) != 2)
          throw std::invalid_argument("points: arrays do not fit each other");
        std::vector<double> total(ranges.shape(0));
        box_masses(ranges.data(), ranges.shape(0), ranges.shape(1), mass.data(), mass.shape(1), total.data());
        return to_numpy(std::move(total), {ranges.shape(0)});
      },
      "ranges"_a, "mass"_a);
  nb::class_<Draws>(m, "Draws")
      .def(
          "__init__",
          [](Draws* self, std::uint64_t seed, Array<const std::int32_t, 1> n_refined, Array<const double, 2> mass,
             Table32 place, Array<const std::int32_t, 1> box_axis) {
            const std::size_t n = n_refined.size(), width = mass.shape(1);
            if (mass.shape(0) != n || place.shape(0) != n || place.shape(1) != width || box_axis.size() != n)
              throw std::invalid_argument("draws: arrays do not fit each other");
            std::vector<DrawAxis> axes(n);
            for (std::size_t g = 0; g < n; ++g) {
              const auto count = static_cast<std::size_t>(n_refined.data()[g]);
              if (count > width) throw std::invalid_argument("draws: refined cells");
              axes[g].mass.assign(mass.data() + g * width, mass.data() + g * width + count);
              axes[g].place.assign(place.data() + g * width, place.data() + g * width + count);
              axes[g].box_axis = box_axis.data()[g];
            }
            new (self) Draws(std::move(axes), seed);
          },
          "seed"_a, "n_refined"_a, "mass"_a, "place"_a, "box_axis"_a)
      .def(
          "places",
          [](Draws& self, std::size_t n, double mass) {
            std::vector<double> out(n);
            self.places(n, mass, out.data());
            return to_numpy(std::move(out), {n});
          },
          "n"_a, "mass"_a)
      .def(
          "cells",
          [](Draws& self, Array<const std::int64_t, 1> index, Array<const Word, 3> boxes, int workers) {
            const std::size_t n = index.size();
            std::vector<std::int64_t> out(n * self.n_axes());
            {
              const nb::gil_scoped_release released;
              self.cells(index.data(), n, boxes.data(), boxes.shape(0), static_cast<int>(boxes.shape(1)),
                         static_cast<int>(boxes.shape(2)), out.data(), workers, poll_signals);
            }
            return to_numpy(std::move(out), {n, self.n_axes()});
          },
          "index"_a, "boxes"_a, "workers"_a);
}

}  // namespace boxqte
