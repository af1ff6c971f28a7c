package peft

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"monotron/internal/exitcode"
)

// Names of an adapter's files.
const (
	ConfigFile  = "adapter_config.json"
	WeightsFile = "adapter_model.safetensors"
)

// Biases are the values of bias: which of the base's are trained.
var Biases = []string{"none", "all", "lora_only"}

// AllLinear as the only target means every linear layer but the output layer.
const AllLinear = "all-linear"

// Config is the part of adapter_config.json that changes what an adapter is.
type Config struct {
	PeftType    string          `json:"peft_type"`
	TaskType    string          `json:"task_type"`
	Base        string          `json:"base_model_name_or_path"`
	R           int             `json:"r"`
	Alpha       float64         `json:"lora_alpha"`
	Dropout     float64         `json:"lora_dropout"`
	Targets     Names           `json:"target_modules"`
	Parameters  Names           `json:"target_parameters"`
	Saved       Names           `json:"modules_to_save"`
	Exclude     Names           `json:"exclude_modules"`
	Layers      Layers          `json:"layers_to_transform"`
	LayerNames  Names           `json:"layers_pattern"`
	Ranks       Patterns        `json:"rank_pattern"`
	Alphas      Patterns        `json:"alpha_pattern"`
	FanInFanOut bool            `json:"fan_in_fan_out"`
	RSLoRA      bool            `json:"use_rslora"`
	DoRA        bool            `json:"use_dora"`
	Bias        string          `json:"bias"`
	Inference   bool            `json:"inference_mode"`
	Init        json.RawMessage `json:"init_lora_weights"`
}

// Names is a list of names, or one pattern that a name must match from start to end.
type Names struct {
	Pattern string
	List    []string
}

// UnmarshalJSON reads a list, a text or null.
func (n *Names) UnmarshalJSON(raw []byte) error {
	if json.Unmarshal(raw, &n.List) == nil {
		return nil
	}
	return json.Unmarshal(raw, &n.Pattern)
}

// MarshalJSON writes what UnmarshalJSON reads.
func (n Names) MarshalJSON() ([]byte, error) {
	switch {
	case n.Pattern != "":
		return json.Marshal(n.Pattern)
	case n.List == nil:
		return []byte("null"), nil
	}
	return json.Marshal(n.List)
}

// Given reports whether anything is named.
func (n Names) Given() bool { return n.Pattern != "" || len(n.List) > 0 }

// Layers are numbers of layers; nil: all.
type Layers []int

// UnmarshalJSON reads a list, a number or null.
func (l *Layers) UnmarshalJSON(raw []byte) error {
	var one int
	if string(raw) == "null" {
		return nil
	}
	if json.Unmarshal(raw, &one) == nil {
		*l = Layers{one}
		return nil
	}
	return json.Unmarshal(raw, (*[]int)(l))
}

// Patterns are numbers by patterns of names, in the order of the file, which decides.
type Patterns []Pattern

// Pattern is a number for the modules whose names end in a match.
type Pattern struct {
	Name  string
	Value float64
}

// UnmarshalJSON reads an object in its order, or null.
func (p *Patterns) UnmarshalJSON(raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	first, err := d.Token()
	if err != nil || first == nil {
		return err
	}
	if first != json.Delim('{') {
		return fmt.Errorf("it must be an object of names and numbers")
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var value float64
		if err := d.Decode(&value); err != nil {
			return err
		}
		*p = append(*p, Pattern{name.(string), value})
	}
	return nil
}

// MarshalJSON writes an object.
func (p Patterns) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, one := range p {
		if i > 0 {
			out = append(out, ',')
		}
		name, err := json.Marshal(one.Name)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, name...), ':'), fmt.Sprint(one.Value)...)
	}
	return append(out, '}'), nil
}

// foreign are settings of other kinds of adapters: with any value but null, false or empty the file's
// numbers mean something else.
var foreign = []string{
	"alora_invocation_tokens", "arrow_config", "ensure_weight_tying", "kasa_config", "layer_replication", "lora_bias",
	"mica", "monteclora_config", "trainable_token_indices", "use_bdlora", "use_qalora", "velora_config",
}

// oneLine is a JSON value without the line breaks between its parts.
func oneLine(raw json.RawMessage) string {
	var out bytes.Buffer
	_ = json.Compact(&out, raw) // it was parsed before; an absent value stays empty
	return out.String()
}

// mostConfig is the largest configuration that is read, in bytes.
const mostConfig = 4 << 20

// ReadConfig reads an adapter's settings; what this program does not do is refused by its name.
func ReadConfig(dir string) (c Config, err error) {
	path := filepath.Join(dir, ConfigFile)
	raw, err := exitcode.ReadFile(path, mostConfig)
	if err != nil {
		if exitcode.CodeOf(err) == exitcode.NoInput {
			err = exitcode.Errorf(exitcode.NoInput, "%s has no %s; name a folder that PEFT or this program wrote", dir, ConfigFile)
		}
		return c, err
	}
	c.Alpha, c.R, c.Bias = 8, 8, "none" // PEFT's defaults
	bad := func(format string, args ...any) error {
		return exitcode.Errorf(exitcode.BadData, "%s: "+format, append([]any{path}, args...)...)
	}
	var fields map[string]json.RawMessage
	if err := exitcode.JSON(path, raw, &fields); err != nil {
		return c, err
	}
	if err := exitcode.JSON(path, raw, &c); err != nil {
		return c, err
	}
	for _, name := range []string{"r", "lora_alpha"} { // PEFT has defaults for what is absent, and fails on null
		if string(fields[name]) == "null" {
			return c, bad("%s is null; it must be a number", name)
		}
	}
	for _, name := range foreign {
		if value := oneLine(fields[name]); !slices.Contains([]string{"", "null", "false", "[]", "{}", `""`}, value) {
			return c, bad("%s is %.80s, which is not supported; train and load adapters without it", name, value)
		}
	}
	if init := strings.Trim(string(c.Init), `"`); !slices.Contains([]string{"", "null", "true", "false", "gaussian", "orthogonal", "eva"}, init) {
		return c, bad("init_lora_weights is %.40s, which changes the base model's weights; first convert the adapter to LoRA with PEFT", init)
	}
	switch {
	case c.PeftType != "LORA":
		return c, bad("peft_type is %.40q; only LORA is supported", c.PeftType)
	case c.R < 1 || c.R > 1<<16:
		return c, bad("r is %d; it must be from 1 to 65536", c.R)
	case math.Abs(c.Alpha) > math.MaxFloat32:
		return c, bad("lora_alpha is %g, which is too large for f32", c.Alpha)
	case c.Dropout < 0 || c.Dropout >= 1:
		return c, bad("lora_dropout is %g; it must be 0 or more and less than 1", c.Dropout)
	case !slices.Contains(Biases, c.Bias):
		return c, bad("bias is %.40q; it must be one of %s", c.Bias, strings.Join(Biases, ", "))
	case c.Saved.Pattern != "" || c.Parameters.Pattern != "":
		return c, bad("modules_to_save and target_parameters must be lists of names; one of them is a string")
	}
	return c, nil
}
