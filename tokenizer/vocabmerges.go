package tokenizer

import (
	"encoding/json"
	"path/filepath"
	"strings"

	"monotron/internal/exitcode"
	"monotron/tokenizer/hf"
)

// Parts of a tokenizer.json, by what the classes that read vocab.json and merges.txt do.
const (
	gpt2Parts  = `"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}`
	qwen2Parts = `"normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
		{"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
		{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]}`
)

// partsOf are those of a tokenizer_class, without Fast; "" is GPT-2's own two files alone.
var partsOf = map[string]string{"": gpt2Parts, "GPT2Tokenizer": gpt2Parts, "CodeGenTokenizer": gpt2Parts, "Qwen2Tokenizer": qwen2Parts}

// loadWithoutJSON reads a folder that holds vocab.json and merges.txt, as
// transformers' slow tokenizers save them, and no tokenizer.json.
func loadWithoutJSON(c Config) (Tokenizer, error) {
	vocab, merges := filepath.Join(c.Model, hfVocab), filepath.Join(c.Model, hfMerges)
	if model := filepath.Join(c.Model, hfPieces); !exists(vocab) && exists(model) {
		return nil, exitcode.Errorf(exitcode.Usage, "%s has no tokenizer.json; for its SentencePiece model use --tokenizer-type Llama2Tokenizer --tokenizer-model %s", c.Model, model)
	}
	names, err := readNames(c.Model)
	if err != nil {
		return nil, err
	}
	ids, err := readVocab(vocab)
	if err != nil {
		return nil, err
	}
	if _, err := readMerges(merges, vocab, ids); err != nil {
		return nil, err
	}
	lines, err := readFile(merges, "--merge-file")
	if err != nil {
		return nil, err
	}
	data, err := names.joined(c.Model, ids, lines)
	if err != nil {
		return nil, err
	}
	inner, err := hf.Parse(vocab, data, hf.Changes{PrefixSpace: names.prefixSpace()})
	if err != nil {
		return nil, err
	}
	if names.path == "" && names.EOS == "" {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: the token %s is missing, and no tokenizer_config.json names another end-of-document token", vocab, endOfText)
	}
	return newHuggingFace(c, inner, names)
}

// joined is a vocabulary and the lines of merges.txt as a tokenizer.json, by the class of n, which gets the tokens that
// the class has of its own; folder is for messages.
func (n *names) joined(folder string, ids map[string]int32, merges []byte) ([]byte, error) {
	n.slow = true
	parts, ok := partsOf[strings.TrimSuffix(n.class, "Fast")]
	if !ok {
		return nil, exitcode.Errorf(exitcode.BadData, "%s has no tokenizer.json, and monotron does not know how its tokenizer_class %.60q uses vocab.json; save the tokenizer with transformers as a tokenizer.json", folder, n.class)
	}
	// One token begins and ends texts where nothing else is named.
	if _, ok := ids[endOfText]; ok {
		if n.EOS == "" {
			n.EOS = endOfText
		}
		if n.BOS == "" && parts == gpt2Parts {
			n.BOS = endOfText
		}
		if n.EOS == endOfText || n.BOS == endOfText {
			n.Additional = append(n.Additional, hf.AddedToken{Content: endOfText, Special: true})
		}
	}
	lines := strings.Split(strings.TrimRight(strings.ReplaceAll(string(merges), "\r\n", "\n"), "\n"), "\n")
	if strings.HasPrefix(lines[0], "#version") {
		lines = lines[1:]
	}
	model, err := json.Marshal(map[string]any{"type": "BPE", "vocab": ids, "merges": lines})
	return []byte(`{"decoder": {"type": "ByteLevel"}, ` + parts + `, "model": ` + string(model) + `}`), err
}
