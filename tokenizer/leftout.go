package tokenizer

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"monotron/tokenizer/sp"
)

// LeftOut says what the files next to a tokenizer.model add that a SentencePieceTokenizer does not do; "": nothing.
// Files that cannot be read are an error where the tokenizer is loaded.
func LeftOut(model string) string {
	m, err := sp.Load(model)
	if err != nil {
		return ""
	}
	n, err := readNames(filepath.Dir(model))
	if err != nil {
		return ""
	}
	var says []string
	if bos := m.BOS(); bos >= 0 && slices.Contains(templated, strings.TrimSuffix(n.class, "Fast")) && (n.AddBOS == nil || *n.AddBOS) {
		says = append(says, fmt.Sprintf("texts do not get %s at their beginning", m.Text(int32(bos))))
	}
	// Tokens that the model does not have.
	pieces := map[string]bool{"": true}
	for id := range m.Size() {
		pieces[m.Text(int32(id))] = true
	}
	var cut []string
	for _, a := range slices.Concat(n.legacy, n.Additional) {
		if !pieces[a.Content] {
			cut, pieces[a.Content] = append(cut, a.Content), true
		}
	}
	if few := cut[:min(3, len(cut))]; len(cut) > 0 {
		says = append(says, fmt.Sprintf("%d added tokens, such as %s, are split into pieces", len(cut), strings.Join(few, " ")))
	}
	if len(says) == 0 {
		return ""
	}
	return "tokenizer.model is read without the files next to it: " + strings.Join(says, ", and ") + "; transformers reads these files: to use them, save the tokenizer with transformers as a tokenizer.json, which monotron reads completely"
}
