#include <wmma/compat/integers.hpp>
