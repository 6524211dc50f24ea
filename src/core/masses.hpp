// What becomes of inputs, and running sums of their masses.
#pragma once

#include <array>
#include <cstdint>

namespace boxqte {

/// The verdict on an input. The same numbers as boxqte.verdicts.Kind: one enum for the whole project.
enum class Kind : std::int8_t {
  fair = 0,
  unfair = 1,
  low = 2,        ///< not confident
  ambiguous = 3,  ///< the library's own rounding could decide otherwise
  unknown = 4,    ///< given up
};

inline constexpr int n_kinds = 4;  ///< kinds that have a mass

/// Neumaier's sum: within two roundings of the exact sum of non-negative terms (docs/engine.md, Theorem 5).
struct Sum {
  double total = 0.0;
  double lost = 0.0;

  void add(double x) {
    const double after = total + x;
    lost += total >= x ? (total - after) + x : (x - after) + total;
    total = after;
  }
  void add(const Sum& other) {
    add(other.total);
    lost += other.lost;
  }
  double value() const { return total + lost; }
};

/// One sum a kind.
struct Masses {
  std::array<Sum, n_kinds> sums{};

  void add(Kind kind, double mass) { sums[static_cast<std::size_t>(kind)].add(mass); }
  void add(const Masses& other) {
    for (std::size_t k = 0; k < sums.size(); ++k) sums[k].add(other.sums[k]);
  }
  double of(Kind kind) const { return sums[static_cast<std::size_t>(kind)].value(); }
};

}  // namespace boxqte
