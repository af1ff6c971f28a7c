/* Every instruction that CUDA C++ has no name for, each with a C++ version for the
 * emulator. Fragment layouts are those of the PTX manual, "Matrix fragments for
 * mma.m16n8k16": with g = lane/4 and t = lane%4, a lane holds of A [16,16] rows g and
 * g+8, columns 2t, 2t+1, 2t+8, 2t+9; of B [16,8] the same rows of column g; of C
 * [16,8] rows g and g+8, columns 2t and 2t+1. */
#ifndef MT_PTX_H
#define MT_PTX_H

#include "values.h"

#ifndef MT_EMU

__device__ inline unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

/* 16 bytes from global to shared memory, of which the first `bytes` are read and the
 * others become 0. */
__device__ inline void copy_async(void *shared, const void *global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(bytes) : "memory");
}
/* 4 bytes in the same way, or 0 where they are not there. */
__device__ inline void copy_async_word(void *shared, const void *global, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(there ? 4 : 0) : "memory");
}
__device__ inline void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int GROUPS> __device__ inline void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory"); }

/* Four 8x8 matrices of 16-bit elements; lane i gives the address of row i%8 of
 * matrix i/8 and gets of matrix j, in r[j], row lane/4, columns 2(lane%4) and the next. */
__device__ inline void load_matrices(uint32_t (&r)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
/* The same of their transposes. */
__device__ inline void load_transposed(uint32_t (&r)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

/* c += a·b, sums in f32. */
__device__ inline void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bf16) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, f16) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* 2^x to 2 ulp, 0 where that would be below the normal numbers: one
 * instruction, where exp2f scales what is small before and after it. */
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/* threadIdx.x asked for again: what is made of it then needs no registers before. */
__device__ inline unsigned thread_again() {
  unsigned x;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
  return x;
}

#else

inline unsigned thread_again() { return threadIdx.x; }

inline void copy_async(void *shared, const void *global, int bytes) { mt_emu::copy_async(shared, global, bytes, 16); }
inline void copy_async_word(void *shared, const void *global, bool there) { mt_emu::copy_async(shared, global, there ? 4 : 0, 4); }
inline void copy_commit() { mt_emu::copy_commit(); }
template <int GROUPS> inline void copy_wait() { mt_emu::copy_wait(GROUPS); }

/* Each lane leaves its row's address; matrix j of lane i is read at rows 8j to 8j+7. */
template <bool TRANSPOSED> inline void matrices_of(const mt_emu::Slot *in, mt_emu::Slot *out, unsigned) {
  for (int lane = 0; lane < 32; lane++) {
    uint16_t got[4][2];
    for (int j = 0; j < 4; j++) {
      for (int e = 0; e < 2; e++) {
        int row = TRANSPOSED ? lane % 4 * 2 + e : lane / 4, column = TRANSPOSED ? lane / 4 : lane % 4 * 2 + e;
        const uint16_t *from;
        memcpy(&from, &in[8 * j + row], sizeof from);
        got[j][e] = from[column];
      }
    }
    memcpy(&out[lane], got, sizeof got);
  }
}
#define load_matrices(r, row) mt_load_matrices(MT_HERE, r, row, matrices_of<false>)
#define load_transposed(r, row) mt_load_matrices(MT_HERE, r, row, matrices_of<true>)
inline void mt_load_matrices(mt_emu::Place at, uint32_t (&r)[4], const void *row, mt_emu::Work work) {
  if ((uintptr_t)row % 16) mt_emu::fail("%s:%d: the row of a matrix is not aligned to 16 bytes", at.file, at.line);
  memcpy(r, &mt_emu::meet(at, ~0u, &row, sizeof row, work), sizeof r);
}

struct fragments {
  uint32_t a[4], b[2];
  float c[4];
};
template <typename T> inline float half_of(uint32_t pair, int i) {
  uint16_t bits = (uint16_t)(pair >> 16 * i);
  T x;
  memcpy(&x, &bits, 2);
  return to_float(x);
}
template <typename T> inline void multiply_fragments(const mt_emu::Slot *in, mt_emu::Slot *out, unsigned) {
  float a[16][16], b[16][8];
  for (int lane = 0; lane < 32; lane++) {
    fragments f;
    memcpy(&f, &in[lane], sizeof f);
    int g = lane / 4, t = lane % 4 * 2;
    for (int e = 0; e < 2; e++) {
      a[g][t + e] = half_of<T>(f.a[0], e), a[g + 8][t + e] = half_of<T>(f.a[1], e);
      a[g][t + 8 + e] = half_of<T>(f.a[2], e), a[g + 8][t + 8 + e] = half_of<T>(f.a[3], e);
      b[t + e][g] = half_of<T>(f.b[0], e), b[t + 8 + e][g] = half_of<T>(f.b[1], e);
    }
  }
  float c[16][8] = {};
  for (int i = 0; i < 16; i++)
    for (int k = 0; k < 16; k++)
      for (int j = 0; j < 8; j++) c[i][j] += a[i][k] * b[k][j];
  for (int lane = 0; lane < 32; lane++) {
    fragments f;
    memcpy(&f, &in[lane], sizeof f);
    int g = lane / 4, t = lane % 4 * 2;
    float sums[4] = {f.c[0] + c[g][t], f.c[1] + c[g][t + 1], f.c[2] + c[g + 8][t], f.c[3] + c[g + 8][t + 1]};
    memcpy(&out[lane], sums, sizeof sums);
  }
}
#define multiply(c, a, b0, b1, type) mt_multiply(MT_HERE, c, a, b0, b1, type)
template <typename T> inline void mt_multiply(mt_emu::Place at, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, T) {
  fragments f = {{a[0], a[1], a[2], a[3]}, {b0, b1}, {c[0], c[1], c[2], c[3]}};
  memcpy(c, &mt_emu::meet(at, ~0u, &f, sizeof f, multiply_fragments<T>), sizeof c);
}

inline float power_of_two(float x) { return x < -126 ? 0 : exp2f(x); }

#endif

/* Two values as an mma operand holds them, the first in the low half. */
template <typename T> __device__ inline uint32_t pair_of(float low, float high) {
  pack<T, 2> p = {{from_float<T>(low), from_float<T>(high)}};
  uint32_t bits;
  memcpy(&bits, &p, 4);
  return bits;
}

#endif
