// A HIP runtime and a CUDA driver without a GPU: notes every call, hands loads and launches to callbacks, fails where
// told. Only the functions that wmma_ops calls, as their public headers declare them.
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef int (*Load)(const void* code);
typedef int (*Find)(int module, const char* name);
typedef size_t (*Variable)(int module, const char* name, size_t* size);
typedef void (*Run)(int function, const unsigned* sizes, unsigned shared, const void* arguments, size_t size);

static Load load;
static Find find;
static Variable variable;
static Run run;
static char calls[1 << 16];
static char maps[1 << 16];  // what the copy engine was told: numbers, in the order of the call
static char failing[64];
static int code;
static int device = 0;
static void* context = 0;
static int launched_on = -1;
static size_t taken = 0, first = 0;  // bytes that a kernel's one parameter takes, and where it lies; 0 bytes: none told

void stand_in(Load on_load, Find on_find, Variable on_variable, Run on_run) {
  load = on_load, find = on_find, variable = on_variable, run = on_run;
}
void fail(const char* name, int with) { snprintf(failing, sizeof failing, "%s", name), code = with; }
const char* noted(void) { return calls; }
const char* mapped(void) { return maps; }
void forget(void) { calls[0] = maps[0] = 0; }
void takes(size_t bytes, size_t at) { taken = bytes, first = at; }
int device_of_launch(void) { return launched_on; }

static int note(const char* name) {
  if (strlen(calls) + strlen(name) + 2 < sizeof calls) strcat(strcat(calls, name), " ");
  return strcmp(name, failing) == 0 ? code : 0;
}

// The buffer behind `extra`: 1 pointer 2 address of the size, end. Or one argument, whose size the kernel knows.
static void launch(void* function, const unsigned* sizes, unsigned shared, void** params, void** extra, void* end) {
  if (params) {
    run((int)(size_t)function, sizes, shared, params[0], 0);
  } else if (extra[0] == (void*)1 && extra[2] == (void*)2 && extra[4] == end) {
    run((int)(size_t)function, sizes, shared, extra[1], *(size_t*)extra[3]);
  }
}

static int global(const char* call, size_t* at, size_t* size, void* module, const char* name) {
  int failed = note(call);
  if (!failed) *at = variable((int)(size_t)module, name, size);
  return failed ? failed : *at ? 0 : 500;
}

static int copy(const char* call, void* to, const void* from, size_t size) {
  int failed = note(call);
  if (!failed) memcpy(to, from, size);
  return failed;
}

#define LAUNCH(name, end)                                                                                          \
  int name(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, \
           void* stream, void** params, void** extra) {                                                            \
    int failed = note(#name);                                                                                      \
    unsigned sizes[6] = {gx, gy, gz, bx, by, bz};                                                                  \
    launched_on = context ? (int)(size_t)context - 100 : device;                                                   \
    if (!failed && !stream && (!params || !extra)) launch(f, sizes, shared, params, extra, end);                   \
    return failed;                                                                                                 \
  }

// The addresses of some arguments; the kernel knows how many and how large.
#define LAUNCH_TOGETHER(name)                                                                                      \
  int name(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, \
           void* stream, void** params) {                                                                          \
    int failed = note(#name);                                                                                      \
    unsigned sizes[6] = {gx, gy, gz, bx, by, bz};                                                                  \
    if (!failed && !stream) run((int)(size_t)f, sizes, shared, params, (size_t)-1);                                \
    return failed;                                                                                                 \
  }

#define MODULE(prefix)                                                             \
  int prefix##ModuleLoadData(void** module, const void* data) {                    \
    int failed = note(#prefix "ModuleLoadData");                                   \
    if (!failed) *module = (void*)(size_t)load(data);                              \
    return failed;                                                                 \
  }                                                                                \
  int prefix##ModuleUnload(void* module) { return note(#prefix "ModuleUnload"); }  \
  int prefix##ModuleGetFunction(void** function, void* module, const char* name) { \
    int failed = note(#prefix "ModuleGetFunction");                                \
    if (!failed) *function = (void*)(size_t)find((int)(size_t)module, name);       \
    return failed;                                                                 \
  }

MODULE(hip)
LAUNCH(hipModuleLaunchKernel, (void*)3)
int hipGetDevice(int* out) { return *out = device, note("hipGetDevice"); }
int hipSetDevice(int to) { return device = to, note("hipSetDevice"); }
LAUNCH_TOGETHER(hipModuleLaunchCooperativeKernel)
int hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* f, int threads, size_t shared) {
  return *blocks = 2048 / threads, note("room");
}
int hipModuleGetGlobal(size_t* at, size_t* size, void* module, const char* name) {
  return global("hipModuleGetGlobal", at, size, module, name);
}
int hipMemcpyAsync(void* to, const void* from, size_t size, int kind, void* stream) {
  return copy(stream ? "wrong" : kind == 1 ? "hipMemcpyHtoD" : kind == 2 ? "hipMemcpyDtoH" : "wrong", to, from, size);
}
int hipStreamSynchronize(void* stream) { return note(stream ? "wrong" : "hipStreamSynchronize"); }
const char* hipGetErrorName(int error) { return error == 98 ? "hipErrorInvalidDeviceFunction" : 0; }
const char* hipGetErrorString(int error) { return error == 98 ? "invalid device function" : 0; }

#ifndef WITHOUT_CUDA
MODULE(cu)
LAUNCH(cuLaunchKernel, (void*)0)
typedef struct {
  unsigned grid[3], block[3], shared;
  void* stream;
  struct {
    int id, padding, value[16];
  }* attributes;
  unsigned count;
} Config;
int cuLaunchKernelEx(const Config* c, void* f, void** params, void** extra) {
  if (c->count != 1 || c->attributes->id != 6 || c->attributes->value[0] != 1) return note("wrong");
  note("early");
  return cuLaunchKernel(f, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared,
                        c->stream, params, extra);
}
int cuInit(unsigned flags) { return note("cuInit"); }
int cuDeviceGet(int* out, int index) { return *out = index, note("cuDeviceGet"); }
int cuDevicePrimaryCtxRetain(void** out, int of) {
  return *out = (void*)(size_t)(100 + of), note("cuDevicePrimaryCtxRetain");
}
int cuCtxGetCurrent(void** out) { return *out = context, note("cuCtxGetCurrent"); }
int cuCtxPushCurrent_v2(void* to) { return context = to, note("cuCtxPushCurrent"); }
int cuCtxPopCurrent_v2(void** out) { return *out = context, context = 0, note("cuCtxPopCurrent"); }
LAUNCH_TOGETHER(cuLaunchCooperativeKernel)
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* f, int threads, size_t shared) {
  return *blocks = 2048 / threads, note("room");
}
int cuModuleGetGlobal_v2(size_t* at, size_t* size, void* module, const char* name) {
  return global(context ? "cuModuleGetGlobal" : "wrong", at, size, module, name);
}
int cuMemcpyHtoDAsync_v2(size_t to, const void* from, size_t size, void* stream) {
  return copy(stream ? "wrong" : "cuMemcpyHtoD", (void*)to, from, size);
}
int cuMemcpyDtoHAsync_v2(void* to, size_t from, size_t size, void* stream) {
  return copy(stream ? "wrong" : "cuMemcpyDtoH", to, (void*)from, size);
}
int cuStreamSynchronize(void* stream) { return note(stream ? "wrong" : "cuStreamSynchronize"); }
int cuFuncSetAttribute(void* f, int attribute, int value) {
  return note(attribute == 8 && value > 49152 ? "cuFuncSetAttribute" : "wrong");
}
int cuFuncGetParamInfo(void* f, size_t index, size_t* offset, size_t* size) {
  if (index > 0 || taken == 0) return 1;
  return *offset = first, *size = taken, 0;
}
// A map holds which call it was.
int cuTensorMapEncodeTiled(void* map, int type, unsigned rank, void* data, const unsigned long long* sizes,
                           const unsigned long long* strides, const unsigned* box, const unsigned* steps,
                           int interleave, int swizzle, int promotion, int fill) {
  int failed = note(context ? "cuTensorMapEncodeTiled" : "wrong"), index = 0;
  char* to = maps;
  for (; *to; ++to) index += *to == ';';
  to += sprintf(to, "%d %u %llu", type, rank, (unsigned long long)data);
  for (unsigned i = 0; i < rank; ++i) to += sprintf(to, " %llu", sizes[i]);
  for (unsigned i = 0; i + 1 < rank; ++i) to += sprintf(to, " %llu", strides[i]);
  for (unsigned i = 0; i < rank; ++i) to += sprintf(to, " %u", box[i]);
  for (unsigned i = 0; i < rank; ++i) to += sprintf(to, " %u", steps[i]);
  sprintf(to, " %d %d %d %d;", interleave, swizzle, promotion, fill);
  memset(map, index + 1, 128);
  return failed;
}
int cuGetErrorName(int error, const char** out) { return *out = error == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU" : 0, 0; }
int cuGetErrorString(int error, const char** out) { return *out = error == 209 ? "no kernel image" : 0, 0; }
#endif
