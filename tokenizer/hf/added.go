package hf

import (
	"slices"
	"strings"
	"unicode/utf8"

	"monotron/tokenizer/trie"
	"monotron/tokenizer/uni"
)

// AddedToken is a string that is found in a text before anything else is done.
type AddedToken struct {
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	Lstrip     bool   `json:"lstrip"`
	Rstrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// AddedWithID is an added token as tokenizer.json lists it.
type AddedWithID struct {
	ID int32 `json:"id"`
	AddedToken
}

// AddedTokens are those of t, in the order of their ids.
func (t *Tokenizer) AddedTokens() (list []AddedWithID) {
	for id, a := range t.added.list {
		list = append(list, AddedWithID{id, a})
	}
	slices.SortFunc(list, func(a, b AddedWithID) int { return int(a.ID - b.ID) })
	return list
}

// addedTokens are matched on the text as it is and, those that are normalized,
// on the normalized text.
type addedTokens struct {
	list  map[int32]AddedToken
	ids   map[string]int32
	shown map[int32]string // the normalized form, where it is another
	raw   *trie.Trie
	norm  *trie.Trie
	split bool // special tokens are not matched
}

// add enters a token; its id is the one the model has for it, else the next.
func (t *Tokenizer) add(a AddedToken) (int32, error) {
	if a.Content == "" {
		return -1, nil
	}
	id, ok := t.added.ids[a.Content]
	if !ok {
		if id, ok = t.vocab[a.Content]; !ok {
			id = t.nextID()
		}
	}
	t.added.ids[a.Content] = id
	t.added.list[id] = a
	delete(t.added.shown, id)
	if a.Normalized && t.normalize != nil {
		s, err := t.normalize(aligned{text: a.Content})
		if err != nil {
			return id, err
		}
		if s.text != a.Content {
			t.added.shown[id] = s.text
		}
	}
	return id, nil
}

// nextID is the id of an added token that the model does not know.
func (t *Tokenizer) nextID() int32 {
	next := int32(len(t.vocab))
	for id := range t.added.list {
		next = max(next, id+1)
	}
	return next
}

// build makes the tries once all tokens are there.
func (a *addedTokens) build() {
	var raw, norm []string
	var rawIDs, normIDs []int32
	for id, token := range a.list {
		switch s, changed := a.shown[id]; {
		case token.Special && a.split:
		case token.Normalized && changed:
			norm, normIDs = append(norm, s), append(normIDs, id)
		case token.Normalized:
			norm, normIDs = append(norm, token.Content), append(normIDs, id)
		default:
			raw, rawIDs = append(raw, token.Content), append(rawIDs, id)
		}
	}
	a.raw, a.norm = nil, nil
	if len(raw) > 0 {
		a.raw = trie.New(raw, rawIDs)
	}
	if len(norm) > 0 {
		a.norm = trie.New(norm, normIDs)
	}
}

// part is a stretch of text, or an added token where id >= 0.
type part struct {
	text string
	id   int32
}

// cut calls visit for the stretches of text, in order.
func (a *addedTokens) cut(text string, t *trie.Trie, visit func(p part) error) error {
	if t == nil || text == "" {
		return visit(part{text, -1})
	}
	// The next token that may stand there; stripping widens it, but not over the last one.
	done := 0
	for at := 0; ; {
		start, n, id := t.Find(text, at)
		if start < 0 {
			break
		}
		stop := start + n
		at = stop
		token := a.list[id]
		if token.SingleWord && (wordBefore(text[:start]) || wordAfter(text[stop:])) {
			continue
		}
		if token.Lstrip {
			start = max(len(strings.TrimRightFunc(text[:start], uni.Spaces().Has)), done)
		}
		if token.Rstrip {
			rest := text[stop:]
			stop += len(rest) - len(strings.TrimLeftFunc(rest, uni.Spaces().Has))
		}
		// The text before it, then the token.
		if done < start {
			if err := visit(part{text[done:start], -1}); err != nil {
				return err
			}
		}
		if err := visit(part{text[start:stop], id}); err != nil {
			return err
		}
		done = stop
	}
	if done != len(text) {
		return visit(part{text[done:], -1})
	}
	return nil
}

func wordBefore(s string) bool {
	c, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && uni.Words().Has(c)
}

func wordAfter(s string) bool {
	c, n := utf8.DecodeRuneInString(s)
	return n > 0 && uni.Words().Has(c)
}
