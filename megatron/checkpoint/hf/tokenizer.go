package hf

import (
	"os"
	"path/filepath"

	"monotron/internal/argv"
	"monotron/megatron/checkpoint"
	"monotron/tokenizer"
)

// tokenizerOf is the tokenizer whose files are next to the weights; zero without any.
func tokenizerOf(dir string) tokenizer.Config {
	const full, pieces, vocab, merges = "tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt"
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	switch {
	case has(full):
		return tokenizer.Config{Type: "HuggingFaceTokenizer", Model: dir}
	case has(pieces):
		return tokenizer.Config{Type: "Llama2Tokenizer", Model: filepath.Join(dir, pieces)}
	case has(vocab) && has(merges) && (has("tokenizer_config.json") || has("added_tokens.json")): // which say more of the two
		return tokenizer.Config{Type: "HuggingFaceTokenizer", Model: dir}
	case has(vocab) && has(merges):
		return tokenizer.Config{Type: "GPT2BPETokenizer", VocabFile: filepath.Join(dir, vocab), MergeFile: filepath.Join(dir, merges)}
	}
	return tokenizer.Config{}
}

// noteNoTokenizer says that the folder that was given for its tokenizer has none.
func (w *writing) noteNoTokenizer() {
	dir, names := filepath.Clean(w.o.Tokenizer), []string{"tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json"}
	if dir == filepath.Clean(w.src.Info().Path) {
		return // the input has none, so the output has none
	}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return
		}
	}
	w.notes = append(w.notes, "the output has no tokenizer: "+dir+" has neither "+argv.Or(names...)+"; use --tokenizer to give a folder with a tokenizer")
}

// writeTokenizer puts the files of src's tokenizer next to the weights, under the names that
// transformers reads.
func (w *writing) writeTokenizer(dir string) error {
	c := w.src.Info().Tokenizer
	files, err := c.Files(true)
	if err != nil {
		w.notes = append(w.notes, checkpoint.NotKept(err)+"; use --tokenizer to give a folder with a tokenizer")
		return nil
	}
	for _, f := range files {
		if f.HF == "" {
			w.notes = append(w.notes, "Hugging Face folders have no file for a "+c.Type+": the output has no tokenizer")
			continue
		}
		if err := checkpoint.WriteBytes(filepath.Join(dir, f.HF), f.Data); err != nil {
			return err
		}
	}
	return nil
}
