package sp

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"monotron/internal/exitcode"
)

// kind is the type of a piece, by its number in the file.
type kind int

const (
	normal      kind = 1
	unknown     kind = 2
	control     kind = 3
	userDefined kind = 4
	unused      kind = 5
	byteKind    kind = 6
)

type piece struct {
	text  string
	score float32
	kind  kind
}

// spec is what a .model says; zero values stand for the format's defaults.
type spec struct {
	pieces       []piece
	modelType    uint64 // 1 unigram, 2 BPE, 3 word, 4 char
	suffix       bool   // treat_whitespace_as_suffix
	byteFallback bool
	unkSurface   string
	names        [3]string // of bos, eos, pad
	rules        rules
	reverse      *rules // denormalizer
}

// rules is a NormalizerSpec.
type rules struct {
	charsmap     []byte
	dummyPrefix  bool
	removeExtra  bool
	escapeBlanks bool
}

const (
	bos = iota
	eos
	pad
)

// maxPieces bounds a vocabulary.
const maxPieces = 1 << 24

// fields calls visit for each field of a message: number, then the value as a
// number (varints and fixed32) or as bytes.
func fields(b []byte, visit func(num protowire.Number, v uint64, body []byte) error) error {
	total := len(b)
	for len(b) > 0 {
		at := total - len(b)
		// A tag: number and type of the field. Then its value.
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return exitcode.Errorf(exitcode.BadData, "byte %d: %w", at, protowire.ParseError(n))
		}
		b = b[n:]
		var v uint64
		var body []byte
		switch typ {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var w uint32
			w, n = protowire.ConsumeFixed32(b)
			v = uint64(w)
		case protowire.Fixed64Type:
			v, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			body, n = protowire.ConsumeBytes(b)
		default:
			return exitcode.Errorf(exitcode.BadData, "byte %d: field %d has the unknown wire type %d", at, num, typ)
		}
		if n < 0 {
			return exitcode.Errorf(exitcode.BadData, "byte %d: field %d: %w", at, num, protowire.ParseError(n))
		}
		b = b[n:]
		if err := visit(num, v, body); err != nil {
			return err
		}
	}
	return nil
}

// parse reads a ModelProto.
func parse(b []byte) (*spec, error) {
	defaults := rules{dummyPrefix: true, removeExtra: true, escapeBlanks: true}
	s := &spec{modelType: 1, unkSurface: " \u2047 ", names: [3]string{"<s>", "</s>", "<pad>"}, rules: defaults}
	return s, fields(b, func(num protowire.Number, _ uint64, body []byte) error {
		switch num {
		case 1:
			if len(s.pieces) >= maxPieces {
				return exitcode.Errorf(exitcode.BadData, "the model has more than %d pieces", maxPieces)
			}
			p, err := parsePiece(body)
			s.pieces = append(s.pieces, p)
			return err
		case 2:
			return s.trainer(body)
		case 3:
			return s.rules.parse(body)
		case 5:
			r := defaults
			s.reverse = &r
			return r.parse(body)
		}
		return nil
	})
}

func parsePiece(b []byte) (piece, error) {
	p := piece{kind: normal}
	err := fields(b, func(num protowire.Number, v uint64, body []byte) error {
		switch num {
		case 1:
			p.text = string(body)
		case 2:
			p.score = math.Float32frombits(uint32(v))
		case 3:
			if v < 1 || v > 6 {
				return exitcode.Errorf(exitcode.BadData, "piece %.40q has the unknown type %d", p.text, v)
			}
			p.kind = kind(v)
		}
		return nil
	})
	return p, err
}

func (s *spec) trainer(b []byte) error {
	return fields(b, func(num protowire.Number, v uint64, body []byte) error {
		name := func(i int) {
			if len(body) > 0 {
				s.names[i] = string(body)
			}
		}
		switch num {
		case 3:
			s.modelType = v
		case 24:
			s.suffix = v != 0
		case 35:
			s.byteFallback = v != 0
		case 44:
			s.unkSurface = string(body)
		case 46:
			name(bos)
		case 47:
			name(eos)
		case 48:
			name(pad)
		}
		return nil
	})
}

func (r *rules) parse(b []byte) error {
	return fields(b, func(num protowire.Number, v uint64, body []byte) error {
		switch num {
		case 2:
			r.charsmap = body
		case 3:
			r.dummyPrefix = v != 0
		case 4:
			r.removeExtra = v != 0
		case 5:
			r.escapeBlanks = v != 0
		}
		return nil
	})
}
