package inference

import (
	"context"
	"strings"
	"sync"
	"time"

	"monotron/megatron/inference/schema"
	"monotron/tokenizer"
)

// Request is one text to continue.
type Request struct {
	Prompt []int32
	Sampling
	MaxNew         int      // 0: the prompt is only scored
	Ends           []int32  // ids that end the text, and are not part of it
	KeepEnd        bool     // the id that ends it is part of it
	Stops          []string // texts that end it, and are not part of it
	LogProbs       int      // the likeliest so many at each token; negative: no log-probabilities at all
	PromptLogProbs bool     // of the prompt's tokens too
	Adapter        int      // number of the adapter, from 1; 0: none
	Tokenizer      tokenizer.Tokenizer
	SkipSpecial    bool // special tokens have no text, but end a text that a stop finds in them

	Grammar    *schema.Grammar // that the text is kept within; nil: none. Needs Tokenizer and Vocabulary
	Vocabulary *schema.Vocabulary
}

// Reason is why a text ended.
type Reason string

const (
	EndedByStop   Reason = "stop"   // at an end id or a stop text
	EndedByLength Reason = "length" // MaxNew
	EndedByCancel Reason = "abort"  // nobody waits for it
	EndedByError  Reason = "error"
)

// Choice is a token and how likely the model finds it, before anything of Sampling.
type Choice struct {
	ID      int32
	LogProb float64
}

// Token is one of a text, with its log probability.
type Token struct {
	Choice
	Top  []Choice // the likeliest, best first
	Text string   // what can be shown with it: complete characters that no stop text can still take back
	At   time.Time
}

// Times are when a request came, began, gave its first token and ended.
type Times struct{ Came, Began, First, Ended time.Time }

// Stream is where the tokens of a request arrive.
type Stream struct {
	mu        sync.Mutex
	prompt    []Token // log-probabilities of the prompt's; the first has none
	tokens    []Token // not yet fetched
	rest      string  // text behind the last token
	ended     Reason  // "": it continues
	err       error
	count     int
	cached    int
	times     Times
	news      chan struct{} // holds one mark where there is something new
	cancelled bool
	wake      func()
	weights   string
}

// Weights names those that give the text.
func (s *Stream) Weights() string { return s.weights }

// Result is what a request gave so far, or since it was last asked.
type Result struct {
	Prompt    []Token // where asked for; complete with the first token
	Tokens    []Token
	Rest      string // text that belongs to no token of Tokens: kept back until the end was known
	Ended     Reason
	Generated int // tokens in all
	Cached    int // of the prompt's: their keys and values were there
	Times     Times
}

// Next waits for something new. A result with Ended is the last. When ctx ends first the
// request is cancelled.
func (s *Stream) Next(ctx context.Context) (Result, error) {
	for {
		s.mu.Lock()
		if len(s.tokens) > 0 || s.ended != "" {
			r := Result{Prompt: s.prompt, Tokens: s.tokens, Rest: s.rest, Ended: s.ended, Generated: s.count, Cached: s.cached, Times: s.times}
			s.tokens, s.prompt, s.rest = nil, nil, ""
			err := s.err
			s.mu.Unlock()
			return r, err
		}
		s.mu.Unlock()
		select {
		case <-s.news:
		case <-ctx.Done():
			s.Cancel()
			return Result{Ended: EndedByCancel}, ctx.Err()
		}
	}
}

// Cancel ends the request; its blocks are free before the next pass.
func (s *Stream) Cancel() {
	s.mu.Lock()
	s.cancelled = true
	s.mu.Unlock()
	s.wake()
}

func (s *Stream) gone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cancelled
}

func (s *Stream) tell(change func()) {
	s.mu.Lock()
	change()
	s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// sequence is a request on its way.
type sequence struct {
	*Request
	stream   *Stream
	edition  int32   // of the weights
	ids      []int32 // prompt and what was generated
	computed int     // positions whose keys and values are in blocks
	table    []int32 // blocks
	hashed   int     // blocks reported to the pool
	last     prefix  // of the last of them
	scored   int     // tokens of the prompt whose log-probability is known
	text     *tokenizer.Stream
	kept     string        // text that may be the beginning of a stop
	guide    *schema.Guide // through Grammar; nil: none
}

func newSequence(r *Request, wake func()) *sequence {
	s := &sequence{Request: r, ids: append([]int32(nil), r.Prompt...), stream: &Stream{news: make(chan struct{}, 1), wake: wake, times: Times{Came: time.Now()}}}
	if r.Tokenizer != nil {
		s.text = tokenizer.NewStream(r.Tokenizer)
	}
	if r.Grammar != nil {
		s.guide = r.Grammar.NewGuide(r.Vocabulary, r.Tokenizer, r.Ends)
	}
	if r.PromptLogProbs {
		s.stream.prompt = append(s.stream.prompt, Token{Choice: Choice{ID: r.Prompt[0]}})
		s.scored = 1
	}
	return s
}

// scoring reports whether positions of the prompt are still to be scored one by one.
func (s *sequence) scoring() bool { return s.PromptLogProbs && s.scored < len(s.Prompt) }

// generated is how many tokens are new.
func (s *sequence) generated() int { return len(s.ids) - len(s.Prompt) }

// score keeps what the model thinks of the prompt's next token.
func (s *sequence) score(t Token) {
	s.scored++
	s.stream.mu.Lock()
	s.stream.prompt = append(s.stream.prompt, t)
	s.stream.mu.Unlock()
}

// wish is what is asked of the logits after its last token, or, with a token of the prompt
// that is only scored, of those before it.
func (s *sequence) wish(about int32) wish {
	w := wish{Sampling: &s.Sampling, nth: s.generated(), about: about, tell: s.LogProbs}
	if about < 0 {
		w.edits = s.edits(s.ids, len(s.Prompt))
		if s.guide != nil {
			w.edits = banned(w.edits, s.guide.Banned(), s.Vocabulary.Size())
		}
	}
	return w
}

// add takes the next token, and says why the text ends with it, if it does.
func (s *sequence) add(t Token) Reason {
	s.ids = append(s.ids, t.ID)
	// A token that ends the text.
	for _, end := range s.Ends {
		if t.ID == end {
			s.give(t, s.KeepEnd, EndedByStop)
			return EndedByStop
		}
	}
	// A grammar that has no further token.
	complete := false
	if s.guide != nil {
		var err error
		if complete, err = s.guide.Take(t.ID); err != nil {
			s.end(EndedByError, err)
			return EndedByError
		}
	}
	// Text that is a stop word, or may become one with later tokens, is not given yet.
	if s.text != nil {
		s.kept += s.textOf(t.ID)
	}
	if cut, found := cutAt(s.kept, s.Stops); found {
		t.Text, s.kept = s.kept[:cut], ""
		s.text = nil // nothing follows
		s.give(t, true, EndedByStop)
		return EndedByStop
	}
	keep := beginning(s.kept, s.Stops)
	t.Text, s.kept = s.kept[:len(s.kept)-keep], s.kept[len(s.kept)-keep:]
	// The length.
	var ended Reason
	switch {
	case complete:
		ended = EndedByStop
	case s.generated() >= s.MaxNew:
		ended = EndedByLength
	}
	s.give(t, true, ended)
	return ended
}

// textOf is the text that is complete with a token.
func (s *sequence) textOf(id int32) string {
	if !s.SkipSpecial || !tokenizer.Special(s.Tokenizer, id) {
		return s.text.Push(id)
	}
	text := s.Tokenizer.Decode([]int32{id})
	if _, found := cutAt(s.kept+text, s.Stops); found {
		return text
	}
	return ""
}

// give passes a token on, and with the last one the text that was kept back.
func (s *sequence) give(t Token, given bool, ended Reason) {
	rest := ""
	if ended != "" {
		rest = s.kept
		if s.text != nil {
			rest += s.text.Flush()
		}
	}
	now := time.Now()
	s.stream.tell(func() {
		if s.stream.times.First.IsZero() {
			s.stream.times.First = now
		}
		if given {
			s.stream.tokens = append(s.stream.tokens, t)
		}
		s.stream.count = s.generated()
		s.stream.rest += rest
		if ended != "" {
			s.stream.ended, s.stream.times.Ended = ended, now
		}
	})
}

// end ends the text for another reason than its tokens.
func (s *sequence) end(why Reason, err error) {
	s.stream.tell(func() {
		if s.stream.ended == "" {
			s.stream.ended, s.stream.err, s.stream.times.Ended = why, err, time.Now()
		}
	})
}

// cutAt is where the first of the stops begins in text.
func cutAt(text string, stops []string) (at int, found bool) {
	at = len(text)
	for _, stop := range stops {
		if i := strings.Index(text, stop); i >= 0 && i < at {
			at, found = i, true
		}
	}
	return at, found
}

// beginning is how many bytes at the end of text may be the beginning of a stop.
func beginning(text string, stops []string) int {
	most := 0
	for _, stop := range stops {
		for n := min(len(stop)-1, len(text)); n > most; n-- {
			if strings.HasSuffix(text, stop[:n]) {
				most = n
			}
		}
	}
	return most
}
