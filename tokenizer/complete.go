package tokenizer

import (
	"encoding/json"
	"slices"

	"monotron/internal/exitcode"
	"monotron/tokenizer/ggvocab"
	"monotron/tokenizer/hf"
)

// Complete is the files of a Hugging Face folder with a tokenizer.json that has every added token: also those that the
// files next to it name, and a vocab.json with merges.txt becomes one. Files of another kind stay as they are.
func Complete(files []ggvocab.File) ([]ggvocab.File, error) {
	by := map[string][]byte{}
	for _, f := range files {
		by[f.Name] = f.Data
	}
	if by[hfPieces] != nil {
		return files, nil // its pieces go first
	}
	n, err := namesOf(func(name string) ([]byte, string, error) { return by[name], name, nil })
	if err != nil {
		return nil, err
	}
	// A tokenizer.json, or two files with a class that says more of them than GPT-2's alone.
	data := by["tokenizer.json"]
	if data == nil && by[hfVocab] != nil && by[hfMerges] != nil && n.path != "" {
		ids := map[string]int32{}
		if err := exitcode.JSON(hfVocab, by[hfVocab], &ids); err != nil {
			return nil, err
		}
		if data, err = n.joined("the folder", ids, by[hfMerges]); err != nil {
			return nil, err
		}
	}
	if data == nil {
		return files, nil
	}
	inner, err := hf.Parse("tokenizer.json", data, hf.Changes{PrefixSpace: n.prefixSpace()})
	if err != nil || n.apply(inner) != nil {
		return files, nil // the writer says what it does not know
	}
	if data, err = withAdded(data, inner.AddedTokens()); err != nil {
		return nil, err
	}
	rest := slices.DeleteFunc(slices.Clone(files), func(f ggvocab.File) bool { return f.Name == "tokenizer.json" })
	return append(rest, ggvocab.File{Name: "tokenizer.json", Data: data}), nil
}

// withAdded is a tokenizer.json with these added tokens; the same bytes where it has as many.
func withAdded(data []byte, list []hf.AddedWithID) ([]byte, error) {
	var file map[string]json.RawMessage
	var there []json.RawMessage
	if err := exitcode.JSON("tokenizer.json", data, &file); err != nil {
		return nil, err
	}
	if added := file["added_tokens"]; added != nil && json.Unmarshal(added, &there) == nil && len(there) == len(list) {
		return data, nil
	}
	text, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	file["added_tokens"] = text
	return json.Marshal(file)
}
