package tokenizer

// AppendPlain adds the ids of text to dst without the tokens that a tokenizer puts around a
// text of its own accord: what a chat template has written says where it begins.
func AppendPlain(t Tokenizer, dst []int32, text string) ([]int32, error) {
	if p, ok := t.(interface {
		AppendPlain(dst []int32, text string) ([]int32, error)
	}); ok {
		return p.AppendPlain(dst, text)
	}
	return t.Append(dst, text)
}
