#include <wmma/compat/half.hpp>
