#include "binding.hpp"

namespace boxqte {

void bind_exchange(nb::module_&) {}

}  // namespace boxqte
