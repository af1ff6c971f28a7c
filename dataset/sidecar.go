package dataset

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"os"
	"path/filepath"

	"github.com/zeebo/xxh3"

	"monotron/internal/exitcode"
	"monotron/tokenizer"
)

// Sidecar is <prefix>.json next to a pair: what the tokens were made with. Its
// name is one that Megatron's merge_datasets lets pass. Training compares it; a
// pair without one is fine.
type Sidecar struct {
	Format        string `json:"format"` // sidecarFormat
	Tokenizer     string `json:"tokenizer"`
	TokenizerHash string `json:"tokenizer_hash"`
	VocabSize     int    `json:"vocabulary_size"`
	EOD           int    `json:"eod"`
	AppendEOD     bool   `json:"append_eod"`
	DType         string `json:"dtype"`
	Documents     int64  `json:"documents"`
	Sequences     int64  `json:"sequences"`
	Tokens        int64  `json:"tokens"`
	BadLines      int64  `json:"bad_lines_skipped"`

	Settings *tokenizer.Config `json:"tokenizer_settings,omitempty"` // that make the tokenizer again; paths are absolute
}

const sidecarFormat = "monotron tokens 1"

// NewSidecar describes what b has written with tok, which settings make again where they
// are given.
func NewSidecar(tok tokenizer.Tokenizer, settings tokenizer.Config, b *Builder, appendEOD bool, badLines int64) Sidecar {
	s := Sidecar{
		Format: sidecarFormat, Tokenizer: tok.Name(), TokenizerHash: TokenizerHash(tok), VocabSize: tok.VocabSize(), EOD: tok.EOD(),
		AppendEOD: appendEOD, DType: b.DType.String(), Documents: b.Documents(), Sequences: b.Sequences(), Tokens: b.Tokens(), BadLines: badLines,
	}
	if !settings.IsZero() {
		for _, path := range settings.Paths() {
			if absolute, err := filepath.Abs(*path); err == nil && *path != "" {
				*path = absolute
			}
		}
		s.Settings = &settings
	}
	return s
}

// RecordedTokenizer is the tokenizer that the first of some data was made with, as its
// sidecar records it, and that file; the zero Config where none does. words are --data-path's,
// with or without weights. Of files that are not where they were, those next to the data are
// taken.
func RecordedTokenizer(words []string) (settings tokenizer.Config, from string) {
	for _, prefix := range words {
		s, ok, err := ReadSidecar(prefix)
		if err != nil || !ok || s.Settings == nil {
			continue
		}
		settings = *s.Settings
		for _, path := range settings.Paths() {
			local := filepath.Join(filepath.Dir(prefix), filepath.Base(*path))
			if _, err := os.Stat(*path); *path != "" && err != nil {
				if _, err := os.Stat(local); err == nil {
					*path = local
				}
			}
		}
		return settings, prefix + ".json"
	}
	return settings, ""
}

// Write writes it next to the pair.
func (s Sidecar) Write(prefix string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return exitcode.With(exitcode.Internal, err)
	}
	return RewriteFile(prefix+".json", append(text, '\n'))
}

// maxSidecar bounds it, in bytes.
const maxSidecar = 1 << 20

// ReadSidecar reads the one of a pair; ok is false where there is none (any other
// JSON file of that name is none).
func ReadSidecar(prefix string) (s Sidecar, ok bool, err error) {
	text, err := exitcode.ReadFile(prefix+".json", maxSidecar)
	switch exitcode.CodeOf(err) {
	case exitcode.NoInput, exitcode.BadData: // something else of that name
		return s, false, nil
	}
	if err != nil {
		return s, false, err
	}
	if json.Unmarshal(text, &s) != nil || s.Format != sidecarFormat {
		return s, false, nil
	}
	return s, true, nil
}

// RemoveSidecar removes the one of a pair that a new pair without sidecar replaces: it would describe the new tokens
// by the old ones' tokenizer.
func RemoveSidecar(prefix string) error {
	if _, ok, err := ReadSidecar(prefix); err != nil || !ok {
		return err
	}
	return exitcode.With(exitcode.IO, os.Remove(prefix+".json"))
}

// JoinedSidecar is that of pairs that are joined; ok is false where one has none, or was made with other tokens.
func JoinedSidecar(prefixes []string) (joined Sidecar, ok bool, err error) {
	for i, prefix := range prefixes {
		s, has, err := ReadSidecar(prefix)
		if err != nil || !has {
			return joined, false, err
		}
		if i == 0 {
			joined = s
			continue
		}
		if s.Tokenizer != joined.Tokenizer || s.TokenizerHash != joined.TokenizerHash || s.VocabSize != joined.VocabSize || s.EOD != joined.EOD ||
			s.AppendEOD != joined.AppendEOD || s.DType != joined.DType {
			return joined, false, nil
		}
		joined.Documents, joined.Sequences, joined.Tokens, joined.BadLines = joined.Documents+s.Documents, joined.Sequences+s.Sequences, joined.Tokens+s.Tokens, joined.BadLines+s.BadLines
	}
	return joined, len(prefixes) > 0, nil
}

// checkSidecar refuses a pair that was made with another tokenizer; hash is
// tok's.
func checkSidecar(path string, x *Indexed, tok tokenizer.Tokenizer, hash func() string) error {
	s, ok, err := ReadSidecar(path)
	if !ok || err != nil {
		return err
	}
	differs := func(what string, theirs, ours any) error {
		return exitcode.Errorf(exitcode.BadData, "%s.json: %s is %v in the data, but %v in this run; use the tokenizer with which the data was made (%s), or remove the .json file if it is out of date", path, what, theirs, ours, s.Tokenizer)
	}
	switch {
	case s.DType != x.dtype.String():
		return differs("type of the tokens in the .idx file", s.DType, x.dtype)
	case s.Sequences != x.n || s.Documents != x.Documents() || s.Tokens != x.tokens:
		return differs("documents, sequences and tokens in the .idx file", fmt.Sprint(s.Documents, ", ", s.Sequences, ", ", s.Tokens), fmt.Sprint(x.Documents(), ", ", x.n, ", ", x.tokens))
	case s.VocabSize != tok.VocabSize():
		return differs("vocabulary size", s.VocabSize, tok.VocabSize())
	case s.EOD != tok.EOD():
		return differs("end-of-document id", s.EOD, tok.EOD())
	case s.TokenizerHash != hash():
		return differs("hash of the tokenizer", s.TokenizerHash, hash())
	}
	return nil
}

// probe is text whose ids depend on how a tokenizer cuts and cleans text.
const probe = "Hello, world!  It's 1234567 na\u00efve\tcaf\u00e9s\n\n  \u4f60\u597d \u0928\u092e\u0938\u094d\u0924\u0947 \U0001f600 if(x){return -0.5;}\r\nA\u030a \u2014 <|endoftext|> "

// TokenizerHash depends on the bytes of every id and on the ids of a probe, not
// on names and files.
func TokenizerHash(tok tokenizer.Tokenizer) string {
	var h hash.Hash = xxh3.New()
	word := func(v int) {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], uint64(v))
		h.Write(w[:])
	}
	word(tok.VocabSize())
	word(tok.EOD())
	var buf []byte
	for id := range min(tok.VocabSize(), 1<<20) {
		buf = tok.AppendBytes(buf[:0], int32(id))
		word(len(buf))
		h.Write(buf)
	}
	ids, err := tok.Encode(probe)
	if err != nil { // a tokenizer of numbers, or of few characters
		ids = nil
	}
	for _, id := range ids {
		word(int(id))
	}
	return fmt.Sprintf("xxh3-%016x", h.Sum(nil))
}
