package dataset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"monotron/internal/exitcode"
)

// llm.c's .bin: 256 words of header (magic, version, tokens; the rest 0), then
// the tokens. nanoGPT's is bare u16 tokens.
const (
	llmcHeader     = 1024
	llmcGPT2Magic  = 20240520 // version 1: u16 tokens, GPT-2's
	llmcLlamaMagic = 20240801 // version 7: u32 tokens, Llama 3's
)

// llmcKinds are the two files that llm.c knows.
var llmcKinds = map[uint32]struct {
	version uint32
	dtype   DType
	eod     int32
}{
	llmcGPT2Magic:  {1, U16, 50256},
	llmcLlamaMagic: {7, I32, 128000},
}

// LLMCType is the token type of an llm.c file for a vocabulary.
func LLMCType(vocab int) DType {
	if vocab <= 1<<16 {
		return U16
	}
	return I32
}

// fillLLMC writes the header.
func (b *Builder) fillLLMC() error {
	if b.done.Tokens > math.MaxInt32 {
		return exitcode.Errorf(exitcode.BadData, "%s.bin: there are %d tokens, but llm.c's header allows at most %d; write several files", b.Prefix, b.done.Tokens, math.MaxInt32)
	}
	head := make([]byte, llmcHeader)
	for magic, k := range llmcKinds {
		if k.dtype == b.DType {
			for i, v := range []uint32{magic, k.version, uint32(b.done.Tokens)} {
				binary.LittleEndian.PutUint32(head[4*i:], v)
			}
		}
	}
	if err := b.bin.flush(); err != nil {
		return exitcode.Errorf(exitcode.IO, "%s.bin: %w", b.Prefix, err)
	}
	_, err := b.bin.file.WriteAt(head, 0)
	return exitcode.With(exitcode.IO, err)
}

// IsTokenFile says that path names a token file without index: llm.c's or
// nanoGPT's, by a complete file name instead of a prefix.
func IsTokenFile(path string) bool { return strings.HasSuffix(path, ".bin") }

// OpenTokens maps a file of tokens without index, llm.c's by its magic number, or
// else nanoGPT's. A sequence, which is also a document, ends after each eod; for
// llm.c's files that is their own. eod < 0: the complete file is one document.
func OpenTokens(path string, eod int32) (*Indexed, error) {
	bin, err := openBlob(path, true)
	if err != nil {
		return nil, err
	}
	x := &Indexed{prefix: path, bin: bin, idx: &blob{}, dtype: U16}
	if err := x.readTokens(eod); err != nil {
		return nil, errors.Join(err, bin.close())
	}
	return x, nil
}

// readTokens reads the mapped file.
func (x *Indexed) readTokens(eod int32) error {
	return Guard(x.prefix, func() error { return x.findTokens(eod) })
}

// findTokens reads the header, if there is one, and finds the sequences.
func (x *Indexed) findTokens(eod int32) error {
	bin, head := x.bin, int64(0)
	if bin.size >= llmcHeader {
		if k, ok := llmcKinds[binary.LittleEndian.Uint32(bin.data)]; ok && binary.LittleEndian.Uint32(bin.data[4:]) == k.version {
			x.dtype, eod, head = k.dtype, k.eod, llmcHeader
			if n := int64(binary.LittleEndian.Uint32(bin.data[8:])); bin.size != head+n*int64(x.dtype.Size()) {
				return exitcode.Errorf(exitcode.BadData, "%s: byte 8: the header declares %d tokens (%d bytes), but %d bytes follow", bin.path, n, n*int64(x.dtype.Size()), bin.size-head)
			}
		}
	}
	if bin.size%int64(x.dtype.Size()) != 0 {
		return exitcode.Errorf(exitcode.BadData, "%s: the file has %d bytes, which is not a multiple of the size of a %s token", bin.path, bin.size, x.dtype)
	}
	x.cut(head, eod)
	return nil
}

// cut finds the sequences.
func (x *Indexed) cut(head int64, eod int32) {
	item := int64(x.dtype.Size())
	end := func(from, to int64) {
		if to == from {
			return
		}
		x.sizes = binary.LittleEndian.AppendUint32(x.sizes, uint32((to-from)/item))
		x.pointers = binary.LittleEndian.AppendUint64(x.pointers, uint64(from))
		x.n++
		x.tokens += (to - from) / item
		x.longest = max(x.longest, (to-from)/item)
	}
	from := head
	for at := head; at < x.bin.size; at += item {
		id := int32(binary.LittleEndian.Uint16(x.bin.data[at:]))
		if item == 4 {
			id = int32(binary.LittleEndian.Uint32(x.bin.data[at:]))
		}
		if id == eod && eod >= 0 || (at-from)/item == math.MaxInt32-1 {
			end(from, at+item)
			from = at + item
		}
	}
	end(from, x.bin.size)
	x.documents = everySequence(x.n)
}

// Kind names the format of the files for people.
func (x *Indexed) Kind() string {
	switch {
	case x.idx.data == nil && x.n > 0 && x.pointer(0) == llmcHeader:
		return fmt.Sprintf("llm.c, %s", x.dtype)
	case IsTokenFile(x.prefix):
		return "bare tokens (nanoGPT)"
	case strings.HasPrefix(string(x.idx.data[:min(8, len(x.idx.data))]), oldMagic[:6]):
		return "TNTIDX (--dataset-impl lazy, cached)"
	}
	return "MMIDIDX (--dataset-impl mmap)"
}
