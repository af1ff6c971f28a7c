package tokenizer

// Tokenizer is safe for use by several goroutines at once.
type Tokenizer interface {
	// Name is Megatron's --tokenizer-type.
	Name() string
	// Encode gives the ids of text. Text that is not UTF-8 is an error.
	Encode(text string) ([]int32, error)
	// Append adds the ids of text to dst; on an error dst is returned as it was.
	Append(dst []int32, text string) ([]int32, error)
	// Decode gives the text of ids; bytes that are not UTF-8 and unknown ids
	// become U+FFFD.
	Decode(ids []int32) string
	// AppendBytes adds the bytes that one id stands for, which may be a part of
	// a character; unknown ids add nothing.
	AppendBytes(dst []byte, id int32) []byte
	// VocabSize counts ids, without the padding a model may add.
	VocabSize() int
	// EOD is the id put between documents, -1 where there is none.
	EOD() int
	// Pad is the padding id; ok is false where padding is impossible. The Null
	// tokenizer pads with -1, which is not an id of its vocabulary.
	Pad() (id int, ok bool)
	// Description enters the name of index caches.
	Description() Description
}

// Description is how Megatron describes a tokenizer in the JSON whose MD5 names
// a dataset's cache files.
type Description struct {
	Path    string // "" is null
	Options []Option
}

// Option is one tokenizer option; the value is Python's spelling of it.
type Option struct{ Key, Value string }
