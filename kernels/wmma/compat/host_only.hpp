// What a header of the host's library is to a kernel: nothing. A source that names one compiles; host functions beside
// the kernel that use it do not, and belong into another file.
#pragma once
