package datacase

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"monotron/internal/exitcode"
)

// file is cases.json, as far as these sections need it.
type file struct {
	Dataset []datasetCase
	Sampler []samplerCase
}

type datasetCase struct {
	ID string

	// file-*: what a pair holds
	Golden    string
	DType     string
	Sequences int64
	Documents int64
	Tokens    int64
	Lengths   []int64 `json:"sequence_lengths_first"`
	Bounds    []int64 `json:"document_indices_first"`
	IDs       []int64 `json:"ids_first"`
	Bin, Idx  struct{ SHA256 string }

	// all others: a configuration and what it gives
	SeqLength int `json:"seq_length"`
	Seed      uint32
	Split     string
	DataPath  []string     `json:"data_path"`
	PerSplit  *[3][]string `json:"per_split"`
	Sizes     [3]*int64
	Tokenizer tokenizerOptions
	Extra     struct {
		DropPartial   *bool    `json:"drop_last_partial_validation_sequence"`
		ExtraToken    *bool    `json:"add_extra_token_to_sequence"`
		InterDocument bool     `json:"inter_document_masking"`
		Surplus       *float64 `json:"mid_level_dataset_surplus"`
	}
	Separate   []bool `json:"separate_final_epoch_in_build_order"`
	Splits     map[string]*wantSet
	CacheFiles map[string]*wantFile `json:"cache_files"`
	Mock       *wantArray           `json:"mock_lengths"`
	Detail     string
	Error      string
}

// tokenizerOptions are Megatron's, under the names that its arguments have.
type tokenizerOptions struct {
	Type          string   `json:"tokenizer_type"`
	VocabSize     int      `json:"vocab_size"`
	VocabFile     string   `json:"vocab_file"`
	MergeFile     string   `json:"merge_file"`
	Model         string   `json:"tokenizer_model"`
	SpecialTokens []string `json:"tokenizer_special_tokens"`
	NullEOD       *int     `json:"null_tokenizer_eod_id"`
	NullPad       *int     `json:"null_tokenizer_pad_id"`
	TikPattern    string   `json:"tiktoken_pattern"`
	TikSpecials   *int     `json:"tiktoken_num_special_tokens"`
	NoSpecial     bool     `json:"tokenizer_hf_no_include_special_tokens"`
	Legacy        bool     `json:"tokenizer_sentencepiece_legacy"`
}

// UnmarshalJSON refuses an option that is not read here: the names of the cache
// files depend on each.
func (o *tokenizerOptions) UnmarshalJSON(data []byte) error {
	type plain tokenizerOptions
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode((*plain)(o)); err != nil {
		return fmt.Errorf("tokenizer: %w", err)
	}
	return nil
}

type wantFile struct {
	Size   int64
	SHA256 string
}

// wantSet is one split: a GPTDataset or a BlendedDataset.
type wantSet struct {
	Kind         string
	Length       int64
	Hash         string
	DatasetPath  *string `json:"dataset_path"`
	NumSamples   *int64  `json:"num_samples"`
	Range        [2]int64
	Epochs       int64
	Documents    *wantArray `json:"document_index"`
	Samples      *wantArray `json:"sample_index"`
	Shuffle      *wantArray `json:"shuffle_index"`
	Size         *int64
	Weights      []float64
	DatasetIndex *wantArray `json:"dataset_index"`
	SampleOf     *wantArray `json:"dataset_sample_index"`
	Members      []*wantSet
}

type wantArray struct {
	DType  string
	Shape  []int64
	SHA256 string
}

// detail is the file that a case's detail names.
type detail struct {
	Splits map[string]*struct {
		Description string
		Samples     map[string][]wantSample
	}
}

type wantSample struct {
	Index       int64
	DatasetID   *int64 `json:"dataset_id"`
	Tokens      wantValues
	Labels      wantValues
	LossMask    wantValues `json:"loss_mask"`
	PositionIDs wantValues `json:"position_ids"`
	Attention   *struct {
		SHA256  string `json:"sha256_u8"`
		Blocked int64
	} `json:"attention_mask"`
	CuSeqlens []int64 `json:"cu_seqlens"`
	MaxSeqlen int64   `json:"max_seqlen"`
}

// wantValues is a list of numbers, or the hash of a long one.
type wantValues struct {
	List   []int64
	SHA256 string
}

func (w *wantValues) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		return json.Unmarshal(data, &w.List)
	}
	var hash struct {
		SHA256 string `json:"sha256_i64"`
	}
	err := json.Unmarshal(data, &hash)
	w.SHA256 = hash.SHA256
	return err
}

// maxCase bounds a file of cases, or one that a case names, in bytes.
const maxCase = 1 << 30

// Run runs every case whose id contains only, of the cases.json at path; paths
// in it are relative to its folder. One line a case goes to out. The error is
// about the file itself; failing cases are counted.
func Run(path, only string, out io.Writer) (passed, failed int, err error) {
	data, err := exitcode.ReadFile(path, maxCase)
	if err != nil {
		return 0, 0, err
	}
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return 0, 0, exitcode.Errorf(exitcode.BadData, "%s: %w", path, err)
	}
	root, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return 0, 0, exitcode.With(exitcode.IO, err)
	}
	report := func(id string, problems []string) {
		if len(problems) == 0 {
			passed++
			fmt.Fprintf(out, "ok   %s\n", id)
			return
		}
		failed++
		fmt.Fprintf(out, "FAIL %s: %s\n", id, strings.Join(problems, "; "))
	}
	// Data sets, then samplers.
	for _, c := range f.Dataset {
		if strings.Contains(c.ID, only) {
			report(c.ID, runDataset(root, c))
		}
	}
	for _, c := range f.Sampler {
		if strings.Contains(c.ID, only) {
			report(c.ID, runSampler(c))
		}
	}
	return passed, failed, nil
}

// list gathers what is wrong with a case.
type list []string

func (l *list) add(format string, args ...any) { *l = append(*l, fmt.Sprintf(format, args...)) }

// same notes a difference.
func same[T comparable](l *list, what string, got, want T) {
	if got != want {
		l.add("%s is %v, want %v", what, got, want)
	}
}

// sameOrNil is same for values that may be missing.
func sameOrNil[T comparable](l *list, what string, got, want *T) {
	if (got == nil) != (want == nil) || got != nil && *got != *want {
		l.add("%s is %v, want %v", what, show(got), show(want))
	}
}

func show[T any](p *T) string {
	if p == nil {
		return "null"
	}
	return fmt.Sprint(*p)
}
