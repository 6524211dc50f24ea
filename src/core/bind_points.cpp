#include "binding.hpp"

namespace boxqte {

void bind_points(nb::module_&) {}

}  // namespace boxqte
