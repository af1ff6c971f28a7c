package convert

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"monotron/internal/argv"
	"monotron/internal/exitcode"
	"monotron/internal/store"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/gguf"
	"monotron/megatron/checkpoint/hf"
	"monotron/tools/internal/command"
)

func allFlags() []cli.Flag {
	return []cli.Flag{
		// What is read, written and checked.
		&cli.StringFlag{Name: "input", Usage: "read this checkpoint: a save folder, one iteration's folder, a model's folder, a file, or the s3:// URL of a run's --save"},
		&cli.StringFlag{Name: "to", Usage: "write this format: " + argv.Or(all.Names()...)},
		&cli.StringFlag{Name: "output", Usage: "write to this path, which must not exist yet, except that an iteration can be added to an existing save folder"},
		&cli.StringFlag{Name: "from", Usage: "set the format of the input, as for --to (default: detected from its content)"},
		command.Between(-1, command.Counts, &cli.Int64Flag{Name: "ckpt-step", Value: -1, DefaultText: "the latest", Usage: "read this iteration of a save folder"}),
		&cli.StringFlag{Name: "dtype", Usage: "write the weights in this data type: f32, bf16 or fp16 (default: that of the input); with bf16 or fp16 and optimizer state, the f32 values are kept as main parameters"},
		&cli.BoolFlag{Name: "weights-only", Usage: "leave out the optimizer, the schedule and Megatron's random states"},
		&cli.BoolFlag{Name: "allow-nan", Usage: "accept weights that are NaN or infinite"},
		&cli.BoolFlag{Name: "verify", Usage: "read the output back, and exit with code 1 unless every weight is equal bit for bit and a prompt gives the same logits"},
		&cli.StringSliceFlag{Name: "verify-ids", Usage: "use these token ids as the prompt for --verify (default: some ids of the vocabulary)"},

		// Layout and names of Megatron's checkpoints.
		command.Between(1, 1<<16, &cli.IntFlag{Name: "tensor-model-parallel-size", Value: 1, Usage: "Megatron formats: write for N tensor-parallel ranks"}),
		command.Between(1, 1<<16, &cli.IntFlag{Name: "pipeline-model-parallel-size", Value: 1, Usage: "Megatron formats: write for N pipeline stages"}),
		command.Between(1, 1<<16, &cli.IntFlag{Name: "num-virtual-stages-per-pipeline-rank", Value: 1, Usage: "Megatron formats: write N model chunks per stage (interleaved schedule)"}),
		command.Between(1, 1<<16, &cli.IntFlag{Name: "expert-model-parallel-size", Value: 1, Usage: "Megatron formats: share the experts among N ranks"}),
		command.Between(0, 1<<16, &cli.IntFlag{Name: "expert-tensor-parallel-size", Usage: "Megatron formats: share each expert among N ranks (0 uses --tensor-model-parallel-size)"}),
		command.Between(1, 1<<16, &cli.IntFlag{Name: "data-parallel-size", Value: 1, Usage: "Megatron formats, with --use-distributed-optimizer: share the optimizer among N ranks"}),
		&cli.BoolFlag{Name: "use-distributed-optimizer", Usage: "Megatron formats: write the optimizer as Megatron's distributed optimizer does"},
		command.Between(1, command.Sizes, &cli.IntFlag{Name: "make-vocab-size-divisible-by", Value: 128, DefaultText: "the input run's value, else 128", Usage: "Megatron formats: pad the vocabulary to a multiple of this number times the number of tensor-parallel ranks"}),
		&cli.StringFlag{Name: "transformer-impl", DefaultText: "the input run's value, else local", Usage: "Megatron formats: write for a run with this --transformer-impl: local or transformer_engine (docs/checkpoints.md)"},
		&cli.BoolFlag{Name: "moe-grouped-gemm", DefaultText: "the input run's value, else off", Usage: "Megatron formats, with --transformer-impl transformer_engine: name experts as a run with this flag does"},
		&cli.BoolFlag{Name: "release", Usage: "Megatron formats: write a folder named release, which has no iteration number"},

		// Adapters.
		&cli.StringFlag{Name: "adapter", Usage: "add the adapter in this PEFT folder to the weights: W becomes W + scale*B*A, computed in f32 and rounded once to the type of W"},
		&cli.BoolFlag{Name: "adapter-only", Usage: "gguf, with --adapter: write only the adapter, for llama.cpp's --lora or Ollama's ADAPTER with the model of --input (default: the adapter is merged)"},
		&cli.StringFlag{Name: "adapter-over", Usage: "`NAME`: with --adapter: name the quantization that the base weights had when the adapter was trained: nf4 (give --double-quant if its scales were also quantized) or int8; convert then prints how much this quantization changes the weights, relative to the change by the adapter (default: none)"},
		&cli.BoolFlag{Name: "merge-rounded", Usage: "with --adapter-over: merge the adapter into the rounded weights instead of those of the input"},
		&cli.StringFlag{Name: "split-adapter", Usage: "write the adapter of the input to this new folder, in PEFT's format; the output then has the weights without the adapter (default: the adapter is merged)"},

		// Hugging Face and GGUF.
		&cli.StringFlag{Name: "family", Usage: "hf, gguf: choose the architecture, if several can represent the model: " + hf.Known},
		&cli.StringFlag{Name: "tokenizer", Usage: "`DIR`: hf, gguf: read the tokenizer files from this folder (default: the input, if it is a Hugging Face folder)"},
		&cli.StringFlag{Name: "type", DefaultText: "that of most weights of the input", Usage: "gguf: write the weights in this type: " + argv.Or(gguf.Kinds...)},
		&cli.BoolFlag{Name: "mtp", Usage: "also read the layers of multi-token prediction of a Hugging Face folder, if it has any (docs/mtp.md)"},
		&cli.StringFlag{Name: "quantize", Usage: "hf: quantize the weights to this format: nf4 or int8 (linear layers, as in bitsandbytes), or mxfp4 (experts of gpt_oss, as in OpenAI's files)"},
		&cli.BoolFlag{Name: "double-quant", Usage: "with --quantize nf4 or --adapter-over nf4: also quantize the scales of blocks"},
		&cli.BoolFlag{Name: "ollama", Usage: "gguf: also write a Modelfile into the folder of the output, for ollama create"},
		&cli.StringFlag{Name: "max-shard-size", Value: "5GB", Usage: "hf: limit a shard of the weights to `SIZE`, as in 500MB or 2GiB"},
	}
}

// options are the flags, checked.
type options struct {
	input, output string
	adapter       string // PEFT folder to merge; "": none
	adapterOnly   bool   // it is written alone
	over          string // quantisation of the weights that it was trained over; "": none
	intoRounded   bool   // it is merged into these
	double        bool   // their scales are quantised as well
	split         string // folder for the input's own adapter; "": it is merged
	from, to      checkpoint.Format
	step          int64
	dtype         string // of weights, as safetensors spells it; "": as they are
	weightsOnly   bool
	zeroed        bool   // biases of zeros were added
	plain         string // how the weights of norms were changed; "": they were not
	mtp           bool   // --mtp
	aheadLeft     int    // layers of multi-token prediction that the output format has not
	modelfile     string // to be written for Ollama; "": none
	allowNaN      bool
	verify        bool
	prompt        []int32 // nil: made up
	write         checkpoint.WriteOptions
}

// dtypes by the command line's names.
var dtypes = map[string]string{"": "", "f32": "F32", "fp32": "F32", "float32": "F32", "bf16": "BF16", "bfloat16": "BF16", "fp16": "F16", "f16": "F16", "float16": "F16"}

func readOptions(c *cli.Context) (*options, error) {
	o := &options{input: c.String("input"), adapter: c.String("adapter"), output: c.String("output"), from: checkpoint.FormatOf(c.String("from")), to: checkpoint.FormatOf(c.String("to")),
		step: c.Int64("ckpt-step"), weightsOnly: c.Bool("weights-only"), allowNaN: c.Bool("allow-nan"), verify: c.Bool("verify"), mtp: c.Bool("mtp")}
	// What must be given, formats, types.
	for _, name := range []string{"input", "to", "output"} {
		if c.String(name) == "" {
			return nil, exitcode.Errorf(exitcode.Usage, "--%s is missing; monotron convert --help shows examples", name)
		}
	}
	for name, f := range map[string]checkpoint.Format{"to": o.to, "from": o.from} {
		if f != "" && !slices.Contains(all.Known(), f) {
			return nil, argv.WrongChoice(name, string(f), all.Names()...)
		}
	}
	if store.IsURL(o.output) {
		return nil, exitcode.Errorf(exitcode.Usage, "--output %s is not a path on disk; write to disk, and copy the output to the bucket afterwards", o.output)
	}
	var ok bool
	if o.dtype, ok = dtypes[strings.ToLower(c.String("dtype"))]; !ok {
		return nil, argv.WrongChoice("dtype", c.String("dtype"), "f32", "bf16", "fp16")
	}
	// What belongs to the output, to an adapter, to the comparison.
	if err := o.readWriting(c); err != nil {
		return nil, err
	}
	if err := o.readAdapter(c); err != nil {
		return nil, err
	}
	return o, o.readPrompt(c)
}

// readAdapter reads what becomes of adapters.
func (o *options) readAdapter(c *cli.Context) error {
	o.over, o.intoRounded, o.double, o.split = c.String("adapter-over"), c.Bool("merge-rounded"), c.Bool("double-quant"), c.String("split-adapter")
	o.adapterOnly = c.Bool("adapter-only")
	switch {
	case o.adapterOnly && (o.adapter == "" || o.to != checkpoint.GGUF):
		return exitcode.Errorf(exitcode.Usage, "--adapter-only needs --adapter and --to gguf")
	case o.adapterOnly && (o.over != "" || o.modelfile != "" || o.verify):
		return exitcode.Errorf(exitcode.Usage, "--adapter-only cannot be combined with --adapter-over, --ollama or --verify; leave these out")
	case o.over != "" && o.over != hf.NF4 && o.over != hf.Int8:
		return argv.WrongChoice("adapter-over", o.over, hf.NF4, hf.Int8)
	case o.over != "" && o.adapter == "":
		return exitcode.Errorf(exitcode.Usage, "--adapter-over needs --adapter")
	case o.intoRounded && o.over == "":
		return exitcode.Errorf(exitcode.Usage, "--merge-rounded needs --adapter-over nf4")
	case o.split != "" && filepath.Clean(o.split) == filepath.Clean(o.output):
		return exitcode.Errorf(exitcode.Usage, "--split-adapter and --output are both %s; give two different paths", o.split)
	case o.split != "" && exists(o.split):
		return exitcode.Errorf(exitcode.Usage, "--split-adapter: %s already exists; choose another folder", o.split)
	case o.split != "" && o.adapter != "":
		return exitcode.Errorf(exitcode.Usage, "--split-adapter writes the adapter of the input, so it cannot be combined with --adapter; leave one out")
	}
	return nil
}

// exists reports whether there is something at path.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func (o *options) readWriting(c *cli.Context) error {
	// Megatron's formats alone have a layout.
	for _, name := range []string{"tensor-model-parallel-size", "pipeline-model-parallel-size", "num-virtual-stages-per-pipeline-rank",
		"expert-model-parallel-size", "data-parallel-size", "make-vocab-size-divisible-by", "transformer-impl", "moe-grouped-gemm"} {
		if c.IsSet(name) && o.to != checkpoint.MegatronTorch && o.to != checkpoint.MegatronTorchDist {
			return exitcode.Errorf(exitcode.Usage, "--%s needs --to torch or torch_dist, not %s", name, o.to)
		}
	}
	for _, name := range []string{"family", "tokenizer"} {
		if c.IsSet(name) && o.to != checkpoint.HF && o.to != checkpoint.GGUF {
			return exitcode.Errorf(exitcode.Usage, "--%s needs --to hf or gguf, not %s", name, o.to)
		}
	}
	if family := c.String("family"); family != "" {
		if err := hf.CheckFamily(family); err != nil {
			return err
		}
	}
	if err := checkTokenizer(c.String("tokenizer")); err != nil {
		return err
	}
	o.write = checkpoint.WriteOptions{Family: c.String("family"), Tokenizer: c.String("tokenizer"), Release: c.Bool("release"),
		Layout: checkpoint.Layout{TP: c.Int("tensor-model-parallel-size"), PP: c.Int("pipeline-model-parallel-size"), VP: c.Int("num-virtual-stages-per-pipeline-rank"),
			EP: c.Int("expert-model-parallel-size"), ETP: c.Int("expert-tensor-parallel-size"), DP: c.Int("data-parallel-size"),
			DistributedOptimizer: c.Bool("use-distributed-optimizer")}}
	if o.write.TransformerImpl = c.String("transformer-impl"); !slices.Contains([]string{"", "local", "transformer_engine"}, o.write.TransformerImpl) {
		return argv.WrongChoice("transformer-impl", o.write.TransformerImpl, "local", "transformer_engine")
	}
	o.write.GroupedExperts = c.Bool("moe-grouped-gemm")
	if err := o.readType(c); err != nil {
		return err
	}
	if err := o.readQuantize(c); err != nil {
		return err
	}
	if c.IsSet("make-vocab-size-divisible-by") {
		o.write.VocabDivisor = c.Int("make-vocab-size-divisible-by")
	}
	var err error
	o.write.ShardSize, err = bytesOf(c.String("max-shard-size"))
	return err
}

// checkTokenizer refuses a --tokenizer that is missing or a file.
func checkTokenizer(dir string) error {
	if dir == "" {
		return nil
	}
	st, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return exitcode.Errorf(exitcode.NoInput, "--tokenizer %s: the folder does not exist", dir)
	case err != nil:
		return exitcode.Errorf(exitcode.IO, "--tokenizer %s: %w", dir, err)
	case !st.IsDir():
		return exitcode.Errorf(exitcode.Usage, "--tokenizer %s is a file; give its folder, %s", dir, filepath.Dir(dir))
	}
	return nil
}

// readType reads how GGUF stores weights.
func (o *options) readType(c *cli.Context) error {
	o.write.Quantization = strings.ToLower(c.String("type"))
	switch {
	case c.IsSet("type") && o.to != checkpoint.GGUF:
		return exitcode.Errorf(exitcode.Usage, "--type needs --to gguf; use --dtype for %s", o.to)
	case c.IsSet("type") && !gguf.Known(o.write.Quantization):
		return argv.WrongChoice("type", c.String("type"), gguf.Kinds...)
	}
	if o.verify && o.write.Quantization == "q8_0" {
		return exitcode.Errorf(exitcode.Usage, "--verify cannot be combined with --type q8_0, which rounds weights, because --verify compares bits; leave one out")
	}
	if !c.Bool("ollama") {
		return nil
	}
	if o.to != checkpoint.GGUF {
		return exitcode.Errorf(exitcode.Usage, "--ollama needs --to gguf")
	}
	o.modelfile = filepath.Join(filepath.Dir(o.output), gguf.ModelfileName)
	if exists(o.modelfile) {
		return exitcode.Errorf(exitcode.Usage, "%s already exists; choose another folder for the output", o.modelfile)
	}
	return nil
}

// readQuantize reads how Hugging Face's files store weights.
func (o *options) readQuantize(c *cli.Context) error {
	kind := strings.ToLower(c.String("quantize"))
	switch {
	case kind == "" && c.Bool("double-quant") && c.String("adapter-over") == "":
		return exitcode.Errorf(exitcode.Usage, "--double-quant needs --quantize nf4 or --adapter-over nf4")
	case kind == "":
		return nil
	case kind != hf.NF4 && kind != hf.Int8 && kind != hf.MXFP4:
		return argv.WrongChoice("quantize", c.String("quantize"), hf.NF4, hf.Int8, hf.MXFP4)
	case kind != hf.NF4 && c.Bool("double-quant") && c.String("adapter-over") != hf.NF4:
		return exitcode.Errorf(exitcode.Usage, "--double-quant needs --quantize nf4, whose blocks have scales; give both, or leave --double-quant out")
	case o.to != checkpoint.HF:
		return exitcode.Errorf(exitcode.Usage, "--quantize needs --to hf; use --type q8_0 for gguf")
	case o.verify:
		return exitcode.Errorf(exitcode.Usage, "--verify cannot be combined with --quantize, which rounds weights, because --verify compares bits; leave one out")
	}
	o.write.Quantization, o.write.DoubleQuant = kind, c.Bool("double-quant")
	return nil
}

func (o *options) readPrompt(c *cli.Context) error {
	if c.IsSet("verify-ids") && !o.verify {
		return exitcode.Errorf(exitcode.Usage, "--verify-ids is the prompt of --verify; also give --verify, or leave --verify-ids out")
	}
	for _, word := range strings.FieldsFunc(strings.Join(c.StringSlice("verify-ids"), " "), func(r rune) bool { return r == ' ' || r == ',' }) {
		id, err := strconv.ParseInt(word, 10, 32)
		if err != nil || id < 0 {
			return exitcode.Errorf(exitcode.Usage, "--verify-ids: %q is not a token id", word)
		}
		o.prompt = append(o.prompt, int32(id))
	}
	return nil
}

// units of sizes; longer names first.
var units = []struct {
	name  string
	bytes float64
}{{"KIB", 1 << 10}, {"MIB", 1 << 20}, {"GIB", 1 << 30}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1}}

// bytesOf reads a size such as 500MB, 2GiB or 1000.
func bytesOf(text string) (int64, error) {
	upper := strings.ToUpper(strings.TrimSpace(text))
	for _, u := range units {
		digits, ok := strings.CutSuffix(upper, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
		if err != nil || !(n*u.bytes >= 1) || n*u.bytes > math.MaxInt64/2 {
			break
		}
		return int64(n * u.bytes), nil
	}
	return 0, exitcode.Errorf(exitcode.Usage, "--max-shard-size must be a size, as in 500MB or 2GiB, not %q", text)
}
