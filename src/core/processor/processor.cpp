// Which instruction sets this processor and its operating system run. Built for the baseline: it is asked before the core
// is chosen.
#include <nanobind/nanobind.h>

#include <cstdint>
#include <string_view>

#if defined(__x86_64__) && !defined(_MSC_VER)
#include <cpuid.h>

namespace {

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers asked(unsigned leaf, unsigned part = 0) {
  Registers r;
  __get_cpuid_count(leaf, part, &r.a, &r.b, &r.c, &r.d);
  return r;
}

bool bits(unsigned word, std::initializer_list<int> places) {
  for (const int place : places)
    if (((word >> place) & 1u) == 0) return false;
  return true;
}

/// What the operating system saves of a process: bit 1 SSE, 2 AVX, 5 to 7 AVX-512.
unsigned saved_state() {
  if (!bits(asked(1).c, {27})) return 0;  // no OSXSAVE: it cannot be asked
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

/// x86-64-v3: SSE3 to SSE4.2, AVX, AVX2, BMI1, BMI2, F16C, FMA, LZCNT, MOVBE.
bool has_avx2() {
  return bits(asked(1).c, {0, 9, 12, 19, 20, 22, 23, 28, 29}) && bits(asked(7).b, {3, 5, 8}) &&
         bits(asked(0x80000001u).c, {5}) && bits(saved_state(), {1, 2});
}

/// x86-64-v4: AVX512 F, DQ, CD, BW, VL.
bool has_avx512() { return has_avx2() && bits(asked(7).b, {16, 17, 28, 30, 31}) && bits(saved_state(), {5, 6, 7}); }

}  // namespace
#else
namespace {
bool has_avx2() { return false; }
bool has_avx512() { return false; }
}  // namespace
#endif

NB_MODULE(_processor, m) {
  m.def("has", [](const char* name) {
    const std::string_view set(name);
    return set == "baseline" || (set == "avx2" && has_avx2()) || (set == "avx512" && has_avx512());
  });
}
