#pragma once
#include <stdint.h>

// mt_mersenne is random.go's mersenne, with its at in 64 bits.
typedef struct { uint32_t state[624], out[624]; int64_t at; } mt_mersenne;

int mt_shuffle_usable(void);
int mt_blend_usable(void);

// mt_shuffle is shuffle.go's, for less than 2^32 items.
void mt_shuffle(mt_mersenne *m, uint32_t *a, int64_t n);

// mt_blend takes runs * steps samples of a blend from step t on: each from the
// first of the members whose share * max(t, 1) - count is largest, products and
// differences rounded each. Run r begins at step t + r * steps with its own counts and
// left, members of each: a multiple of 64, at most mt_blend_members. counts of
// members that have nothing left are infinite; left counts down.
enum { mt_blend_members = 256 };
void mt_blend(const double *shares, double *counts, int64_t *left, int64_t members, int64_t t, int64_t steps, int runs, int16_t *member, int64_t *number);

int mt_short_usable(void);

// mt_short writes n ids as 16 bits each and returns all the ids' bits, or-ed.
uint32_t mt_short(uint16_t *to, const int32_t *ids, int64_t n);
