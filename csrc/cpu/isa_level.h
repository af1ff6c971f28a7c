/* The instruction sets that kernels are compiled for; isa.h compiles them. */
#ifndef MT_ISA_LEVEL_H
#define MT_ISA_LEVEL_H

#define MT_PORTABLE 0
#define MT_AVX2 1
#define MT_AVX512 2
#define MT_COMMON 3 /* the operations of AVX2, by any processor; chosen by mt_isa_common alone */

/* The set in use: the best this machine has, or less after mt_isa_limit or mt_isa_common. */
extern int mt_isa_level;
void mt_isa_limit(int level);

/* Has all processors give the same bits, which depend on the vectors' width: kernels use AVX2 where
 * there is more, and MT_COMMON where there is less. What is the same with AVX-512, as products in one order (mt_gemm_ordered)
 * and attention (mt_attention_kernels), continues with mt_isa_ordered, the best set. */
extern int mt_isa_ordered;
extern int mt_isa_invariant; /* mt_isa_common was called: products go by leaves, by no library */
void mt_isa_common(void);
const char *mt_isa_name(void);

/* 1 where AVX512_BF16 may be used: dot products of bf16. */
int mt_isa_dots(void);

/* clang has no such pragma as isa.h uses: there the compiler's own target is all. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define MT_X86_SETS
#endif

#endif
