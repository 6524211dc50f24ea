#include <nanobind/stl/tuple.h>

#include "binding.hpp"
#include "draw.hpp"
#include "enclose.hpp"
#include "exchange.hpp"

using namespace nanobind::literals;

namespace boxqte {

namespace {

/// Throws unless counts and places say into which of the rows all draws go.
void check_rows(std::span<const std::int64_t> counts, std::span<const std::int64_t> place, std::size_t n_boxes,
                std::size_t n_rows) {
  std::int64_t total = 0;
  bool fits = counts.size() == n_boxes;
  for (const std::int64_t n : counts) {
    fits &= n >= 0;
    total += n;
  }
  for (const std::int64_t row : place) fits &= 0 <= row && row < static_cast<std::int64_t>(n_rows);
  if (!fits || total != static_cast<std::int64_t>(place.size()))
    throw std::invalid_argument("draw: one count a box, and one row a draw, are expected");
}

}  // namespace

void bind_exchange(nb::module_& m) {
  nb::class_<ExchangeWorker> worker(m, "ExchangeWorker");
  worker
      .def(
          "__init__",
          [](ExchangeWorker* self, const Problem& problem, double finish_limit, double depth_first_below,
             std::int64_t call_work, int batch, bool notes, std::size_t memory) {
            new (self) ExchangeWorker(
                problem, ExchangeOptions{finish_limit, depth_first_below, call_work, batch, notes, memory});
          },
          "problem"_a, nb::kw_only(), "finish_limit"_a, "depth_first_below"_a, "call_work"_a, "batch"_a, "notes"_a,
          "memory"_a, nb::keep_alive<1, 2>())
      .def("halt", &ExchangeWorker::halt)
      .def_prop_ro("memory", &ExchangeWorker::bytes)
      .def(
          "work",
          [](ExchangeWorker& self, Array<const Word, 3> boxes, Array<const double, 1> masses, std::int64_t budget,
             bool depth_first) {
            const std::size_t n_axes = boxes.shape(1), words = boxes.shape(2);
            self.check_boxes(boxes.shape(0), n_axes, words, masses.size());
            ExchangeReply reply;
            {
              nb::gil_scoped_release released;
              reply = self.work(boxes.data(), {masses.data(), masses.size()}, budget, depth_first);
            }
            const std::size_t n_open = reply.cost.size(), n_points = reply.points.mass.size(),
                              n_closed = reply.how.size();
            nb::dict out;
            out["decided"] = std::make_tuple(reply.decided.of(Kind::fair), reply.decided.of(Kind::unfair),
                                             reply.decided.of(Kind::low), reply.decided.of(Kind::ambiguous));
            out["boxes"] = to_numpy(std::move(reply.open.domain), {n_open, n_axes, words});
            out["masses"] = to_numpy(std::move(reply.open.mass), {n_open});
            out["costs"] = to_numpy(std::move(reply.cost), {n_open});
            out["point_boxes"] = to_numpy(std::move(reply.points.domain), {n_points, n_axes, words});
            out["point_masses"] = to_numpy(std::move(reply.points.mass), {n_points});
            out["closed_boxes"] = to_numpy(std::move(reply.closed), {n_closed, n_axes, words});
            out["closed_masses"] = to_numpy(std::move(reply.closed_masses), {n_closed, std::size_t{n_kinds}});
            out["how"] = to_numpy(std::move(reply.how), {n_closed});
            const std::size_t n_events = reply.events.size();
            out["events"] = to_numpy(std::move(reply.events), {n_events});
            out["nodes"] = reply.nodes;
            out["finished"] = reply.finished;
            return out;
          },
          "boxes"_a, "masses"_a, "budget"_a, "depth_first"_a);

  nb::class_<Encloser>(m, "Encloser")
      .def(nb::init<const Problem&, std::size_t>(), "problem"_a, nb::kw_only(), "memory"_a, nb::keep_alive<1, 2>())
      .def_prop_ro("memory", &Encloser::bytes)
      .def(
          "enclose",
          [](Encloser& self, Array<const Word, 3> boxes, double cells) {
            self.check_boxes(boxes.shape(1), boxes.shape(2));
            const std::size_t n = boxes.shape(0), box_words = boxes.shape(1) * boxes.shape(2);
            std::vector<double> out;
            {
              nb::gil_scoped_release released;
              out.reserve(3 * n);
              for (std::size_t i = 0; i < n; ++i) {
                const Proved found = self.enclose(boxes.data() + i * box_words, cells);
                out.insert(out.end(), {found.fair, found.unfair, found.low});
              }
            }
            return to_numpy(std::move(out), {n, std::size_t{3}});
          },
          "boxes"_a, "cells"_a);

  nb::enum_<Drawer::Found>(m, "Found", nb::is_arithmetic())
      .value("NONE", Drawer::Found::none)
      .value("SOME", Drawer::Found::some)
      .value("UNSURE", Drawer::Found::unsure);
  nb::class_<Drawer>(m, "Drawer")
      .def(nb::init<const Problem&, double>(), "problem"_a, nb::kw_only(), "finish_limit"_a, nb::keep_alive<1, 2>())
      .def(
          "draw",
          [](Drawer& self, Array<const Word, 3> boxes, Array<const std::int64_t, 1> counts, std::uint64_t seed,
             Array<const std::int64_t, 1> place, Array<std::int32_t, 2> cells, Array<std::int32_t, 2> combinations) {
            self.check_boxes(boxes.shape(1), boxes.shape(2));
            check_rows({counts.data(), counts.size()}, {place.data(), place.size()}, boxes.shape(0), cells.shape(0));
            if (counts.size() && (cells.shape(1) != boxes.shape(1) || combinations.shape(1) != 2 ||
                                  combinations.shape(0) != cells.shape(0)))
              throw std::invalid_argument("draw: cells are row x axis, combinations row x 2");
            const std::size_t box_words = boxes.shape(1) * boxes.shape(2);
            std::vector<bool> drawn(boxes.shape(0));
            {
              nb::gil_scoped_release released;
              self.seed(seed);
              const std::int64_t* rows = place.data();
              for (std::size_t i = 0; i < drawn.size(); ++i) {
                const auto n = static_cast<std::size_t>(counts.data()[i]);
                drawn[i] = self.draw(boxes.data() + i * box_words, {rows, n}, cells.data(), combinations.data());
                rows += n;
              }
            }
            return to_numpy(std::vector<std::uint8_t>(drawn.begin(), drawn.end()), {drawn.size()});
          },
          "boxes"_a, "counts"_a, "seed"_a, "place"_a, "cells"_a, "combinations"_a)
      .def(
          "exists",
          [](Drawer& self, Array<const Word, 3> boxes) {
            self.check_boxes(boxes.shape(1), boxes.shape(2));
            const std::size_t box_words = boxes.shape(1) * boxes.shape(2);
            std::vector<std::int8_t> found(boxes.shape(0));
            {
              nb::gil_scoped_release released;
              for (std::size_t i = 0; i < found.size(); ++i)
                found[i] = static_cast<std::int8_t>(self.exists(boxes.data() + i * box_words));
            }
            const std::size_t n = found.size();
            return to_numpy(std::move(found), {n});
          },
          "boxes"_a);
}

}  // namespace boxqte
