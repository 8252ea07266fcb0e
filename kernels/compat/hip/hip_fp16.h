#include <wmma/compat/fp16.hpp>
