// One call of an exported function on another processor, without a C library: reads the call and all memory it may touch
// from standard input, writes the result and that memory to standard output. `FUNCTIONS` lists what can be called.
#include <stdint.h>

#define EXPORT(name) extern "C" void name();
#define ENTRY(name) (void *)name,
FUNCTIONS(EXPORT)
static void *const functions[] = {FUNCTIONS(ENTRY)};

static long system_call(long number, long a, long b, long c) {
  register long x8 asm("x8") = number, x0 asm("x0") = a, x1 asm("x1") = b, x2 asm("x2") = c;
  asm volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
}
static void leave(int code) {
  for (;;) system_call(93, code, 0, 0);
}
static void transfer(long number, int file, char *data, int64_t size) {  // 63: read, 64: write
  while (size > 0) {
    const long done = system_call(number, file, (long)data, size);
    if (done <= 0) leave(3);
    data += done, size -= done;
  }
}
static int64_t word() {
  int64_t value;
  transfer(63, 0, (char *)&value, 8);
  return value;
}

alignas(64) static char memory[256 << 20];
static int64_t used;

// What compiled code expects of a C library; large arguments of sine and cosine are not among the tests.
extern "C" {
void *malloc(__SIZE_TYPE__ size) {
  char *const found = memory + used;
  used += (int64_t(size) + 127) / 64 * 64;
  if (used > int64_t(sizeof memory)) leave(4);
  return found;
}
void free(void *) {}
void *memcpy(void *to, const void *from, __SIZE_TYPE__ size) {
  for (__SIZE_TYPE__ i = 0; i < size; i++) ((volatile char *)to)[i] = ((const char *)from)[i];
  return to;
}
void *memmove(void *to, const void *from, __SIZE_TYPE__ size) {
  if (to < from) return memcpy(to, from, size);
  for (__SIZE_TYPE__ i = size; i-- > 0;) ((volatile char *)to)[i] = ((const char *)from)[i];
  return to;
}
void *memset(void *to, int value, __SIZE_TYPE__ size) {
  for (__SIZE_TYPE__ i = 0; i < size; i++) ((volatile char *)to)[i] = char(value);
  return to;
}
double sin(double) { leave(5); return 0; }
double cos(double) { leave(5); return 0; }

void _start() {
  asm volatile("msr tpidr_el0, %0" ::"r"(malloc(64 << 20)));  // zeros for what is thread_local
  const int64_t function = word(), arguments = word(), buffers = word(), pointers = word();
  int64_t values[16] = {}, is_pointer[16], offset[16];
  for (int64_t i = 0; i < arguments; i++) is_pointer[i] = word(), values[i] = word(), offset[i] = word();
  char **const base = (char **)malloc(8 * buffers);
  int64_t *const size = (int64_t *)malloc(8 * buffers);
  for (int64_t i = 0; i < buffers; i++) size[i] = word(), base[i] = (char *)malloc(size[i]);
  for (int64_t i = 0; i < buffers; i++) transfer(63, 0, base[i], size[i]);
  for (int64_t i = 0; i < pointers; i++) {  // inside of buffers: to another buffer, or (-1) to a function
    const int64_t buffer = word(), place = word(), target = word(), shift = word();
    *(void **)(base[buffer] + place) = target < 0 ? functions[shift] : base[target] + shift;
  }
  for (int64_t i = 0; i < arguments; i++)
    if (is_pointer[i]) values[i] = int64_t(base[values[i]] + offset[i]);
  typedef int64_t (*Function)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                              int64_t, int64_t, int64_t, int64_t, int64_t, int64_t);
  int64_t result = ((Function)functions[function])(
      values[0], values[1], values[2], values[3], values[4], values[5], values[6], values[7], values[8], values[9],
      values[10], values[11], values[12], values[13], values[14], values[15]);
  transfer(64, 1, (char *)&result, 8);
  for (int64_t i = 0; i < buffers; i++) transfer(64, 1, base[i], size[i]);
  leave(0);
}
}
