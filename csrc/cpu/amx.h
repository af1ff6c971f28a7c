/* The AMX tile unit of newer processors: products of bf16, and of f16 made of them. */
#ifndef MT_AMX_H
#define MT_AMX_H

#include <stdint.h>

/* 1 where it may be used; MONOTRON_AMX=off and mt_isa_limit forbid it. */
int32_t mt_amx(void);

#endif
