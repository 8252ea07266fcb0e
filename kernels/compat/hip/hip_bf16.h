#include <wmma/compat/half_math.hpp>
