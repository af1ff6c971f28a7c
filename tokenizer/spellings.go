package tokenizer

import "monotron/tokenizer/uni"

// spellings are the bytes that each id stands for; nil: an id nobody uses.
type spellings [][]byte

// Decode joins the ids' bytes; an id outside the vocabulary becomes U+FFFD.
func (t spellings) Decode(ids []int32) string {
	var b []byte
	for _, id := range ids {
		if id < 0 || int(id) >= len(t) {
			b = append(b, "\uFFFD"...)
		}
		b = t.AppendBytes(b, id)
	}
	return uni.Lossy(b)
}

// AppendBytes appends an id's bytes; none outside the vocabulary.
func (t spellings) AppendBytes(dst []byte, id int32) []byte {
	if id < 0 || int(id) >= len(t) {
		return dst
	}
	return append(dst, t[id]...)
}
