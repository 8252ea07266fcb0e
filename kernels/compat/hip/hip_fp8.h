#include <wmma/compat/fp8.hpp>
