#include "binding.hpp"

namespace boxqte {

void bind_window(nb::module_&) {}

}  // namespace boxqte
