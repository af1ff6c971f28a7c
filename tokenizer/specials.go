package tokenizer

// Specials are the ids of t's special tokens by the names that config.json has for them: bos_token_id, eos_token_id
// and pad_token_id. Those that t lacks are absent.
func Specials(t Tokenizer) map[string]int32 {
	ids := map[string]int32{}
	set := func(name string, id int) {
		if id >= 0 {
			ids[name] = int32(id)
		}
	}
	set("eos_token_id", t.EOD())
	if pad, ok := t.Pad(); ok {
		set("pad_token_id", pad)
	}
	switch t := t.(type) {
	case *GPT2: // one token begins and ends texts
		set("bos_token_id", t.eod)
	case *huggingFace:
		set("bos_token_id", t.bos)
	case *sentencePiece:
		set("bos_token_id", t.BOS())
	case *Tik:
		set("bos_token_id", t.named["<s>"])
	}
	return ids
}

// Special reports whether id is a special token of t, which texts for people leave out.
func Special(t Tokenizer, id int32) bool {
	switch t := t.(type) {
	case *GPT2:
		return int(id) == t.eod
	case *huggingFace:
		return t.Tokenizer.Special(id)
	case *Tik:
		return int(id) < len(t.named)
	}
	return false // control pieces of SentencePiece have no text
}
