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

#define target __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt")))
#define likely(x) __builtin_expect(!!(x), 1)

enum {
	short_bytes = 8,   // longest piece in the table of short ones
	short_ids = 3,     // most ids in its entry
	long_bytes = 31,   // the same of the other table
	long_ids = 12,
	id_bits = 19,
	window = 64,
	trusted = 60,      // the last start that no byte behind the window can change
	margin = window + 16,
	batch = 256,       // pieces found before they are looked up
};

// word holds up to three ids; the count (of the whole entry) stands at bit 57 and,
// in the table of short pieces, the length of the piece at bit 60. No entry is 0.
typedef uint64_t word;

typedef struct { uint64_t key; word ids; } short_entry;              // key: the bytes, then zeros
typedef struct { uint8_t key[32]; word ids[long_ids / 3]; } long_entry; // key: the bytes, zeros, the length

// more holds the ids of a long entry that has too many of them, such as that of a
// run of blanks; the entry's ids[1] is its number. They are used in turn: where
// owner is another entry, it was taken from this one.
typedef struct { uint32_t owner; int32_t ids[long_bytes]; } more;

typedef struct {
	long_entry entries[1 << mt_bpe_long_log];
	more more[1 << mt_bpe_more_log];
	uint64_t next; // of more
} long_table;

size_t mt_bpe_shorts_size(void) { return sizeof(short_entry) << mt_bpe_short_log; }
size_t mt_bpe_longs_size(void) { return sizeof(long_table); }

#define one_id (((word)1 << id_bits) - 1)
#define count_at 57
#define length_at 60

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

// split notes the ends of pieces from text[from] on, at most batch of them and
// somewhat more, and says how many.
target static inline int split(const mt_bpe_model *m, const uint8_t *text, int64_t n, int64_t from, int64_t *ends) {
	int count = 0;
	int64_t i = from;
	while (i < n && count < batch) {
		uint64_t s = i + margin <= n ? starts(text + i) : 1;
		s &= s - 1;
		if (!s) {
			i = next_piece(m, text, n, i);
			ends[count++] = i;
			continue;
		}
		int found = (int)_mm_popcnt_u64(s), k = 0;
		do { // eight at a time, without asking whether there are so many
			for (int u = 0; u < 8; u++) {
				ends[count + k + u] = i + (int64_t)_tzcnt_u64(s);
				s &= s - 1;
			}
			k += 8;
		} while (k < found);
		count += found;
		i = ends[count - 1];
	}
	return count;
}

// --- ids of pieces ---

// A pair's place in the order of merging: its rank, then where it stands.
enum { place_bits = 5, unmerged = -1 }; // as unsigned, behind all

// find is the rank of a pair's merge.
static inline uint32_t find(const mt_bpe_model *m, uint32_t left, uint32_t right) {
	uint64_t pair = (uint64_t)left << id_bits | right, h = pair * 0x9e3779b97f4a7c15u;
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
	for (;; left--) {
		__m256i all = order[0];
		for (int w = 1; w < words; w++) all = _mm256_min_epu32(all, order[w]);
		uint32_t best = least(all);
		if (best == (uint32_t)unmerged) break;
		int at = (int)(best & ((1 << place_bits) - 1)), gone = next[at], after = next[gone], prior = before[at];
		uint32_t id = ids[at] = (uint32_t)m->into[best >> place_bits];
		next[at] = (int8_t)after;
		before[after] = (int8_t)at;
		uint32_t here = after < n ? ordered(find(m, id, ids[after]), at) : (uint32_t)unmerged;
		uint32_t there = prior >= 0 ? ordered(find(m, ids[prior], id), prior) : (uint32_t)unmerged;
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

// found is a piece on its way through the tables.
typedef struct {
	const uint8_t *at;
	uint32_t size, slot; // of its table
	uint64_t key;        // of a short piece
} found;

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

// long_piece gives the ids of a piece of at most long_bytes. It may stand in four
// places: two that its slot names, and two elsewhere, since places side by side
// run full while others are empty.
target static int long_piece(const mt_bpe_model *m, const uint8_t *piece, uint32_t size, uint32_t slot, int32_t *dst) {
	__m256i key = long_key(piece, size);
	long_table *t = (long_table *)m->longs;
	uint32_t far = elsewhere(slot);
	uint32_t places[] = {slot, slot ^ 1, far, far ^ 1};
	for (int k = 0; k < 4; k++) {
		uint32_t i = places[k];
		if (same(key, &t->entries[i])) {
			int n = kept(t, i, dst);
			if (likely(n > 0)) return n;
			n = merge(m, piece, (int)size, dst);
			keep(t, i, key, dst, n);
			return n;
		}
	}
	int n = merge(m, piece, (int)size, dst);
	uint32_t to = places[(uintptr_t)dst >> 2 & 3]; // any, if all are taken
	for (int k = 3; k >= 0; k--) to = t->entries[places[k]].ids[0] ? to : places[k];
	keep(t, to, key, dst, n);
	return n;
}

// short_piece gives the ids of a short piece that is not the first in its slot.
target static __attribute__((noinline)) int short_piece(const mt_bpe_model *m, const found *f, int32_t *dst) {
	short_entry *table = (short_entry *)m->shorts, *e = &table[f->slot], *second = &table[f->slot ^ 1];
	if (second->key == f->key && second->ids >> length_at == f->size) {
		short_entry first = *e;
		*e = *second;
		*second = first;
		unpack(e->ids, dst);
		return (int)(e->ids >> count_at & 7);
	}
	int n = long_piece(m, f->at, f->size, long_slot(long_key(f->at, f->size)), dst);
	if (n <= short_ids) {
		int32_t ids[short_ids] = {0};
		memcpy(ids, dst, 4 * (size_t)n);
		*(e->ids ? second : e) = (short_entry){f->key, pack(ids) | (word)n << count_at | (word)f->size << length_at};
	}
	return n;
}

// touch computes where pieces stand in the tables and has the memory there
// loaded, so that no lookup waits for it; it says how many come before one that is
// too long.
target static inline int touch(const mt_bpe_model *m, const uint8_t *text, const int64_t *ends, int count, int64_t at, found *f) {
	const short_entry *shorts = (const short_entry *)m->shorts;
	const long_entry *longs = ((const long_table *)m->longs)->entries;
	for (int k = 0; k < count; k++, f++) {
		f->at = text + at;
		int64_t size = ends[k] - at;
		if (size > long_bytes) return k;
		f->size = (uint32_t)size;
		at = ends[k];
		if (likely(size <= short_bytes)) {
			uint64_t key;
			memcpy(&key, f->at, 8);
			f->key = key = _bzhi_u64(key, (unsigned)size * 8);
			f->slot = (uint32_t)(key * 0x9e3779b97f4a7c15u >> (64 - mt_bpe_short_log));
			__builtin_prefetch(&shorts[f->slot]);
		} else {
			f->slot = long_slot(long_key(f->at, f->size));
			__builtin_prefetch(&longs[f->slot]);
			__builtin_prefetch(&longs[elsewhere(f->slot)]);
		}
	}
	return count;
}

// pieces writes the ids of touched pieces.
target static inline int32_t *pieces(const mt_bpe_model *m, const found *f, int count, int32_t *out) {
	const short_entry *shorts = (const short_entry *)m->shorts;
	for (const found *end = f + count; f < end; f++) {
		if (f->size > short_bytes) {
			out += long_piece(m, f->at, f->size, f->slot, out);
			continue;
		}
		word ids = shorts[f->slot].ids;
		if (likely(((shorts[f->slot].key ^ f->key) | (ids >> length_at ^ f->size)) == 0)) {
			unpack(ids, out);
			out += ids >> count_at & 7;
		} else {
			out += short_piece(m, f, out);
		}
	}
	return out;
}

target int64_t mt_bpe_gpt2(mt_bpe_model m, const uint8_t *text, int64_t n, int32_t *dst, int64_t room, int64_t *made, int64_t *hard) {
	enum { most = (batch + window) * long_bytes, slack = 32 };
	int64_t ends[batch + window], at = 0;
	found all[batch + window];
	int32_t *out = dst, *end = dst + room;
	int full = 0;
	*hard = 0;
	while (n - at > slack && !*hard) {
		int64_t need = n - at < most ? n - at : most; // ids are no more than bytes
		full = end - out < need + long_ids;
		if (full) break;
		int count = split(&m, text, n, at, ends);
		while (count > 0 && ends[count - 1] > n - slack) count--; // what is read of a piece
		if (count == 0) break;
		int done = touch(&m, text, ends, count, at, all);
		out = pieces(&m, all, done, out);
		if (done > 0) at = ends[done - 1];
		if (done < count) *hard = ends[done];
	}
	while (at < n && !*hard && !full) { // the last pieces: nothing behind the text is read
		uint8_t copy[slack] = {0};
		int64_t to = next_piece(&m, text, n, at), size = to - at;
		if (size > long_bytes) {
			*hard = to;
		} else {
			memcpy(copy, text + at, (size_t)size);
			touch(&m, copy, &size, 1, 0, all);
			out = pieces(&m, all, 1, out);
			at = to;
		}
	}
	*made = out - dst;
	return at;
}
