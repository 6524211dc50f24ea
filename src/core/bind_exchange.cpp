#include <nanobind/stl/tuple.h>

#include "binding.hpp"
#include "exchange.hpp"

using namespace nanobind::literals;

namespace boxqte {

void bind_exchange(nb::module_& m) {
  nb::class_<ExchangeWorker>(m, "ExchangeWorker")
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
            const std::size_t n_open = reply.cost.size(), n_points = reply.points.mass.size(), n_closed = reply.how.size();
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
}

}  // namespace boxqte
