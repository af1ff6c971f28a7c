package modelcase

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"monotron/csrc/device/activations"
	"monotron/megatron/arguments"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/config"
	"monotron/megatron/training"
)

// plainConfig is a model in plain names.
type plainConfig struct {
	NumLayers       int     `json:"num_layers"`
	HiddenSize      int     `json:"hidden_size"`
	Heads           int     `json:"num_attention_heads"`
	Groups          int     `json:"num_query_groups"`
	KVChannels      int     `json:"kv_channels"`
	FFN             int     `json:"ffn_hidden_size"`
	Norm            string  `json:"norm"`
	Epsilon         float64 `json:"norm_epsilon"`
	Activation      string  `json:"activation"`
	Position        string  `json:"position_embedding"`
	RotaryBase      float64 `json:"rotary_base"`
	Bias            string  `json:"bias"`
	Tied            bool    `json:"tied_embeddings"`
	EmbedNorm       bool    `json:"embedding_norm"`
	VocabSize       int     `json:"vocab_size"`
	PaddedVocabSize int     `json:"padded_vocab_size"`
}

// UnmarshalJSON leaves out what further names say: they describe a model that flags or
// config.json give in full.
func (m *plainConfig) UnmarshalJSON(raw []byte) error {
	type names plainConfig
	return json.Unmarshal(raw, (*names)(m))
}

// trainingNumbers is the case's "training".
type trainingNumbers struct {
	Iters       int     `json:"train_iters"`
	LR          float64 `json:"lr"`
	MinLR       float64 `json:"min_lr"`
	DecayStyle  string  `json:"lr_decay_style"`
	DecayIters  int     `json:"lr_decay_iters"`
	WarmupIters int     `json:"lr_warmup_iters"`
	WarmupInit  float64 `json:"lr_warmup_init"`
	WeightDecay float64 `json:"weight_decay"`
	Beta1       float64 `json:"adam_beta1"`
	Beta2       float64 `json:"adam_beta2"`
	Epsilon     float64 `json:"adam_eps"`
	ClipGrad    float64 `json:"clip_grad"`
	GlobalBatch int     `json:"global_batch_size"`
	MicroBatch  int     `json:"micro_batch_size"`
	SeqLength   int     `json:"seq_length"`

	NoDecay json.RawMessage `json:"no_weight_decay"` // names; which they are is a rule of the optimizer
}

// command line words for which the plain names stand.
var (
	positionFlags   = map[string]string{"learned": "learned_absolute", "rope (half rotation)": "rope", "alibi": "alibi"}
	activationFlags = map[string]string{"gelu (tanh)": "", "gelu (erf)": "--no-bias-gelu-fusion"} // others by name
	biasFlags       = map[string]string{"all linear layers": "", "none": "--disable-bias-linear", "q, k, v only": "--disable-bias-linear --add-qkv-bias"}
)

// commandLine is the case's flags: Megatron's where it gives them, else written
// from the plain names (Megatron has no ALiBi).
func (c *caseFile) commandLine(positions int) ([]string, error) {
	if c.WithTraining != "" {
		return words(c.WithTraining), nil
	}
	if c.MegatronFlags != "" {
		return words(c.MegatronFlags), nil
	}
	m := c.Plain
	if _, known := positionFlags[positionOf(m)]; !known { // transformers' words, or none: its config.json says all
		return c.familyLine()
	}
	// Plain names to flags.
	position, ok1 := positionFlags[m.Position]
	activation, ok2 := activationFlags[m.Activation]
	if a, err := activations.Of(m.Activation); err == nil && a.Row().Flag != "" {
		activation, ok2 = "--"+a.Row().Flag, true
	}
	bias, ok3 := biasFlags[m.Bias]
	if !ok1 || !ok2 || !ok3 {
		return nil, c.bad("unknown position embedding %q, activation %q or bias %q", m.Position, m.Activation, m.Bias)
	}
	line := fmt.Sprintf("--num-layers %d --hidden-size %d --num-attention-heads %d --ffn-hidden-size %d --normalization %s --norm-epsilon %g "+
		"--position-embedding-type %s %s %s --vocab-size %d --padded-vocab-size %d --hidden-dropout 0 --attention-dropout 0 --tokenizer-type NullTokenizer",
		m.NumLayers, m.HiddenSize, m.Heads, m.FFN, m.Norm, m.Epsilon, position, activation, bias, m.VocabSize, m.PaddedVocabSize)
	// What only some models have.
	line += when(m.Groups != m.Heads, " --group-query-attention --num-query-groups %d", m.Groups)
	line += when(m.KVChannels != 0, " --kv-channels %d", m.KVChannels)
	line += when(m.RotaryBase != 0, " --rotary-base %d", int(m.RotaryBase))
	line += when(!m.Tied, " --untie-embeddings-and-output-weights")
	line += when(m.EmbedNorm, " --embed-layernorm")
	if t := c.Training; t != nil {
		positions = t.SeqLength
		line += t.flags()
	}
	line += fmt.Sprintf(" --seq-length %d --max-position-embeddings %d", positions, positions)
	return words(line), nil
}

// positionOf is what a case calls its positions; "" without plain names.
func positionOf(m *plainConfig) string {
	if m == nil {
		return ""
	}
	return m.Position
}

// familyLine is the flags of a case whose config.json says more than the plain names here.
func (c *caseFile) familyLine() ([]string, error) {
	config, err := hf.ReadConfig(c.path("", hf.ConfigName))
	if err != nil {
		return nil, err
	}
	line := []string{"--hidden-dropout", "0", "--attention-dropout", "0", "--tokenizer-type", "NullTokenizer",
		"--vocab-size", fmt.Sprint(config.Model.VocabSize), "--padded-vocab-size", fmt.Sprint(config.Model.PaddedVocabSize)}
	m := *config.Model
	m.Context, m.MaxPositions = config.MaxPositions, 0
	flags := training.ModelFlags(&m)
	if m.Experts != nil && m.Experts.ExpertBias {
		flags["moe-router-bias-update-rate"] = []string{"0"} // transformers never moves the biases
	}
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		if line = append(line, "--"+name); !slices.Equal(flags[name], []string{"true"}) {
			line = append(line, flags[name]...)
		}
	}
	if t := c.Training; t != nil {
		line = append(line, append(words(t.flags()), "--seq-length", fmt.Sprint(t.SeqLength))...)
		// GPT-OSS: the name gate_up_proj_bias does not end so.
		if m.Experts != nil && m.LinearBias && strings.Contains(string(t.NoDecay), "names ending in .bias") {
			line = append(line, "--decay-expert-biases")
		}
	}
	return line, nil
}

func (t *trainingNumbers) flags() string {
	return fmt.Sprintf(" --train-iters %d --lr %g --min-lr %g --lr-decay-style %s --lr-decay-iters %d --lr-warmup-iters %d --lr-warmup-init %g "+
		"--weight-decay %g --adam-beta1 %g --adam-beta2 %g --adam-eps %g --clip-grad %g --global-batch-size %d --micro-batch-size %d",
		t.Iters, t.LR, t.MinLR, t.DecayStyle, t.DecayIters, t.WarmupIters, t.WarmupInit,
		t.WeightDecay, t.Beta1, t.Beta2, t.Epsilon, t.ClipGrad, t.GlobalBatch, t.MicroBatch)
}

func when(on bool, format string, args ...any) string {
	if !on {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// parse reads the flags of a case, which need not be a complete command line.
func (c *caseFile) parse(line []string) (config.Run, error) {
	config, _, err := arguments.ParseWith(arguments.Options{Partial: true, Experts: true}, line)
	if err != nil {
		return config, fmt.Errorf("%s: the case's flags: %w", c.Name, err)
	}
	return config, c.small(&config)
}

// small refuses sizes that no case has before anything is allocated by them.
func (c *caseFile) small(config *config.Run) error {
	const most, mostParameters = 1 << 16, 1 << 28
	m := &config.Model
	for _, n := range []int{m.NumLayers * 64, m.HiddenSize, m.FFNHiddenSize, m.NumAttentionHeads, m.NumQueryGroups, m.KVChannels,
		m.PaddedVocabSize / 16, m.MaxPositions, config.SeqLength, config.MicroBatchSize, config.GlobalBatchSize} {
		if n > most {
			return c.bad("the model or batch is too large for a case")
		}
	}
	if n := m.Parameters(); n > mostParameters {
		return c.bad("%d parameters are too many for a case", n)
	}
	return nil
}

// words splits a command line at spaces; double quotes hold words together.
func words(line string) []string {
	var out []string
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}
	return out
}

// positionsOf is how many positions the model knows: of the Hugging Face config.
func positionsOf(c *caseFile) int {
	var config struct {
		GPT2  int `json:"n_positions"`
		Llama int `json:"max_position_embeddings"`
	}
	if json.Unmarshal(c.Config, &config) != nil {
		return 0
	}
	return max(config.GPT2, config.Llama)
}
