// The module: nothing but names.
#include "binding.hpp"
#include "masses.hpp"
#include "problem.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace boxqte {

void bind_problem(nb::module_& m) {
  nb::enum_<Kind>(m, "Kind", nb::is_arithmetic())
      .value("FAIR", Kind::fair)
      .value("UNFAIR", Kind::unfair)
      .value("LOW", Kind::low)
      .value("AMBIGUOUS", Kind::ambiguous)
      .value("UNKNOWN", Kind::unknown);
  nb::exception<MemoryLimit>(m, "MemoryLimitError", PyExc_MemoryError);
  nb::class_<Problem>(m, "Problem")
      .def(
          "__init__",
          [](Problem* self, Array<const std::int32_t, 1> cut_axis, Array<const std::int32_t, 1> cut_start,
             Array<const std::int32_t, 1> cut_prefix, Array<const Word, 2> cut_mask,
             Array<const std::int64_t, 1> implied_at, Array<const std::int8_t, 1> implied,
             Array<const std::int32_t, 1> n_cells, Array<const bool, 1> chain, Array<const std::int8_t, 1> role,
             Array<const double, 2> mass, Array<const bool, 2> single, Array<const std::int32_t, 1> n_refined,
             Array<const std::int32_t, 2> base_cell, Array<const std::int32_t, 2> near_lo,
             Array<const std::int32_t, 2> near_hi, Array<const double, 2> refined_mass,
             Array<const std::int32_t, 1> root, Array<const std::int32_t, 1> cut, Array<const std::int32_t, 1> yes,
             Array<const std::int32_t, 1> no, Array<const std::int64_t, 1> value, Array<const std::uint64_t, 1> residue,
             std::int64_t base, std::uint64_t base_residue, Array<const std::int64_t, 1> thresholds,
             Array<const std::uint64_t, 1> threshold_residues, bool simple, bool all_confident, std::int64_t band,
             std::int64_t fuzz, bool capped, int counted, bool merges, bool points_matter,
             Array<const std::int32_t, 1> combination_axes, Array<const std::int32_t, 2> combination_cells,
             Array<const double, 1> combination_mass, Array<const std::int32_t, 1> partner_place,
             Array<const std::int32_t, 2> partner_ranges, int partner_order, int ordered_places, std::int64_t score_gap,
             Array<const double, 1> probability_scale, Array<const std::int32_t, 1> rule_start,
             Array<const std::int32_t, 1> rule_axis, Array<const Word, 2> rule_mask, Array<const bool, 2> rule_bans) {
            Problem p;
            p.cuts = {to_vector(cut_axis),
                      to_vector(cut_start),
                      to_vector(cut_prefix),
                      to_vector(cut_mask),
                      to_vector(implied_at),
                      to_vector(implied),
                      static_cast<int>(cut_mask.shape(1))};
            p.axes.n_cells = to_vector(n_cells);
            p.axes.chain.assign(chain.data(), chain.data() + chain.size());
            for (std::size_t i = 0; i < role.size(); ++i) p.axes.role.push_back(static_cast<Role>(role.data()[i]));
            p.axes.longest = static_cast<int>(mass.shape(1));
            p.axes.mass = to_vector(mass);
            p.axes.single.assign(single.data(), single.data() + single.size());
            p.axes.n_refined = to_vector(n_refined);
            p.axes.most_refined = static_cast<int>(base_cell.shape(1));
            p.axes.base = to_vector(base_cell);
            p.axes.near_lo = to_vector(near_lo);
            p.axes.near_hi = to_vector(near_hi);
            p.axes.refined_mass = to_vector(refined_mass);
            p.trees = {to_vector(root),  to_vector(cut),     to_vector(yes), to_vector(no),
                       to_vector(value), to_vector(residue), base,           base_residue};
            if (thresholds.size() != 5 || threshold_residues.size() != 5)
              throw std::invalid_argument("problem: five thresholds are expected");
            const std::int64_t* t = thresholds.data();
            const std::uint64_t* r = threshold_residues.data();
            p.thresholds = {t[0],   t[1],          t[2], t[3], r[0],   r[1], r[2], r[3],
                            simple, all_confident, band, fuzz, capped, t[4], r[4], counted};
            p.merges = merges;
            p.points_matter = points_matter;
            p.combinations = {to_vector(combination_axes), to_vector(combination_cells), to_vector(combination_mass)};
            if (partner_ranges.shape(0) != 4) throw std::invalid_argument("problem: four ends of ranges are expected");
            const std::size_t places = partner_ranges.shape(1);
            const auto ends = [&](int k) {
              return std::vector<std::int32_t>(partner_ranges.data() + k * places,
                                               partner_ranges.data() + (k + 1) * places);
            };
            if (probability_scale.size() != 4)
              throw std::invalid_argument("problem: four numbers of a scale are expected");
            const double* scale = probability_scale.data();
            p.partners = {to_vector(partner_place),
                          ends(0),
                          ends(1),
                          ends(2),
                          ends(3),
                          partner_order,
                          ordered_places,
                          {score_gap, scale[0], scale[1], scale[2], scale[3]}};
            p.rules = {to_vector(rule_start), to_vector(rule_axis), to_vector(rule_mask), {}};
            p.rules.bans.assign(rule_bans.data(), rule_bans.data() + rule_bans.size());
            p.check();
            new (self) Problem(std::move(p));
          },
          nb::kw_only(), "cut_axis"_a, "cut_start"_a, "cut_prefix"_a, "cut_mask"_a, "implied_at"_a, "implied"_a,
          "n_cells"_a, "chain"_a, "role"_a, "mass"_a, "single"_a, "n_refined"_a, "base_cell"_a, "near_lo"_a,
          "near_hi"_a, "refined_mass"_a, "root"_a, "cut"_a, "yes"_a, "no"_a, "value"_a, "residue"_a, "base"_a,
          "base_residue"_a, "thresholds"_a, "threshold_residues"_a, "simple"_a, "all_confident"_a, "band"_a, "fuzz"_a,
          "capped"_a, "counted"_a, "merges"_a, "points_matter"_a, "combination_axes"_a, "combination_cells"_a,
          "combination_mass"_a, "partner_place"_a, "partner_ranges"_a, "partner_order"_a, "ordered_places"_a,
          "score_gap"_a, "probability_scale"_a, "rule_start"_a, "rule_axis"_a, "rule_mask"_a, "rule_bans"_a);
}

}  // namespace boxqte

NB_MODULE(BOXQTE_MODULE, m) {
  m.doc() = "The hot loops of boxqte: arrays in, arrays out.";
  boxqte::bind_problem(m);
  boxqte::bind_exchange(m);
  boxqte::bind_window(m);
  boxqte::bind_points(m);
}
