#include "scores.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace boxqte {

namespace {

/// More than the elementary functions, and the steps between them, can be wrong by; of what is computed, or of 1.
constexpr double error = 64 * std::numeric_limits<double>::epsilon();
constexpr double large = 80;  // beyond this half width cosh x is exp(x) / 2 and tanh x is 1

}  // namespace

MarginRange Scores::too_far(std::int64_t d, bool above, std::int64_t slack, bool surely) const {
  const std::int64_t apart = surely ? d - 2 * slack : d + 2 * slack;
  if (apart <= 0) return {};
  if (!probabilities()) return apart >= gap ? MarginRange::all() : MarginRange{};
  const double sign = surely ? -1 : 1;
  const double h = static_cast<double>(apart) / (2 * unit);
  const double excess = std::tanh(h / 2) / (surely ? change_above : change_below) - 1;
  const double t = excess + sign * error * (2 + std::abs(excess));
  if (t <= 0) return {};
  double near = 0, far = 0;  // |margin| at the two ends of the interval
  if (h / 2 < large) {
    const double r = 2 * std::asinh(std::cosh(h / 2) * std::sqrt(t));
    near = h - r;
    far = h + r;
  } else {  // cosh(h / 2) sqrt(t) is beyond 10^20, unless the change is within 10^-30 of 1, which no float is
    near = -std::log(t);
    far = 2 * h - near;
  }
  const double wide = 1 + static_cast<double>(slack) + error * (far + std::abs(near) + 1) * unit;
  const double first = (above ? -far : near) * unit - rest - sign * wide;
  const double last = (above ? -near : far) * unit - rest + sign * wide;
  constexpr auto end = static_cast<double>(MarginRange::end);
  if (!(first <= last)) return {};
  return {static_cast<std::int64_t>(std::ceil(std::clamp(first, -end, end))),
          static_cast<std::int64_t>(std::floor(std::clamp(last, -end, end)))};
}

}  // namespace boxqte
