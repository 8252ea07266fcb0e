#include <wmma/compat/host_only.hpp>
