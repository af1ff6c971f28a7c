package sp

import (
	"fmt"
	"math"
	"strings"

	"monotron/internal/exitcode"
	"monotron/tokenizer/trie"
)

// Model is safe for use by several goroutines.
type Model struct {
	pieces   []piece
	ids      map[string]int32 // normal, user-defined and unused pieces
	reserved map[string]int32 // unknown, control and byte pieces
	bytes    [256]int32
	fallback bool
	unk      int32
	names    [3]string
	surface  string // of the unknown piece
	bpeType  bool
	norm     *normalizer
	reverse  *normalizer // nil: none
	symbols  *trie.Trie  // user-defined; nil: none
	trie     *trie.Trie  // of ids; unigram only
	least    float32     // score of a normal piece
}

// maxFile bounds a .model, in bytes.
const maxFile = 1 << 29

// Load reads a .model file.
func Load(path string) (*Model, error) {
	data, err := exitcode.ReadFile(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("--tokenizer-model: %w", err)
	}
	m, err := Parse(data)
	if err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s is not a supported SentencePiece model: %w", path, err)
	}
	return m, nil
}

// Parse reads the content of a .model file.
func Parse(data []byte) (*Model, error) {
	s, err := parse(data)
	if err != nil {
		return nil, err
	}
	if s.modelType != 1 && s.modelType != 2 {
		return nil, fmt.Errorf("the model_type %d is neither unigram (1) nor BPE (2)", s.modelType)
	}
	m := &Model{
		pieces: s.pieces, ids: map[string]int32{}, reserved: map[string]int32{}, fallback: s.byteFallback,
		unk: -1, names: s.names, surface: s.unkSurface, bpeType: s.modelType == 2,
		least: math.MaxFloat32,
	}
	if err := m.index(); err != nil {
		return nil, err
	}
	if m.norm, err = newNormalizer(s.rules, s.suffix, m.symbols); err != nil {
		return nil, fmt.Errorf("the normalizer: %w", err)
	}
	if s.reverse != nil && len(s.reverse.charsmap) > 0 {
		if m.reverse, err = newNormalizer(*s.reverse, false, nil); err != nil {
			return nil, fmt.Errorf("the denormalizer: %w", err)
		}
	}
	return m, nil
}

// index checks the pieces and sorts them into tables.
func (m *Model) index() error {
	for i := range m.bytes {
		m.bytes[i] = -1
	}
	var symbols []string
	for i, p := range m.pieces {
		id := int32(i)
		table := m.reserved
		// Normal pieces, and those that only stand for something, in tables of their own.
		switch p.kind {
		case normal:
			m.least = min(m.least, p.score)
			table = m.ids
		case userDefined:
			symbols = append(symbols, p.text)
			table = m.ids
		case unused:
			table = m.ids
		case unknown:
			if m.unk >= 0 {
				return fmt.Errorf("pieces %d and %d are both of the type unknown", m.unk, i)
			}
			m.unk = id
		case byteKind:
			var b byte
			if n, err := fmt.Sscanf(p.text, "<0x%02X>", &b); n != 1 || err != nil || fmt.Sprintf("<0x%02X>", b) != p.text {
				return fmt.Errorf("piece %d, %.40q, is of the type byte, so its text must be of the form <0xNN>", i, p.text)
			}
			if !m.fallback {
				return fmt.Errorf("piece %d, %.40q, is of the type byte, but the model has no byte_fallback", i, p.text)
			}
			m.bytes[b] = id
		}
		// Each text once, each score a number.
		if _, twice := table[p.text]; twice || p.text == "" {
			return fmt.Errorf("piece %d, %.40q, is empty or occurs twice", i, p.text)
		}
		if p.score != p.score {
			return fmt.Errorf("piece %d, %.40q, has a score that is not a number", i, p.text)
		}
		table[p.text] = id
	}
	// What the model needs: the unknown piece, all bytes.
	if m.unk < 0 {
		return fmt.Errorf("no piece is of the type unknown")
	}
	if m.fallback {
		for b, id := range m.bytes {
			if id < 0 {
				return fmt.Errorf("byte_fallback is on, but the piece <0x%02X> is missing", b)
			}
		}
	}
	// Tries to find pieces of a text.
	if len(symbols) > 0 {
		m.symbols = trie.New(symbols, make([]int32, len(symbols)))
	}
	if !m.bpeType {
		keys, ids := make([]string, 0, len(m.ids)), make([]int32, 0, len(m.ids))
		for text, id := range m.ids {
			keys, ids = append(keys, text), append(ids, id)
		}
		m.trie = trie.New(keys, ids)
	}
	return nil
}

// Size counts the pieces.
func (m *Model) Size() int { return len(m.pieces) }

// id is the id of a piece, that of the unknown one where there is none.
func (m *Model) id(text string) int32 {
	if id, ok := m.reserved[text]; ok {
		return id
	}
	if id, ok := m.ids[text]; ok {
		return id
	}
	return m.unk
}

// ID is the id of a piece; ok is false where it is not in the vocabulary.
func (m *Model) ID(text string) (id int32, ok bool) {
	id = m.id(text)
	return id, id != m.unk
}

// named is the id of a control piece, -1 where there is none.
func (m *Model) named(i int) int {
	if id := m.id(m.names[i]); m.pieces[id].kind == control {
		return int(id)
	}
	return -1
}

// EOS is the id at the end of a text, -1 where there is none.
func (m *Model) EOS() int { return m.named(eos) }

// BOS is the id at the beginning of a text, -1 where there is none.
func (m *Model) BOS() int { return m.named(bos) }

// Pad is the id of padding, -1 where there is none.
func (m *Model) Pad() int { return m.named(pad) }

// Append adds the ids of text, which is UTF-8.
func (m *Model) Append(dst []int32, text string) []int32 {
	text = m.norm.apply(text)
	if text == "" {
		return dst
	}
	encode := m.unigram
	if m.bpeType {
		encode = m.bpe
	}
	afterUnknown := false
	encode(text, func(piece string, id int32) {
		isUnknown := id == m.unk
		switch {
		case isUnknown && m.fallback:
			for i := range len(piece) {
				dst = append(dst, m.bytes[piece[i]])
			}
		case isUnknown && afterUnknown:
		default:
			dst = append(dst, id)
		}
		afterUnknown = isUnknown
	})
	return dst
}

// Decode is the text of ids; ids outside the vocabulary become U+FFFD.
func (m *Model) Decode(ids []int32) string {
	var b []byte
	start, seen := true, false // at the start a blank may be dropped; one was
	for i := 0; i < len(ids); i++ {
		id := ids[i]
		if id < 0 || int(id) >= len(m.pieces) {
			b = append(b, "\uFFFD"...)
			continue
		}
		if m.pieces[id].kind == byteKind {
			var run []byte
			for ; i < len(ids) && ids[i] >= 0 && int(ids[i]) < len(m.pieces) && m.pieces[ids[i]].kind == byteKind; i++ {
				run = append(run, m.byteOf(ids[i]))
			}
			b = appendChars(b, run)
			i--
			continue
		}
		if seen || len(b) > 0 {
			start = false
		}
		var s string
		s, seen = m.show(id, start)
		b = append(b, s...)
	}
	if m.reverse != nil {
		return m.reverse.apply(string(b))
	}
	return string(b)
}

// byteOf is the byte of a byte piece, <0x..>.
func (m *Model) byteOf(id int32) byte {
	const digits = "0123456789ABCDEF"
	t := m.pieces[id].text
	return byte(strings.IndexByte(digits, t[3])<<4 | strings.IndexByte(digits, t[4]))
}

// appendChars adds complete characters, and U+FFFD for each byte that is part of none.
func appendChars(dst, run []byte) []byte {
	for _, r := range string(run) {
		dst = append(dst, string(r)...)
	}
	return dst
}

// show is the text of a piece; dropped says that a blank at its start was
// dropped, and that none further is to be.
func (m *Model) show(id int32, start bool) (text string, dropped bool) {
	p := &m.pieces[id]
	switch p.kind {
	case control:
		return "", false
	case unknown:
		return m.surface, false
	}
	text = p.text
	if start && (m.norm.dummyPrefix || m.norm.removeExtra) {
		if rest, ok := strings.CutPrefix(text, blank); ok {
			text, dropped = rest, !m.norm.removeExtra
		}
	}
	return strings.ReplaceAll(text, blank, " "), dropped
}

// AppendBytes adds the bytes of a piece within a text.
func (m *Model) AppendBytes(dst []byte, id int32) []byte {
	if id < 0 || int(id) >= len(m.pieces) {
		return dst
	}
	if m.pieces[id].kind == byteKind {
		return append(dst, m.byteOf(id))
	}
	text, _ := m.show(id, false)
	return append(dst, text...)
}

// Text is a piece as it is in the vocabulary.
func (m *Model) Text(id int32) string { return m.pieces[id].text }
