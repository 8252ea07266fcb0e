#include <wmma/compat/rocwmma.hpp>
