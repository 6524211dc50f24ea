#include "binding.hpp"
#include "window.hpp"

namespace boxqte {

using namespace nb::literals;

void bind_window(nb::module_& m) {
  nb::class_<WindowWorker>(m, "WindowWorker")
      .def(
          "__init__",
          [](WindowWorker* self, const Problem& problem, int mixed_limit, double cell_limit, std::int64_t dense_cells,
             std::int64_t table_cells, std::size_t memory, int sum_bits) {
            new (self) WindowWorker(problem, {mixed_limit, cell_limit, {dense_cells, table_cells, sum_bits}, memory});
          },
          "problem"_a, nb::kw_only(), "mixed_limit"_a, "cell_limit"_a, "dense_cells"_a, "table_cells"_a, "memory"_a,
          "sum_bits"_a = Walk::Options{}.sum_bits, nb::keep_alive<1, 2>())
      .def(
          "work",
          [](WindowWorker& self, Array<const Word, 3> boxes, std::int64_t budget) {
            WindowReply reply;
            {
              const nb::gil_scoped_release release;
              reply = self.work(boxes.data(), boxes.shape(0), budget);
            }
            const std::size_t n_axes = boxes.shape(1), words = boxes.shape(2);
            const std::size_t n_open = reply.open_mass.size(), n_settled = reply.settled_mass.size() / 3;
            return nb::make_tuple(reply.decided.of(Kind::fair), reply.decided.of(Kind::unfair),
                                  reply.decided.of(Kind::low), to_numpy(std::move(reply.open), {n_open, n_axes, words}),
                                  to_numpy(std::move(reply.open_mass), {n_open}),
                                  to_numpy(std::move(reply.settled), {n_settled, n_axes, words}),
                                  to_numpy(std::move(reply.settled_mass), {n_settled, 3}), reply.nodes, reply.tiles);
          },
          "boxes"_a, "budget"_a,
          "(fair, unfair, low, open boxes, their masses, settled boxes, their [fair, unfair, low], nodes, tiles)")
      .def("halt", &WindowWorker::halt)
      .def_prop_ro("memory", &WindowWorker::bytes);
}

}  // namespace boxqte
