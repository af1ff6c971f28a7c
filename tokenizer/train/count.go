package train

import "monotron/tokenizer/bpe"

// Counter counts the words of texts; one a goroutine.
type Counter struct {
	cut    func(text string, i int) int
	Counts map[string]int64
}

// NewCounter counts words as the pattern cuts them.
func NewCounter(p bpe.Pattern) *Counter {
	return &Counter{bpe.Cutter(p), map[string]int64{}}
}

// Add counts the words of one text, which is UTF-8 and is not kept.
func (c *Counter) Add(text string) {
	for at := 0; at < len(text); {
		end := c.cut(text, at)
		word := text[at:end]
		if n, ok := c.Counts[word]; ok {
			c.Counts[word] = n + 1
		} else {
			c.Counts[string([]byte(word))] = 1
		}
		at = end
	}
}

// Join adds what another counter counted.
func (c *Counter) Join(o *Counter) {
	for word, n := range o.Counts {
		c.Counts[word] += n
	}
}
