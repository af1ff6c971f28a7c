package ggvocab

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"monotron/tokenizer/sp"
)

const (
	fillerScore = -10000 // of ids that no piece has
	addedScore  = -1000  // of tokens that Hugging Face's files add
)

// spare makes lists of Size pieces that nothing uses.
func (w *writing) spare() {
	w.reserve()
	w.scores = make([]float32, w.Size)
	for i := range w.scores {
		w.scores[i] = fillerScore
	}
}

// pieces writes a SentencePiece model.
func (w *writing) pieces(data []byte) error {
	list, unigram, err := sp.Pieces(data)
	if err != nil {
		return fmt.Errorf("tokenizer.model: %w", err)
	}
	if unigram {
		w.Notes = append(w.Notes, "tokenizer.model is a unigram model: llama.cpp splits texts by another rule and gives ids on which the model was not trained")
	}
	w.spare()
	for id, p := range list {
		if id >= w.Size {
			w.Notes = append(w.Notes, fmt.Sprintf("tokenizer.model has %d pieces, but the model has %d ids; the last pieces are left out", len(list), w.Size))
			break
		}
		w.tokens[id], w.kinds[id], w.scores[id] = p.Text, int32(p.Kind), p.Score
	}
	if err := w.addedPieces(); err != nil {
		return err
	}
	w.vocabulary("llama", "default", nil)
	return nil
}

// addedPieces enters what added_tokens.json and tokenizer_config.json add to the pieces.
// Ids behind the model's are left out.
func (w *writing) addedPieces() error {
	enter := func(id int, token string, kind int32) {
		if id >= 0 && id < w.Size {
			w.tokens[id], w.kinds[id], w.scores[id] = token, kind, addedScore
		}
	}
	// Tokens of two files; the second says which are special.
	if data := w.files["added_tokens.json"]; data != nil {
		var added map[string]int
		if err := unmarshal("added_tokens.json", data, &added); err != nil {
			return err
		}
		for token, id := range added {
			enter(id, token, userDefined)
		}
	}
	decoder, _ := w.config["added_tokens_decoder"].(map[string]any)
	for key, v := range decoder {
		id, err := strconv.Atoi(key)
		if err != nil {
			return fmt.Errorf("tokenizer_config.json: added_tokens_decoder: %q is not a token id", key)
		}
		entry, _ := v.(map[string]any)
		special, _ := entry["special"].(bool)
		token := content(entry)
		if special || isSpecial(token) {
			enter(id, token, control)
		} else {
			enter(id, strings.ReplaceAll(token, blank, " "), userDefined)
		}
	}
	return nil
}

// ranked writes a tokenizer.json of SentencePiece's kind, a BPE over characters that falls
// back to bytes. The score of a token is the rank of the first merge that makes it.
func (w *writing) ranked() error {
	if err := w.words(w.json.Model.Vocab); err != nil {
		return fmt.Errorf("tokenizer.json: %w", err)
	}
	// The rank of the first merge that makes a token.
	pairs, err := pairsOf(w.json.Model.Merges)
	if err != nil {
		return fmt.Errorf("tokenizer.json: %w", err)
	}
	ranks := make(map[string]int, len(pairs))
	for i, p := range pairs {
		if _, there := ranks[p[0]+p[1]]; !there {
			ranks[p[0]+p[1]] = i
		}
	}
	// Scores and kinds.
	w.scores = make([]float32, w.Size)
	bytes := map[string]bool{}
	for b := range 256 {
		bytes[byteName(b)] = true
	}
	for id, token := range w.tokens {
		rank, made := ranks[token]
		switch {
		case w.kinds[id] == unused:
			w.scores[id] = fillerScore
		case bytes[token]:
			w.kinds[id] = byteToken
		case w.kinds[id] != normal:
			w.scores[id] = addedScore
		case made:
			w.scores[id] = -float32(rank)
		default:
			w.scores[id] = -float32(len(pairs))
		}
	}
	if id := slices.Index(w.tokens, w.json.Model.UnkToken); id >= 0 {
		w.kinds[id] = unknown
	}
	w.vocabulary("llama", "default", nil)
	// Whether a blank goes before a text.
	if w.Spaces == nil {
		spaces := strings.Contains(string(w.json.Normalizer), `"Prepend"`) || strings.Contains(string(w.json.PreTokenizer), `"Metaspace"`)
		w.Spaces = &spaces
	}
	return nil
}
