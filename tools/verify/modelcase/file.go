package modelcase

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
)

// maxCaseBytes bounds case.json; the largest known one is 17 KB.
const maxCaseBytes = 16 << 20

// caseFile is case.json, as far as every kind of case shares it.
type caseFile struct {
	dir string

	Name          string
	Architecture  string
	Config        json.RawMessage  `json:"config"` // Hugging Face's
	Plain         *plainConfig     `json:"config_in_plain_names"`
	Training      *trainingNumbers `json:"training"`
	MegatronFlags string           `json:"megatron_flags"`
	WithTraining  string           `json:"megatron_flags_with_training"` // where the flags above are the model's alone
	WeightNames   string           `json:"weight_names"`                 // "megatron"; else the architecture's
	Weights       string
	Batches       string
	Model         string // another case, whose model this one uses
	ModelCase     string `json:"model_case"`
	Expected      json.RawMessage
	Tolerance     map[string]any
	Exclude       map[string]exclusion `json:"exclude_from_param_comparison"`

	Micros    int    `json:"microbatches"` // accumulation
	MicroRows int    `json:"micro_batch_size"`
	EOD       *int   `json:"eod_token"`  // packing
	BaseFlags string `json:"base_flags"` // flag variants
	Variants  map[string]variant
	World     int        `json:"world_size"` // layouts
	Ranks     []rankFile `json:"ranks"`
	Rows      []json.RawMessage
	PlainRun  []json.RawMessage `json:"iterations"` // pretrain_gpt's own log

	Biases routerBiases `json:"initial_expert_bias_per_layer"`

	commentary
}

// commentary is what a case says to its reader: how it was made, and how far other
// computations were off. Nothing of it is compared.
type commentary struct {
	ProducedBy      json.RawMessage `json:"produced_by"`
	Notes           json.RawMessage `json:"notes"`
	About           json.RawMessage `json:"about"`
	Status          json.RawMessage `json:"status"`
	Tokens          json.RawMessage `json:"tokens"` // of generation, in its rows too
	Derived         json.RawMessage `json:"derived_by_validate_args"`
	CPUFlags        json.RawMessage `json:"flags_for_the_cpu_run_only"`
	CrossChecked    json.RawMessage `json:"cross_checked"`
	SameNumbers     json.RawMessage `json:"same_numbers_as"`
	PeerError       json.RawMessage `json:"known_peer_error"`
	PeerExpectation json.RawMessage `json:"expected_of_the_peer_with_its_error"`
	FloatPeer       json.RawMessage `json:"deviation_of_float32_peer"`
	FloatSecond     json.RawMessage `json:"deviation_of_float32_run_of_the_second_computation"`
	Second          json.RawMessage `json:"second_computation_differs_by"`
	MegatronRun     json.RawMessage `json:"megatron_run_differs_from_this_by"`
	HuggingFace     json.RawMessage `json:"difference_from_the_hugging_face_expectation_of_the_same_case"`
	FloatFamily     json.RawMessage `json:"float32_transformers_differs_by"`
	Frequencies     json.RawMessage `json:"rope_inverse_frequencies"`
	NoDecay         json.RawMessage `json:"no_weight_decay"`
	Buffers         json.RawMessage `json:"gradient_buffers"`
	Flags           json.RawMessage `json:"flags"` // of pretrain_gpt, with its logs
	UncutLog        json.RawMessage `json:"log_of_the_whole_run"`
	ResumedLog      json.RawMessage `json:"log_of_the_resumed_run"`
}

// decode reads JSON into out; a key that out has no field for is an error, since a number
// that is not compared would pass.
func decode(raw []byte, out any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(out)
}

// readCase reads dir/case.json, or the case.json that path names.
func readCase(path string) (*caseFile, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		path = filepath.Join(path, "case.json")
	}
	raw, err := exitcode.ReadFile(path, maxCaseBytes)
	if exitcode.CodeOf(err) == exitcode.NoInput {
		return nil, exitcode.Errorf(exitcode.NoInput, "%s does not exist; name a folder with a case.json", path)
	}
	if err != nil {
		return nil, err
	}
	c := &caseFile{dir: filepath.Dir(path)}
	// "rows" is a count in accumulation and a list in the tables.
	var shared map[string]json.RawMessage
	if err := exitcode.JSON(path, raw, &shared); err != nil {
		return nil, err
	}
	if r := shared["rows"]; len(r) > 0 && r[0] != '[' {
		delete(shared, "rows")
	}
	if raw, err = json.Marshal(shared); err != nil {
		return nil, c.bad("%v", err)
	}
	if err := decode(raw, c); err != nil {
		return nil, c.bad("%v", err)
	}
	return c, nil
}

func (c *caseFile) bad(format string, args ...any) error {
	return exitcode.Errorf(exitcode.BadData, "%s: "+format, append([]any{filepath.Join(c.dir, "case.json")}, args...)...)
}

// expected reads the case's expected values into out.
func (c *caseFile) expected(out any) error {
	if len(c.Expected) == 0 {
		return c.bad(`"expected" is missing`)
	}
	if err := decode(c.Expected, out); err != nil {
		return c.bad(`"expected": %v`, err)
	}
	return nil
}

// tolerance is the first of the named tolerances that the case gives.
func (c *caseFile) tolerance(names ...string) (float64, error) {
	for _, name := range names {
		if v, ok := c.Tolerance[name].(float64); ok && v >= 0 {
			return v, nil
		}
	}
	return 0, c.bad(`"tolerance" has no number %q`, names[0])
}

// path resolves a file that the case names; byDefault is its usual name.
func (c *caseFile) path(named, byDefault string) string {
	if named == "" {
		named = byDefault
	}
	return filepath.Join(c.dir, named)
}

// tensors is an open file of the case.
type tensors struct{ *safetensors.File }

func openTensors(path string) (*tensors, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	return &tensors{f}, nil
}

// shaped fails unless the tensor is there with this shape; a negative size
// matches any.
func (t *tensors) shaped(name string, shape ...int64) ([]int64, error) {
	info, ok := t.Info(name)
	if !ok {
		return nil, exitcode.Errorf(exitcode.BadData, "%s has no tensor %q", t.Path, name)
	}
	fits := func(a, b int64) int {
		if a == b || b < 0 {
			return 0
		}
		return 1
	}
	if len(info.Shape) != len(shape) || slices.CompareFunc(info.Shape, shape, fits) != 0 {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: tensor %q has the shape %v, expected is %v", t.Path, name, info.Shape, shape)
	}
	return info.Shape, nil
}

// has reports whether the file holds the tensor.
func (t *tensors) has(name string) bool {
	_, ok := t.Info(name)
	return ok
}

// matrix reads an integer tensor [.., rows, columns] from matrix number at on.
func (t *tensors) matrix(name string, at int, rows, columns int64) ([][]int32, error) {
	all, err := t.Int64(name)
	if err != nil {
		return nil, err
	}
	return cut(all, at, rows, columns, func(v int64) int32 { return int32(v) }), nil
}

// mask is matrix for numbers.
func (t *tensors) mask(name string, at int, rows, columns int64) ([][]float32, error) {
	all, err := t.Float32(name)
	if err != nil {
		return nil, err
	}
	return cut(all, at, rows, columns, func(v float32) float32 { return v }), nil
}

func cut[A, B any](all []A, at int, rows, columns int64, convert func(A) B) [][]B {
	out := make([][]B, rows)
	for r := range out {
		from := (int64(at)*rows + int64(r)) * columns
		for _, v := range all[from : from+columns] {
			out[r] = append(out[r], convert(v))
		}
	}
	return out
}
