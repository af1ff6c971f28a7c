/* The multiply-adds of this processor in registers, with nothing to wait for: what
 * products are compared with. Enough chains to hide an instruction's latency. */
#ifndef MT_ISA
#define MT_CHAINS 12
#define MT_KERNELS "instructions.c"
#include "amx.h"
#include "isa.h"

static volatile float result; /* so that no loop is left out */

#ifdef MT_X86_SETS
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma,f16c")
enum { DOT_CHAINS = 24 }; /* they take longer than a multiply-add */

static float dot_products(int64_t rounds) {
  __m512 sum[DOT_CHAINS];
  __m512bh x = (__m512bh)_mm512_set1_epi32(0x3f803f80), y = (__m512bh)_mm512_set1_epi32(0x3e803e80); /* pairs of 1 and of 1/4 */
  for (int c = 0; c < DOT_CHAINS; c++) sum[c] = _mm512_setzero_ps();
  for (int64_t i = 0; i < rounds; i++)
#pragma GCC unroll 24
    for (int c = 0; c < DOT_CHAINS; c++) sum[c] = _mm512_dpbf16_ps(sum[c], x, y);
  for (int c = 1; c < DOT_CHAINS; c++) sum[0] = _mm512_add_ps(sum[0], sum[c]);
  return _mm512_reduce_add_ps(sum[0]);
}
#pragma GCC pop_options

/* bf16 has instructions of its own here and there. */
static int32_t bf16_products(int64_t rounds, mt_instruction *out) {
  if (mt_amx()) {
    *out = (mt_instruction){"products of AMX tiles", rounds * mt_amx_tiles_operations()};
    mt_amx_tiles(rounds);
    return 1;
  }
  if (!mt_isa_dots()) return 0;
  *out = (mt_instruction){"dot products of AVX512_BF16", rounds * 4.0 * 16 * DOT_CHAINS};
  result = dot_products(rounds);
  return 1;
}
#else
static int32_t bf16_products(int64_t rounds, mt_instruction *out) { return 0; }
#endif

int32_t mt_cpu_instruction(int32_t dtype, int64_t rounds, mt_instruction *out) {
  static const char *const names[] = {"multiply-adds of portable vectors", "multiply-adds of AVX2", "multiply-adds of AVX-512", "multiply-adds of portable vectors of 8"};
  if (dtype == MT_BF16) return bf16_products(rounds, out);
  if (dtype != MT_F32) return 0;
  *out = (mt_instruction){names[mt_isa_ordered], rounds * 2.0 * MT_CALL_AT(mt_isa_ordered, lanes) * MT_CHAINS};
  result = MT_CALL_AT(mt_isa_ordered, multiply_adds, rounds);
  return 1;
}

#else

static int K(lanes)(void) { return LANES; }

static float K(multiply_adds)(int64_t rounds) {
  vf sum[MT_CHAINS], x = v_set(0.5f), y = v_set(0.25f);
  for (int c = 0; c < MT_CHAINS; c++) sum[c] = v_set(0);
  for (int64_t i = 0; i < rounds; i++)
#pragma GCC unroll 12
    for (int c = 0; c < MT_CHAINS; c++) sum[c] = v_mad(sum[c], x, y);
  for (int c = 1; c < MT_CHAINS; c++) sum[0] += sum[c];
  return v_sum(sum[0]);
}
#endif
