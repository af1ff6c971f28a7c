package tokenizer

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"monotron/internal/exitcode"
	"monotron/internal/gguf"
	"monotron/tokenizer/bpe"
	"monotron/tokenizer/ggvocab"
)

// KeptFolder is where a checkpoint keeps the files of its tokenizer, next to its
// tensors, as Megatron-LM does.
const KeptFolder = "tokenizer"

// mostKept bounds those files together, in bytes: a tokenizer's are small.
const mostKept = 32 << 20

// File is one of the files that a tokenizer is made of.
type File struct {
	Name string // as found, without folders
	HF   string // as Hugging Face's folders name it; "": they have no such file
	Data []byte
}

// source is where a File comes from.
type source struct{ path, hf string }

// HuggingFaceFiles are those of a Hugging Face folder that a tokenizer is made of.
var HuggingFaceFiles = []string{"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
	"tokenizer.model", "spiece.model", "chat_template.jinja"}

const (
	hfVocab  = "vocab.json"
	hfMerges = "merges.txt"
	hfPieces = "tokenizer.model"
)

// Files reads the files that c is made of, 32 MB at most; builtIn asks for those
// of GPT-2 too where c takes what is built in. None is not an error: a NullTokenizer
// has no files.
func (c Config) Files(builtIn bool) (list []File, err error) {
	if builtIn && c.builtIn() {
		return builtInFiles()
	}
	if c.kind() == "HuggingFaceTokenizer" && gguf.Is(c.Model) {
		return filesOfGGUF(c.Model)
	}
	left := int64(mostKept)
	for _, s := range c.sources() {
		data, err := exitcode.ReadFile(s.path, left)
		if err != nil {
			return nil, err
		}
		left -= int64(len(data))
		name := filepath.Base(s.path)
		if slices.ContainsFunc(list, func(f File) bool { return f.Name == name }) {
			return nil, exitcode.Errorf(exitcode.BadData, "two files of the tokenizer have the name %s", name)
		}
		list = append(list, File{name, s.hf, data})
	}
	return list, nil
}

// filesOfGGUF are those of a Hugging Face folder that say what a GGUF file's tokenizer is.
func filesOfGGUF(path string) (list []File, err error) {
	files, err := ggvocab.Path(path)
	for _, f := range files {
		list = append(list, File{f.Name, f.Name, f.Data})
	}
	return list, err
}

func (c Config) builtIn() bool {
	return c.kind() == "GPT2BPETokenizer" && c.VocabFile == "" && c.MergeFile == ""
}

// sources are the files that c names.
func (c Config) sources() (list []source) {
	switch c.kind() {
	case "GPT2BPETokenizer":
		if c.builtIn() {
			return nil
		}
		return []source{{c.VocabFile, hfVocab}, {c.MergeFile, hfMerges}}
	case "CharTokenizer":
		return []source{{c.VocabFile, ""}}
	case "SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer":
		return []source{{c.Model, hfPieces}}
	case "TikTokenizer":
		return []source{{c.Model, ""}}
	case "HuggingFaceTokenizer":
		return huggingFaceSources(c.Model)
	}
	return nil
}

// huggingFaceSources are the files of a folder, or a tokenizer.json with the files next to it.
func huggingFaceSources(model string) (list []source) {
	dir, own := model, "tokenizer.json"
	if st, err := os.Stat(model); err == nil && !st.IsDir() {
		dir, own = filepath.Dir(model), filepath.Base(model)
		list = append(list, source{model, "tokenizer.json"})
	}
	for _, name := range HuggingFaceFiles {
		if path := filepath.Join(dir, name); exists(path) && (len(list) == 0 || name != own && name != "tokenizer.json") {
			list = append(list, source{path, name})
		}
	}
	return list
}

// In is c made of the files that a checkpoint keeps in dir; c itself where dir
// lacks one of them.
func (c Config) In(dir string) Config {
	moved := c
	move := func(path *string, otherwise string) bool {
		name := otherwise
		if *path != "" {
			name = filepath.Base(*path)
		}
		*path = filepath.Join(dir, name)
		st, err := os.Stat(*path)
		return err == nil && st.Mode().IsRegular()
	}
	found := false
	switch c.kind() {
	case "GPT2BPETokenizer":
		vocab := move(&moved.VocabFile, hfVocab)
		found = move(&moved.MergeFile, hfMerges) && vocab
	case "CharTokenizer":
		found = c.VocabFile != "" && move(&moved.VocabFile, "")
	case "SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer", "TikTokenizer":
		found = c.Model != "" && move(&moved.Model, "")
	case "HuggingFaceTokenizer":
		if c.Model != "" && move(&moved.Model, "") {
			return moved // a file
		}
		moved.Model = dir
		found = exists(filepath.Join(dir, "tokenizer.json")) || exists(filepath.Join(dir, hfVocab))
	}
	if !found {
		return c
	}
	return moved
}

// Absolute is c whose files are found from any folder. What is not a file here stays as it
// is, such as a name that another program looks up.
func (c Config) Absolute() Config {
	for _, path := range []*string{&c.VocabFile, &c.MergeFile, &c.Model} {
		if full, err := filepath.Abs(*path); err == nil && *path != "" && exists(*path) {
			*path = full
		}
	}
	return c
}

// builtInFiles are GPT-2's own two, as published, for programs that have nothing built in.
func builtInFiles() ([]File, error) {
	t, err := EmbeddedGPT2()
	if err != nil {
		return nil, err
	}
	vocab, merges := []byte{'{'}, []byte("#version: 0.2\n")
	for id, bytes := range t.spellings[:t.eod] {
		vocab = fmt.Appendf(vocab, "%s: %d, ", strconv.QuoteToASCII(bpe.Spell(bytes)), id)
	}
	vocab = fmt.Appendf(vocab, "%q: %d}", endOfText, t.eod)
	for pairs := gpt2Merges[256:]; len(pairs) > 0; pairs = pairs[4:] {
		left, right := binary.LittleEndian.Uint16(pairs), binary.LittleEndian.Uint16(pairs[2:])
		merges = fmt.Appendf(merges, "%s %s\n", bpe.Spell(t.spellings[left]), bpe.Spell(t.spellings[right]))
	}
	return []File{{hfVocab, hfVocab, vocab}, {hfMerges, hfMerges, merges}}, nil
}
