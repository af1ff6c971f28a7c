#pragma once
#include <stddef.h>
#include <stdint.h>

enum {
	mt_bpe_short_log = 19, // entries of the tables, log2
	mt_bpe_long_log = 15,
	mt_bpe_more_log = 10,
	mt_bpe_ids = 1 << 19, // ids must be below it
	mt_bpe_rank = (1 << 26) - 1,
	mt_bpe_some_log = 20, // bits of mt_bpe_model.some, log2
};

typedef struct {
	const uint64_t *merges; // by a hash of the pair: left id at bit 45, right id at bit 26, rank + 1
	const int32_t *into;    // by rank: the id a merge makes
	uint64_t offset;        // not 0: that id is the rank and this, and into is not needed
	const uint32_t *pairs;  // of two bytes: the rank, or all ones
	const uint8_t *some;    // a bit for every value of the hash's top bits: set where a pair has a merge
	uint64_t mask;
	int64_t shift;
	const int32_t *bytes;   // ids of the 256 bytes
	const uint8_t *classes; // of code points (classes.go)
	uint64_t class_count;
	void *shorts, *longs; // tables of pieces, zero at first
} mt_bpe_model;

int mt_bpe_usable(void);

// Sizes of the tables in bytes.
size_t mt_bpe_shorts_size(void);
size_t mt_bpe_longs_size(void);

// mt_bpe_advise asks for large pages under n bytes at p.
void mt_bpe_advise(void *p, size_t n);

// mt_bpe_gpt2 encodes text, n bytes of UTF-8, and returns how far it came: to the
// end; or until dst, which takes that many ids, may be too small for what comes next;
// or to a piece that is left to the caller, which ends at *hard (else 0).
// *made is how many ids were written.
int64_t mt_bpe_gpt2(mt_bpe_model m, const uint8_t *text, int64_t n, int32_t *dst, int64_t room, int64_t *made, int64_t *hard);
