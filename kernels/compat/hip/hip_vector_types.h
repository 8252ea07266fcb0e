#include <wmma/compat/vector_types.hpp>
