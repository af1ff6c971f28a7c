package training

import (
	"math"

	"monotron/megatron/engine"
	"monotron/tokenizer"
)

// textBytes counts the bytes of text that labels stand for: what bits per byte are made of,
// which models with different vocabularies can be compared by.
type textBytes struct {
	tokenizer tokenizer.Tokenizer
	lengths   []int32 // by id; -1: not known yet
	buffer    []byte
}

// newTextBytes gives nil for a tokenizer whose ids stand for no text.
func newTextBytes(t tokenizer.Tokenizer) *textBytes {
	if t == nil || t.Name() == "NullTokenizer" {
		return nil
	}
	b := &textBytes{tokenizer: t, lengths: make([]int32, t.VocabSize())}
	for id := range b.lengths {
		b.lengths[id] = -1
	}
	if eod := t.EOD(); eod >= 0 && eod < len(b.lengths) {
		b.lengths[eod] = 0 // which ends a text and is none
	}
	return b
}

// of is the number of bytes of the labels that count in the loss, in the micro-batches of
// one data-parallel rank.
func (b *textBytes) of(batch []*engine.Micro) (n float64) {
	for _, micro := range batch {
		for i, labels := range micro.Labels {
			for j, id := range labels {
				if micro.LossMask[i][j] > 0 {
					n += float64(b.length(id))
				}
			}
		}
	}
	return n
}

func (b *textBytes) length(id int32) int32 {
	if id < 0 || int(id) >= len(b.lengths) {
		return 0
	}
	if b.lengths[id] < 0 {
		b.buffer = b.tokenizer.AppendBytes(b.buffer[:0], id)
		b.lengths[id] = int32(len(b.buffer))
	}
	return b.lengths[id]
}

// bitsPerByte is nil where no bytes are known. All ranks call it together; each has counted
// the bytes of its own samples.
func (l *logger) bitsPerByte(nats, bytes float64) (*float64, error) {
	if at := l.rank.Coordinates; at.TP != 0 || at.CP != 0 || at.PP != 0 {
		bytes = 0 // these ranks have the samples of another one
	}
	total, err := l.total(bytes)
	if total == 0 || err != nil {
		return nil, err
	}
	bits := nats / math.Ln2 / total
	return &bits, nil
}
