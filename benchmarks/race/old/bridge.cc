/* The entry of a kernel that TVM 0.17 built, for the runtimes of TVM 0.25 and later.
 *
 * It is linked into an exported library, so that one process can time kernels of both. Only the way
 * in differs: arguments are passed otherwise (tvm/ffi/c_api.h: TVMFFIAny, TVMFFISafeCallType), and
 * an error is reported otherwise. What the kernel itself asks of the runtime (launching threads,
 * work space) is the same; the runtime puts it into variables of the library by name.
 */
#include <stdint.h>

#define MOST_ARGUMENTS 32

enum { POINTER_TO_TENSOR = 7, TENSOR_OBJECT = 70, HEADER_OF_AN_OBJECT = 24 };

typedef struct {
  int32_t type;
  uint32_t padding;
  union { int64_t integer; char *pointer; } value;
} Any;

typedef union { int64_t integer; double real; void *pointer; } OldValue;

extern "C" {

extern int32_t race_kernel(OldValue *, int32_t *, int32_t, OldValue *, int32_t *, void *);

/* Filled by the runtime that loads the library: the first by new ones, the second by 0.17. */
void (*__TVMFFIErrorSetRaisedFromCStr)(const char *kind, const char *message);
extern void (*__TVMAPISetLastError)(const char *) __attribute__((weak));

static void raise_error(const char *message) {
  if (__TVMFFIErrorSetRaisedFromCStr) __TVMFFIErrorSetRaisedFromCStr("RuntimeError", message);
}

int32_t __tvm_ffi_main(void *self, const Any *given, int32_t count, Any *result) {
  OldValue values[MOST_ARGUMENTS], returned;
  int32_t types[MOST_ARGUMENTS], returned_type = 0;
  (void)self;
  (void)result;
  if (&__TVMAPISetLastError && !__TVMAPISetLastError) __TVMAPISetLastError = raise_error;
  if (count > MOST_ARGUMENTS) return raise_error("too many arguments"), -1;
  for (int32_t i = 0; i < count; ++i) {
    char *pointer = given[i].value.pointer;
    if (given[i].type == TENSOR_OBJECT) pointer += HEADER_OF_AN_OBJECT;
    else if (given[i].type != POINTER_TO_TENSOR) return raise_error("no tensor"), -1;
    values[i].pointer = pointer;
    types[i] = POINTER_TO_TENSOR;
  }
  return race_kernel(values, types, count, &returned, &returned_type, 0);
}

}  // extern "C"
