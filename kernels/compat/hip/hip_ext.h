#include <wmma/compat/hip.hpp>
