//go:build cgo && amd64

// GPT-2's pattern and the pieces seen before, as encoder.go and window.go have
// them, with AVX2 and BMI2.
//
// Pieces are found 64 bytes at a time: a class of characters is one bit a byte,
// and where pieces start follows from shifts of such words. A batch of pieces is
// then looked up in tables whose entries hold the ids themselves, so that nearly
// every piece is one load, one compare and two stores; no load waits for the one
// before it. What is not in the tables is merged here, up to 31 bytes; longer
// pieces are given back to Go.

#include "kernel.h"

#include <immintrin.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#define target __attribute__((target("avx2,bmi,bmi2,sse4.2")))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum {
	short_bytes = 15,  // longest piece in the table of short ones
	short_ids = 7,     // most ids in its entry
	long_bytes = 31,   // the same of the other table
	long_ids = 12,
	id_bits = 19,
	window = 64,
	trusted = 60,      // the last start that no byte behind the window can change
	margin = window + 16,
	batch = 256,       // pieces found before they are looked up
};

// A short entry's key is the bytes, zeros, and the length as its last byte, so that
// no entry in use is 0; behind the ids, of 16 bits, stands their count. Two entries
// are a cache line: a piece may stand in either, and is sought first in the one
// that it hashes to. A key with the top bit set says that the piece has ids that no
// short entry can hold: they are in the long table.
typedef struct { uint8_t key[16]; uint16_t ids[short_ids + 1]; } short_entry;

// word holds up to three ids; the count (of the complete entry) is at bit 57.
typedef uint64_t word;

typedef struct { uint8_t key[32]; word ids[long_ids / 3]; } long_entry; // key: the bytes, zeros, the length

// more holds the ids of a long entry that has too many of them, such as that of a
// run of blanks; the entry's ids[1] is its number. They are used in turn: where
// owner is another entry, it was taken from this one.
typedef struct { uint32_t owner; int32_t ids[long_bytes]; } more;

typedef struct {
	long_entry entries[1 << mt_bpe_long_log];
	more more[1 << mt_bpe_more_log];
	uint64_t next; // of more
	uint64_t turn; // of the slots that are reused
} long_table;

size_t mt_bpe_shorts_size(void) { return sizeof(short_entry) << mt_bpe_short_log; }
size_t mt_bpe_longs_size(void) { return sizeof(long_table); }

#define one_id (((word)1 << id_bits) - 1)
#define count_at 57

void mt_bpe_advise(void *p, size_t n) {
#ifdef __linux__
	madvise(p, n, MADV_HUGEPAGE); // a wish: the tables are visited at random
#endif
}

int mt_bpe_usable(void) {
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

// --- where pieces end ---

enum { other, letter, number, space, kinds = 3, multibyte = 0x80 };

typedef struct { uint64_t letters, numbers, blanks, whites, apostrophes, high; } classed;

target static inline uint64_t both(__m256i a, __m256i b) {
	return (uint32_t)_mm256_movemask_epi8(a) | (uint64_t)(uint32_t)_mm256_movemask_epi8(b) << 32;
}

// within has the bytes from first to first + span.
target static inline __m256i within(__m256i v, char first, char span) {
	__m256i d = _mm256_sub_epi8(v, _mm256_set1_epi8(first));
	return _mm256_cmpeq_epi8(_mm256_min_epu8(d, _mm256_set1_epi8(span)), d);
}

target static inline classed class_of(const uint8_t *text) {
	__m256i a = _mm256_loadu_si256((const void *)text), b = _mm256_loadu_si256((const void *)(text + 32));
	__m256i fold = _mm256_set1_epi8(0x20), blank = _mm256_set1_epi8(' '), apostrophe = _mm256_set1_epi8('\'');
	classed c;
	c.letters = both(within(_mm256_or_si256(a, fold), 'a', 25), within(_mm256_or_si256(b, fold), 'a', 25));
	c.numbers = both(within(a, '0', 9), within(b, '0', 9));
	c.blanks = both(_mm256_cmpeq_epi8(a, blank), _mm256_cmpeq_epi8(b, blank));
	c.whites = both(within(a, '\t', 4), within(b, '\t', 4)) | c.blanks;
	c.apostrophes = both(_mm256_cmpeq_epi8(a, apostrophe), _mm256_cmpeq_epi8(b, apostrophe));
	c.high = both(a, b);
	return c;
}

// contraction is the length of s, d, m, t, ll, ve or re at the start of text.
static inline int contraction(const uint8_t *text, int64_t n) {
	if (n < 1) return 0;
	switch (text[0]) {
	case 's': case 'd': case 'm': case 't': return 1;
	case 'l': return n > 1 && text[1] == 'l' ? 2 : 0;
	case 'v': case 'r': return n > 1 && text[1] == 'e' ? 2 : 0;
	}
	return 0;
}

// starts has bit i set where a piece starts at byte i of text, which begins with
// a piece; margin bytes can be read. 1: long, or not ASCII (window.go).
target static inline uint64_t starts(const uint8_t *text) {
	classed c = class_of(text);
	int last = trusted;
	if (c.high) {
		int ascii = (int)_tzcnt_u64(c.high) - 2;
		if (ascii < 0) return 1;
		if (ascii < last) last = ascii;
	}
	uint64_t others = ~(c.letters | c.numbers | c.whites);
	uint64_t words = (c.letters & ~(c.letters << 1)) | (c.numbers & ~(c.numbers << 1)) | (others & ~(others << 1));
	uint64_t s = (words & ~(c.blanks << 1)) | (c.whites & ~(c.whites << 1)) | (c.whites & ~(c.whites >> 1)) | 1;
	for (uint64_t a = s & c.apostrophes; a; a &= a - 1) {
		int at = (int)_tzcnt_u64(a);
		int n = contraction(text + at + 1, margin);
		if (n > 0) {
			s &= ~((at < 63 ? (uint64_t)3 << (at + 1) : 0));
			if (at + 1 + n < 64) s |= (uint64_t)1 << (at + 1 + n);
		}
	}
	return s & (((uint64_t)2 << last) - 1);
}

// character is the class and the length of the character at text[i]; bytes that
// are not UTF-8 are one other each, as in Go's utf8 package.
static inline int character(const mt_bpe_model *m, const uint8_t *text, int64_t n, int64_t i, int *size) {
	const uint8_t *p = text + i;
	int64_t left = n - i;
	uint32_t b = p[0], r, low = 0x80, top = 0xbf;
	*size = 1;
	if (b < 0x80) return m->classes[b] & kinds;
	int more;
	if (b >= 0xc2 && b <= 0xdf) more = 1, r = b & 0x1f;
	else if (b >= 0xe0 && b <= 0xef) more = 2, r = b & 0x0f, low = b == 0xe0 ? 0xa0 : 0x80, top = b == 0xed ? 0x9f : 0xbf;
	else if (b >= 0xf0 && b <= 0xf4) more = 3, r = b & 0x07, low = b == 0xf0 ? 0x90 : 0x80, top = b == 0xf4 ? 0x8f : 0xbf;
	else return other;
	if (left <= more || p[1] < low || p[1] > top) return other;
	r = r << 6 | (p[1] & 0x3f);
	for (int k = 2; k <= more; k++) {
		if ((p[k] & 0xc0) != 0x80) return other;
		r = r << 6 | (p[k] & 0x3f);
	}
	*size = more + 1;
	return r < m->class_count ? m->classes[r] & kinds : other;
}

static int64_t run(const mt_bpe_model *m, const uint8_t *text, int64_t n, int64_t i, int kind) {
	int size;
	while (i < n && character(m, text, n, i, &size) == kind) i += size;
	return i;
}

// next_piece is the end of the piece at text[i], i < n (gpt2.go).
static int64_t next_piece(const mt_bpe_model *m, const uint8_t *text, int64_t n, int64_t i) {
	if (text[i] == '\'') {
		int k = contraction(text + i + 1, n - i - 1);
		if (k > 0) return i + 1 + k;
	}
	int size, after;
	int kind = character(m, text, n, i, &size);
	if (text[i] == ' ' && i + 1 < n) {
		int of = character(m, text, n, i + 1, &after);
		if (of != space) return run(m, text, n, i + 1 + after, of);
	}
	if (kind != space) return run(m, text, n, i + size, kind);
	int64_t last = i, end = i + size;
	while (end < n) {
		if (character(m, text, n, end, &size) != space) return last > i ? last : end;
		last = end;
		end += size;
	}
	return end;
}

// --- ids of pieces ---

// A pair's position in the order of merging: its rank, then where it stands.
enum { place_bits = 5, unmerged = -1 }; // as unsigned, behind all

static inline uint64_t pair_of(uint32_t left, uint32_t right) { return (uint64_t)left << id_bits | right; }

// find is the rank of a pair's merge.
static inline uint32_t find(const mt_bpe_model *m, uint64_t pair) {
	uint64_t h = pair * 0x9e3779b97f4a7c15u;
	if (!(m->some[h >> (64 - mt_bpe_some_log + 3)] >> (h >> (64 - mt_bpe_some_log) & 7) & 1)) return (uint32_t)unmerged;
	for (uint64_t i = h >> m->shift;; i++) {
		uint64_t s = m->merges[i & m->mask];
		if (s >> (64 - 2 * id_bits) == pair) return (uint32_t)(s & mt_bpe_rank) - 1;
		if (!s) return (uint32_t)unmerged;
	}
}

static inline uint32_t ordered(uint32_t rank, int at) {
	return rank == (uint32_t)unmerged ? rank : rank << place_bits | (uint32_t)at;
}

// least is the smallest of eight numbers.
target static inline uint32_t least(__m256i v) {
	__m128i a = _mm_min_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
	a = _mm_min_epu32(a, _mm_shuffle_epi32(a, 0x4e));
	a = _mm_min_epu32(a, _mm_shuffle_epi32(a, 0xb1));
	return (uint32_t)_mm_cvtsi128_si32(a);
}

// merge_in joins the bytes of a piece of n <= 8 * words bytes, lowest rank first
// and leftmost among equals (merge.go), and says how many ids are left. The pairs
// stay in registers, each in the lane of its left part, so that finding the first
// and replacing two of them needs no branch and no memory.
target static inline __attribute__((always_inline)) int merge_in(const mt_bpe_model *m, const uint8_t *piece, int n, int words, int32_t *dst) {
	uint32_t ids[long_bytes + 1], start[long_bytes + 1];
	int8_t next[long_bytes + 2], before[long_bytes + 2];
	// Parts as a list, pairs as rank and position in one number; lanes without a pair have the largest.
	for (int i = 0; i < 8 * words; i++) start[i] = (uint32_t)unmerged;
	for (int i = 0; i < n; i++) {
		ids[i] = (uint32_t)m->bytes[piece[i]];
		next[i] = (int8_t)(i + 1);
		before[i] = (int8_t)(i - 1);
	}
	for (int i = 0; i + 1 < n; i++) start[i] = ordered(m->pairs[piece[i] << 8 | piece[i + 1]], i);
	__m256i order[4], lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
	for (int w = 0; w < words; w++) order[w] = _mm256_loadu_si256((const void *)(start + 8 * w));
	int left = n;
	// The lowest, leftmost among equals; its two neighbours are looked up again.
	for (;; left--) {
		__m256i all = order[0];
		for (int w = 1; w < words; w++) all = _mm256_min_epu32(all, order[w]);
		uint32_t best = least(all);
		if (best == (uint32_t)unmerged) break;
		int at = (int)(best & ((1 << place_bits) - 1)), gone = next[at], after = next[gone], prior = before[at];
		uint32_t rank = best >> place_bits, id = ids[at] = m->offset ? rank + (uint32_t)m->offset : (uint32_t)m->into[rank];
		next[at] = (int8_t)after;
		before[after] = (int8_t)at;
		uint32_t here = after < n ? ordered(find(m, pair_of(id, ids[after])), at) : (uint32_t)unmerged;
		uint32_t there = prior >= 0 ? ordered(find(m, pair_of(ids[prior], id)), prior) : (uint32_t)unmerged;
		// Its lane and the one before get their new pairs; the lane that has gone gets none.
		for (int w = 0; w < words; w++) {
			__m256i i = _mm256_add_epi32(lane, _mm256_set1_epi32(8 * w));
			order[w] = _mm256_or_si256(order[w], _mm256_cmpeq_epi32(i, _mm256_set1_epi32(gone)));
			order[w] = _mm256_blendv_epi8(order[w], _mm256_set1_epi32((int)here), _mm256_cmpeq_epi32(i, _mm256_set1_epi32(at)));
			order[w] = _mm256_blendv_epi8(order[w], _mm256_set1_epi32((int)there), _mm256_cmpeq_epi32(i, _mm256_set1_epi32(prior)));
		}
	}
	for (int i = 0; i < n; i = next[i]) *dst++ = (int32_t)ids[i];
	return left;
}

target static __attribute__((noinline)) int merge(const mt_bpe_model *m, const uint8_t *piece, int n, int32_t *dst) {
	if (n <= 8) return merge_in(m, piece, n, 1, dst);
	if (n <= 16) return merge_in(m, piece, n, 2, dst);
	return merge_in(m, piece, n, 4, dst);
}

target static inline void unpack(word w, int32_t *dst) {
	uint64_t two = _pdep_u64(w, one_id | one_id << 32);
	memcpy(dst, &two, 8);
	dst[2] = (int32_t)(w >> 2 * id_bits & one_id);
}

static inline word pack(const int32_t *ids) {
	return (word)ids[0] | (word)ids[1] << id_bits | (word)ids[2] << 2 * id_bits;
}

static inline uint64_t mixed(uint64_t a, uint64_t b) {
	__uint128_t p = (__uint128_t)(a ^ 0x9e3779b97f4a7c15u) * (b ^ 0xc2b2ae3d27d4eb4fu);
	return (uint64_t)p ^ (uint64_t)(p >> 64);
}

// kept copies the ids of entry number i to dst, twelve at least, and says how many
// count; 0: they are lost.
target static inline int kept(const long_table *t, uint32_t i, int32_t *dst) {
	const long_entry *e = &t->entries[i];
	int n = (int)(e->ids[0] >> count_at);
	if (likely(n <= long_ids)) {
		for (int k = 0; k < long_ids / 3; k++) unpack(e->ids[k], dst + 3 * k);
		return n;
	}
	const more *m = &t->more[e->ids[1]];
	if (m->owner != i) return 0;
	memcpy(dst, m->ids, 4 * (size_t)n);
	return n;
}

// keep makes entry number i that of a key with these ids.
target static void keep(long_table *t, uint32_t i, __m256i key, const int32_t *ids, int n) {
	long_entry *e = &t->entries[i];
	_mm256_storeu_si256((void *)e->key, key);
	int32_t first[long_ids] = {0};
	memcpy(first, ids, 4 * (size_t)(n < long_ids ? n : long_ids));
	for (int k = 0; k < long_ids / 3; k++) e->ids[k] = pack(first + 3 * k);
	e->ids[0] |= (word)n << count_at;
	if (n > long_ids) {
		e->ids[1] = t->next++ & ((1 << mt_bpe_more_log) - 1);
		more *m = &t->more[e->ids[1]];
		m->owner = i;
		memcpy(m->ids, ids, 4 * (size_t)n);
	}
}

// long_key is the first part of an entry; 32 bytes can be read at piece.
target static inline __m256i long_key(const uint8_t *piece, uint32_t size) {
	static const uint8_t keep[64] = {[0 ... 31] = 0xff};
	__m256i key = _mm256_and_si256(_mm256_loadu_si256((const void *)piece), _mm256_loadu_si256((const void *)(keep + 32 - size)));
	return _mm256_or_si256(key, _mm256_set_epi64x((int64_t)((uint64_t)size << 56), 0, 0, 0));
}

target static inline uint32_t long_slot(__m256i key) {
	uint64_t w[4];
	_mm256_storeu_si256((void *)w, key);
	return (uint32_t)((mixed(w[0], w[1]) ^ mixed(w[2], w[3])) * 0x9e3779b97f4a7c15u >> (64 - mt_bpe_long_log));
}

static inline uint32_t elsewhere(uint32_t slot) { return slot * 0x9e3779b1u >> (32 - mt_bpe_long_log); }

target static inline int same(__m256i key, const long_entry *e) {
	return _mm256_movemask_epi8(_mm256_cmpeq_epi8(key, _mm256_loadu_si256((const void *)e->key))) == -1;
}

// A piece of at most long_bytes may be in four slots of the table: two that its
// slot names, and two others, since neighbouring slots run full while others
// are empty.
#define places_of(slot) {slot, slot ^ 1, elsewhere(slot), elsewhere(slot) ^ 1}

// known gives the ids of a piece that is in the table, 0 where it is not.
target static int known(long_table *t, __m256i key, uint32_t slot, int32_t *dst) {
	const uint32_t places[] = places_of(slot);
	for (int k = 0; k < 4; k++) {
		if (same(key, &t->entries[places[k]])) return kept(t, places[k], dst);
	}
	return 0;
}

// enter puts a piece into the table: where it stands, where nothing does, or in
// any slot, if all are taken.
target static void enter(long_table *t, __m256i key, uint32_t slot, const int32_t *ids, int n) {
	const uint32_t places[] = places_of(slot);
	uint32_t to = places[t->turn++ & 3];
	for (int k = 3; k >= 0; k--) to = t->entries[places[k]].ids[0] ? to : places[k];
	for (int k = 0; k < 4; k++) to = same(key, &t->entries[places[k]]) ? places[k] : to;
	keep(t, to, key, ids, n);
}

// long_piece gives the ids of a piece of at most long_bytes.
target static int long_piece(const mt_bpe_model *m, const uint8_t *piece, uint32_t size, int32_t *dst) {
	__m256i key = long_key(piece, size);
	uint32_t slot = long_slot(key);
	int n = known(m->longs, key, slot, dst);
	if (likely(n > 0)) return n;
	n = merge(m, piece, (int)size, dst);
	enter(m->longs, key, slot, dst, n);
	return n;
}

// found is a piece on its way through the tables: one ends where the next begins.
// A piece that is too long for the short ones has a key that none of them has.
typedef struct {
	uint64_t key[2]; // a short entry's
	short_entry *entry;
	const uint8_t *at;
} found;

target static inline int same_short(const found *f, const short_entry *e) {
	__m128i equal = _mm_cmpeq_epi8(_mm_load_si128((const void *)f->key), _mm_load_si128((const void *)e->key));
	return _mm_movemask_epi8(equal) == 0xffff;
}

// taken writes an entry's ids to dst, eight at least, and says how many count.
target static inline int taken(const short_entry *e, int32_t *dst) {
	_mm256_storeu_si256((void *)dst, _mm256_cvtepu16_epi32(_mm_load_si128((const void *)e->ids)));
	return e->ids[short_ids];
}

static inline short_entry *neighbour(const mt_bpe_model *m, const short_entry *e) {
	short_entry *all = m->shorts;
	return &all[(e - all) ^ 1];
}

#define elsewhere_mark ((uint64_t)1 << 63)

// remember puts a short piece next to the one in its slot, or in its slot where
// there is none; its ids into the long table where no short entry can hold them.
target static void remember(const mt_bpe_model *m, const found *f, uint32_t size, const int32_t *ids, int n) {
	short_entry *to = f->entry->key[15] ? neighbour(m, f->entry) : f->entry;
	uint64_t key[2] = {f->key[0], f->key[1]};
	uint32_t all = 0;
	for (int k = 0; k < n; k++) all |= (uint32_t)ids[k];
	if (n > short_ids || all > UINT16_MAX) {
		__m256i whole = long_key(f->at, size);
		enter(m->longs, whole, long_slot(whole), ids, n);
		key[1] |= elsewhere_mark;
	} else {
		for (int k = 0; k < n; k++) to->ids[k] = (uint16_t)ids[k];
		to->ids[short_ids] = (uint16_t)n;
	}
	memcpy(to->key, key, sizeof key);
}

// other_piece gives the ids of a piece that does not stand where it hashes to:
// from the next entry, where the two are swapped, or by merging.
target static __attribute__((noinline)) int other_piece(const mt_bpe_model *m, const found *f, int32_t *dst) {
	uint32_t size = (uint32_t)(f[1].at - f->at);
	if (size > short_bytes) return long_piece(m, f->at, size, dst);
	short_entry *first = f->entry, *second = neighbour(m, first);
	if (same_short(f, second)) {
		short_entry front = *first;
		*first = *second;
		*second = front;
		return taken(first, dst);
	}
	found marked = *f;
	marked.key[1] |= elsewhere_mark;
	if (same_short(&marked, first) || same_short(&marked, second)) return long_piece(m, f->at, size, dst);
	int n = merge(m, f->at, (int)size, dst);
	remember(m, f, size, dst, n);
	return n;
}

// note makes the piece of size bytes at p ready for lookup, and has the memory
// loaded where it will be read; 32 bytes can be read at p.
target static inline void note(const mt_bpe_model *m, const uint8_t *p, uint64_t size, found *f) {
	static const struct { uint64_t mask, size; } tail[short_bytes + 1] = {
#define at_most_8(n) [n] = {0, (uint64_t)(n) << 56}
#define above_8(n) [n] = {((uint64_t)1 << 8 * ((n) - 8)) - 1, (uint64_t)(n) << 56}
		at_most_8(1), at_most_8(2), at_most_8(3), at_most_8(4), at_most_8(5), at_most_8(6), at_most_8(7), at_most_8(8),
		above_8(9), above_8(10), above_8(11), above_8(12), above_8(13), above_8(14), above_8(15),
	};
	// Short pieces, nearly all: 16 bytes with the size in the last are the key, bytes behind the piece cleared.
	f->at = p;
	if (likely(size <= short_bytes)) {
		uint64_t low, high;
		memcpy(&low, p, 8);
		memcpy(&high, p + 8, 8);
		low = _bzhi_u64(low, (unsigned)size * 8);
		high = (high & tail[size].mask) | tail[size].size;
		uint64_t hash = _mm_crc32_u64(_mm_crc32_u64(0, low), high);
		short_entry *e = (void *)((uint8_t *)m->shorts + (hash & ((sizeof *e << mt_bpe_short_log) - sizeof *e)));
		__builtin_prefetch(e);
		f->key[0] = low;
		f->key[1] = high;
		f->entry = e;
	} else {
		// Long pieces: a key that no short entry has; they have a table of their own, with two slots for each.
		f->key[0] = f->key[1] = ~(uint64_t)0;
		f->entry = m->shorts;
		if (size <= long_bytes) {
			const long_entry *longs = ((const long_table *)m->longs)->entries;
			uint32_t slot = long_slot(long_key(p, (uint32_t)size));
			__builtin_prefetch(&longs[slot]);
			__builtin_prefetch(&longs[elsewhere(slot)]);
		}
	}
}

// split notes pieces from text[from] on, at most batch of them and somewhat more,
// and says how many. It ends before one that is too long for all tables, and where
// what is read of a piece could lie behind the text.
target static int split(const mt_bpe_model *m, const uint8_t *text, int64_t n, int64_t from, found *f) {
	enum { slack = 32 };
	found *start = f;
	const uint8_t *p = text + from;
	while (p < text + n - slack && f - start < batch) {
		uint64_t s = p + margin <= text + n ? starts(p) : 1;
		s &= s - 1;
		if (!s) {
			const uint8_t *end = text + next_piece(m, text, n, p - text);
			if (end - p > long_bytes) break;
			note(m, p, (uint64_t)(end - p), f++);
			p = end;
			continue;
		}
		const uint8_t *window = p;
		do {
			const uint8_t *end = window + _tzcnt_u64(s);
			if (unlikely(end - p > long_bytes)) goto end;
			note(m, p, (uint64_t)(end - p), f++);
			p = end;
			s &= s - 1;
		} while (s);
	}
end:
	f->at = p;
	return (int)(f - start);
}

// pieces writes the ids of noted pieces.
target static int32_t *pieces(const mt_bpe_model *m, const found *f, int count, int32_t *out) {
	for (const found *end = f + count; f < end; f++) {
		if (likely(same_short(f, f->entry))) out += taken(f->entry, out);
		else out += other_piece(m, f, out);
	}
	return out;
}

target int64_t mt_bpe_gpt2(mt_bpe_model m, const uint8_t *text, int64_t n, int32_t *dst, int64_t room, int64_t *made, int64_t *hard) {
	enum { most = (batch + window) * long_bytes, slack = 32 };
	int64_t at = 0;
	found all[batch + window + 1];
	int32_t *out = dst, *end = dst + room;
	int full = 0;
	*hard = 0;
	while (n - at > slack) {
		int64_t need = n - at < most ? n - at : most; // there are at most as many ids as bytes
		full = end - out < need + long_ids;
		if (full) break;
		int count = split(&m, text, n, at, all);
		if (count == 0) break;
		out = pieces(&m, all, count, out);
		at = all[count].at - text;
	}
	while (at < n && !full) { // a long piece, or the last ones: nothing behind the text is read
		int64_t to = next_piece(&m, text, n, at);
		if (to - at > long_bytes) {
			*hard = to;
			break;
		}
		uint8_t copy[slack] = {0};
		memcpy(copy, text + at, (size_t)(to - at));
		note(&m, copy, (uint64_t)(to - at), all);
		all[1].at = copy + (to - at);
		out = pieces(&m, all, 1, out);
		at = to;
	}
	*made = out - dst;
	return at;
}
