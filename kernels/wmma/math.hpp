// Math on the device: the hardware's approximations, by names that begin with fast_.
#pragma once

#include <wmma/math/fast.hpp>
