//go:build cgo && amd64

// The text of a JSON string, 32 bytes at a time: what is plain is copied before it
// is known how much of it counts. parse.go's keep does the same in Go.

#include "kernel.h"

#include <immintrin.h>

int mt_json_usable(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi"); }

// hex is the value of four hexadecimal digits, -1 where they are none.
static int32_t hex(const uint8_t *s) {
	int32_t v = 0;
	for (int k = 0; k < 4; k++) {
		int32_t c = s[k], letter = (c | 0x20) - 'a';
		if (c >= '0' && c <= '9') c -= '0';
		else if (letter >= 0 && letter < 6) c = letter + 10;
		else return -1;
		v = v << 4 | c;
	}
	return v;
}

// escaped writes the character of a \uXXXX, or of the two of a pair; it returns the
// number of bytes read, 0 for bytes that are not a character.
static int escaped(const uint8_t *s, int64_t n, uint8_t **dst) {
	// A character of four digits, or of two times four: a high and a low surrogate.
	int length = 6;
	int32_t c = n < 6 ? -1 : hex(s + 2);
	if (c < 0) return 0;
	if (c >= 0xd800 && c < 0xe000) {
		int32_t low = n < 12 || s[6] != '\\' || s[7] != 'u' ? -1 : hex(s + 8);
		if (c >= 0xdc00 || low < 0xdc00 || low >= 0xe000) return 0;
		c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
		length = 12;
	}
	// In UTF-8.
	uint8_t *d = *dst;
	if (c < 0x80) {
		*d++ = (uint8_t)c;
	} else if (c < 0x800) {
		*d++ = (uint8_t)(0xc0 | c >> 6);
		*d++ = (uint8_t)(0x80 | (c & 0x3f));
	} else if (c < 0x10000) {
		*d++ = (uint8_t)(0xe0 | c >> 12);
		*d++ = (uint8_t)(0x80 | (c >> 6 & 0x3f));
		*d++ = (uint8_t)(0x80 | (c & 0x3f));
	} else {
		*d++ = (uint8_t)(0xf0 | c >> 18);
		*d++ = (uint8_t)(0x80 | (c >> 12 & 0x3f));
		*d++ = (uint8_t)(0x80 | (c >> 6 & 0x3f));
		*d++ = (uint8_t)(0x80 | (c & 0x3f));
	}
	*dst = d;
	return length;
}

static const uint8_t meaning[256] = {['"'] = '"', ['\\'] = '\\', ['/'] = '/', ['b'] = '\b', ['f'] = '\f', ['n'] = '\n', ['r'] = '\r', ['t'] = '\t'};

__attribute__((target("avx2,bmi"))) int64_t mt_json_text(const uint8_t *src, int64_t n, uint8_t *dst, int64_t *made) {
	const __m256i quote = _mm256_set1_epi8('"'), slash = _mm256_set1_epi8('\\'), control = _mm256_set1_epi8(0x1f);
	uint8_t *out = dst;
	int64_t i = 0;
	while (i < n) {
		// 32 bytes at a time up to the first that means something.
		if (n - i >= 32) {
			__m256i v = _mm256_loadu_si256((const void *)(src + i));
			_mm256_storeu_si256((void *)out, v);
			__m256i special = _mm256_or_si256(_mm256_or_si256(_mm256_cmpeq_epi8(v, quote), _mm256_cmpeq_epi8(v, slash)),
				_mm256_cmpeq_epi8(_mm256_min_epu8(v, control), v));
			uint32_t mask = (uint32_t)_mm256_movemask_epi8(special);
			int plain = mask ? (int)_tzcnt_u32(mask) : 32;
			i += plain;
			out += plain;
			if (!mask) continue;
		} else if (src[i] != '"' && src[i] != '\\' && src[i] >= ' ') {
			*out++ = src[i++];
			continue;
		}
		// Escapes, one after another.
		while (i + 1 < n && src[i] == '\\') {
			uint8_t c = meaning[src[i + 1]];
			if (c) {
				*out++ = c;
				i += 2;
				continue;
			}
			int size = src[i + 1] == 'u' ? escaped(src + i, n - i, &out) : 0;
			if (!size) goto end;
			i += size;
		}
		if (i >= n || src[i] == '"' || src[i] == '\\' || src[i] < ' ') break;
	}
end:
	*made = out - dst;
	return i;
}
