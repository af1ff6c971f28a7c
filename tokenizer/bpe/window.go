package bpe

import (
	"encoding/binary"
	"math/bits"
)

// GPT-2's pattern on ASCII, 64 bytes at a time: eight bytes are classed by one
// chain of additions, a class is one bit a byte of a word, and where pieces
// start follows from shifts of such words. Nothing depends on what a piece
// holds, so the processor can load many pieces ahead.

const (
	window  = 64 // bytes classed at once
	trusted = 60 // the last start that no byte behind the window can change
	// margin is what must follow a window's beginning: the window, and the 16
	// bytes that are read of a piece starting at its trusted end.
	margin = trusted + 16
)

const (
	ones   = 0x0101010101010101
	tops   = 0x8080808080808080
	lows   = 0x7f7f7f7f7f7f7f7f
	gather = 0x0102040810204080 // moves the lowest bit of each byte into the top byte
)

// starts has bit i set where a piece starts at byte i of text, which begins
// with a piece. Bits behind the trusted ones are 0.
//
// The sums stay below 256 since every byte is below 128: a byte's top bit then
// says "at least", and no carry leaves it.
func starts(text []byte) uint64 {
	_ = text[window-1]
	var letters, numbers, blanks, whites, apostrophes, high uint64
	// A bit a byte for each class, eight bytes at a time: comparisons in all lanes, whose top bits are gathered.
	for i := 0; i < window; i += 8 {
		x := binary.LittleEndian.Uint64(text[i:])
		v := x & lows
		folded := v | 0x20*ones
		letter := (folded + (0x80-'a')*ones) &^ (folded + (0x7f-'z')*ones) & tops
		number := (v + (0x80-'0')*ones) &^ (v + (0x7f-'9')*ones) & tops
		blank := ^((v ^ ' '*ones) + lows) & tops
		white := (v+(0x80-'\t')*ones)&^(v+(0x7f-'\r')*ones)&tops | blank
		apostrophe := ^((v ^ '\''*ones) + lows) & tops
		letters |= letter >> 7 * gather >> 56 << i
		numbers |= number >> 7 * gather >> 56 << i
		blanks |= blank >> 7 * gather >> 56 << i
		whites |= white >> 7 * gather >> 56 << i
		apostrophes |= apostrophe >> 7 * gather >> 56 << i
		high |= x & tops
	}
	// Bytes beyond ASCII end the trust two before them.
	last := trusted
	if high != 0 {
		if last = min(last, ascii(text)-2); last < 0 {
			return 1
		}
	}
	// A piece starts where a class begins; one blank belongs to what follows it; the last of several whites is a piece of its own.
	others := ^(letters | numbers | whites)
	words := letters&^(letters<<1) | numbers&^(numbers<<1) | others&^(others<<1)
	s := words&^(blanks<<1) | whites&^(whites<<1) | whites&^(whites>>1) | 1
	// A contraction is one piece.
	for a := s & apostrophes; a != 0; a &= a - 1 {
		at := bits.TrailingZeros64(a)
		if n := contraction(text[at+1:]); n > 0 {
			s = s&^(3<<(at+1)) | 1<<(at+1+n)
		}
	}
	return s & (2<<last - 1)
}

// ascii counts the bytes before the first that is not ASCII; there is one.
func ascii(text []byte) int {
	n := 0
	for text[n] < 0x80 {
		n++
	}
	return n
}
