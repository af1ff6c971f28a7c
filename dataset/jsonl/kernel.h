#pragma once
#include <stdint.h>

int mt_json_usable(void);

// mt_json_text copies the string at src, n bytes up to the end of the line, to
// dst without its escapes, until its closing quote; or to where it stops
// understanding: a control character, a wrong escape, a lone surrogate, the end.
// It returns how far it came; *made is how many bytes were written, never more
// than were read. dst has space for n + 32 bytes.
int64_t mt_json_text(const uint8_t *src, int64_t n, uint8_t *dst, int64_t *made);
