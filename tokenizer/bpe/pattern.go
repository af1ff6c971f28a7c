package bpe

// Pattern is a way to cut text that is written out by hand here: GPT-2's, or
// one of the family that began with GPT-4's,
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
//	 ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// whose members differ in the fields below.
type Pattern struct {
	gpt2         bool
	contractions contractions
	digits       int  // longest run of \p{N}; 0: any
	cases        bool // words end where lower case meets upper case
	slash        bool // [\r\n/]* after punctuation, instead of [\r\n]*
}

type contractions int

const (
	apart    contractions = iota // the first alternative
	appended                     // a word may end with one
	none
)

// Patterns by name. Llama3 is also GPT-4's (cl100k) as Hugging Face writes it;
// V1 and V2 are those of Megatron's TikTokenizer.
var (
	GPT2   = Pattern{gpt2: true}
	Llama3 = Pattern{digits: 3}
	Qwen2  = Pattern{digits: 1}
	O200K  = Pattern{digits: 3, contractions: appended, cases: true, slash: true}
	V1     = Pattern{digits: 1, contractions: none}
	V2     = Pattern{digits: 1, contractions: none, cases: true, slash: true}
)

const (
	prefixWord = `[^\r\n\p{L}\p{N}]?`
	lowerWord  = prefixWord + `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
	upperWord  = prefixWord + `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*`
	endings    = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	white      = `|\s*[\r\n]+|\s+(?!\S)|\s+`
	marks      = `| ?[^\s\p{L}\p{N}]+[\r\n]*`
	marksSlash = `| ?[^\s\p{L}\p{N}]+[\r\n/]*`
)

// known are the spellings found in tokenizer.json files.
var known = map[string]Pattern{
	`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`:           GPT2,
	`'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`:              GPT2,
	endings + `|` + prefixWord + `\p{L}+|\p{N}{1,3}` + marks + white:                       Llama3,
	endings + `|` + prefixWord + `\p{L}+|\p{N}` + marks + white:                            Qwen2,
	lowerWord + endings + `?|` + upperWord + endings + `?|\p{N}{1,3}` + marksSlash + white: O200K,
	lowerWord + `|` + upperWord + `|\p{N}` + marksSlash + white:                            V2,
}

// Lookup finds a regular expression among those that are written out.
func Lookup(expression string) (Pattern, bool) {
	p, ok := known[expression]
	return p, ok
}

// Expression is a pattern's regular expression; "" where it is GPT-2's.
func (p Pattern) Expression() string {
	for e, k := range known {
		if k == p && !p.gpt2 {
			return e
		}
	}
	return ""
}
