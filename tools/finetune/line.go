package finetune

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/urfave/cli/v2"

	"monotron/dataset/sft"
	"monotron/internal/argv"
	"monotron/internal/exitcode"
	"monotron/megatron/arguments"
	"monotron/megatron/arguments/table"
	"monotron/megatron/checkpoint"
	"monotron/megatron/config"
	"monotron/megatron/preference"
	"monotron/megatron/training"
	"monotron/tokenizer"
)

// options are the flags, checked.
type options struct {
	model, data, evalData, output string
	epochs                        float64
	batch, micro, length, seed    int
	tokens                        int // of a batch; 0: batch says how many sequences it has
	packing, template, method     string
	rate, alpha, beta             float64
	rank                          int
	patience                      int      // evaluations; 0: none
	keepBest                      bool     // what is exported has the lowest validation loss
	others                        []string // of pretrain_gpt
}

func readOptions(c *cli.Context) (*options, error) {
	o := &options{model: c.String("model"), data: c.String("data"), evalData: c.String("eval-data"), output: c.String("output"), epochs: c.Float64("epochs"),
		batch: c.Int("batch-size"), micro: c.Int("micro-batch-size"), length: c.Int("seq-length"), seed: c.Int("seed"), packing: c.String("packing"),
		method: c.String("tuning"), beta: c.Float64("beta"), template: c.String("chat-template"), rate: c.Float64("lr"), alpha: c.Float64("lora-alpha"), rank: c.Int("lora-rank"), patience: c.Int("patience"), others: c.Args().Slice()}
	for _, name := range []string{"model", "data", "output"} {
		if c.String(name) == "" {
			return nil, exitcode.Errorf(exitcode.Usage, "--%s is missing; monotron finetune --help shows examples", name)
		}
	}
	if packings := []string{sft.PackBFD, sft.PackBFDSplit, sft.PackInOrder, sft.PackNone}; !slices.Contains(packings, o.packing) {
		return nil, argv.WrongChoice("packing", o.packing, packings...)
	}
	if err := o.refuseReplaced(); err != nil {
		return nil, err
	}
	if err := o.readKeep(c.String("keep")); err != nil {
		return nil, err
	}
	if err := o.readBatchTokens(c); err != nil {
		return nil, err
	}
	if o.micro > 0 && o.batch%o.micro != 0 {
		return nil, exitcode.Errorf(exitcode.Usage, "--batch-size %d is not a multiple of --micro-batch-size %d; use --batch-size %s", o.batch, o.micro, config.NearestMultiples(o.batch, o.micro))
	}
	// What is 0 is not given, so a 0 that is given is refused.
	if c.IsSet("lr") && o.rate == 0 {
		return nil, exitcode.Errorf(exitcode.Usage, "--lr 0 would train nothing; give a number above 0, or leave --lr out to use the usual rate")
	}
	if c.IsSet("beta") && o.beta == 0 {
		return nil, exitcode.Errorf(exitcode.Usage, "--beta 0 would ignore the preferences; give a number above 0, or leave --beta out to use the usual number")
	}
	// Rates that the methods are used with: adapters take ten times that of all weights, preferences a twentieth.
	if o.rate == 0 {
		if o.rate = 2e-4; o.rank == 0 {
			o.rate = 2e-5
		}
		if o.prefers() {
			o.rate /= 20
		}
	}
	if o.prefers() && !c.IsSet("packing") {
		o.packing = sft.PackNone
	}
	if c.IsSet("lora-alpha") && o.alpha == 0 {
		return nil, exitcode.Errorf(exitcode.Usage, "--lora-alpha 0 would train nothing; give a number above 0, or leave --lora-alpha out to use twice the rank")
	}
	if o.alpha == 0 {
		o.alpha = 2 * float64(o.rank)
	}
	return o, nil
}

// replaced are flags of pretrain_gpt with the flag of finetune that sets them. A run with another value would train on
// something else than what is recorded, or leave nothing to export.
var replaced = map[string]string{"load": "model", "save": "output", "finetune-data": "data", "finetune-eval-data": "eval-data"}

func (o *options) refuseReplaced() error {
	given, _, err := argv.Split(table.Arities(), o.others)
	if err != nil {
		return nil // the parser of the line says what is wrong
	}
	for _, g := range given {
		if f := table.Find(g.Name); f != nil && replaced[f.Name] != "" {
			return exitcode.Errorf(exitcode.Usage, "--%s is a flag of pretrain_gpt that finetune sets itself; give --%s instead", f.Name, replaced[f.Name])
		}
	}
	return nil
}

// parse reads the command line of pretrain_gpt with one step; base are the flags that do not set the batch. Unless a
// micro-batch is given, it is the largest up to four that divides the batch among the ranks.
func (o *options) parse(base []string) (config.Run, error) {
	read := func(batch ...string) (config.Run, error) {
		run, _, err := arguments.ParseWith(arguments.Options{Layouts: true, Experts: true, CheckpointValues: training.CheckpointFlags}, slices.Concat(base, batch, []string{"--train-iters", "1"}, o.others))
		return run, err
	}
	ranks := 1
	if run, err := read("--micro-batch-size", "1"); err == nil {
		ranks = run.Layout.Sizes().DP
	}
	// A batch of so many tokens has as many sequences as each rank can have alike.
	if o.tokens > 0 && o.batch >= ranks {
		o.batch -= o.batch % ranks
	}
	if o.micro == 0 && o.batch%ranks == 0 {
		o.micro = usualMicro(o.batch / ranks)
	}
	o.micro = max(1, o.micro)
	return read(o.batchFlags()...)
}

// usualMicro is the largest micro-batch up to four that divides the batch.
func usualMicro(batch int) int {
	for n := 4; n > 1; n-- {
		if batch%n == 0 {
			return n
		}
	}
	return 1
}

// shrink has a step use all samples once where there are fewer than --batch-size, so that an epoch reads each sample
// once, as TRL does. A step still has samples for each of the data-parallel ranks, all answers of a prompt, and the two
// that --tuning kto compares.
func (o *options) shrink(p *plan, run *config.Run) {
	ranks, unit := run.Layout.Sizes().DP, 1
	if run.Tuning.Samples() {
		unit = run.Tuning.Policy.Group
	}
	for n := unit; unit%ranks != 0; {
		unit += n
	}
	batch := p.samples - p.samples%unit
	given := run.GlobalBatchSize != o.batch || run.MicroBatchSize != o.micro // by flags of pretrain_gpt, which count
	if given || p.samples >= o.batch || batch < unit || batch < 2 && o.method == preference.KTO {
		return
	}
	p.asked, o.batch = o.batch, batch
	if each := batch / ranks; each%o.micro != 0 {
		o.micro = usualMicro(each)
	}
}

// readBatchTokens takes --batch-tokens: complete sequences, or pairs of them.
func (o *options) readBatchTokens(c *cli.Context) error {
	if o.tokens = c.Int("batch-tokens"); o.tokens == 0 {
		return nil
	}
	if c.IsSet("batch-size") {
		return exitcode.Errorf(exitcode.Usage, "--batch-size cannot be combined with --batch-tokens; give one")
	}
	length, err := o.sequence()
	if err != nil {
		return err
	}
	if loss := preference.Of(o.method, ""); loss != nil && loss.Paired() {
		length *= 2
	}
	if o.batch = o.tokens / length; o.batch == 0 {
		return exitcode.Errorf(exitcode.Usage, "--batch-tokens %d is less than the %d tokens of a sample; give more, or a smaller --seq-length", o.tokens, length)
	}
	return nil
}

// readKeep takes --keep, and checks what needs validation rows.
func (o *options) readKeep(keep string) error {
	o.keepBest = keep == "best" || keep == "" && o.evalData != ""
	switch {
	case keep != "" && keep != "best" && keep != "last":
		return argv.WrongChoice("keep", keep, "best", "last")
	case o.keepBest && o.evalData == "":
		return exitcode.Errorf(exitcode.Usage, "--keep best needs --eval-data, a file of rows")
	case o.patience > 0 && o.evalData == "":
		return exitcode.Errorf(exitcode.Usage, "--patience needs --eval-data, a file of rows")
	}
	return nil
}

// prefers reports whether the model learns from preferences or rewards.
func (o *options) prefers() bool { return o.method != config.TuneSupervised }

// plan is what the rows come to.
type plan struct {
	rows, samples, length, steps int
	what                         string // what samples are
	asked                        int    // the batch that --batch-size asks for, where there are fewer samples; 0: the batch is that
}

// again is how many samples the steps read once more than the epochs ask for.
func (p *plan) again(o *options) int {
	return p.steps*o.batch - int(math.Ceil(float64(p.samples)*o.epochs))
}

// tell says what will be trained, and where batches do not come out even.
func (p *plan) tell(o *options, say func(format string, args ...any)) {
	say("rows: %d, %s of %d tokens: %d, steps of %d %s: %d, epochs: %g\n", p.rows, p.what, p.length, p.samples, o.batch, p.what, p.steps, o.epochs)
	if p.asked > 0 {
		say("note: there are fewer %s than --batch-size %d, so a step uses %d\n", p.what, p.asked, o.batch)
	}
	if n := p.again(o); n > 0 {
		say("note: batches of %d do not divide the epochs evenly, so the last step reads %d %s once more\n", o.batch, n, p.what)
	}
}

// line is the command line of pretrain_gpt.
func (o *options) line() (line []string, p plan, err error) {
	// Flags that do not depend on the number of rows.
	if p.length, err = o.sequence(); err != nil {
		return nil, p, err
	}
	base := []string{"--load", o.model, "--save", o.folder(checkpoints), "--resume-from-save", "--finetune-data", o.data, "--tuning", o.method, "--finetune-packing", o.packing, "--seq-length", strconv.Itoa(p.length), "--seed", strconv.Itoa(o.seed),
		"--lr", fmt.Sprint(o.rate), "--min-lr", "0", "--lr-decay-style", "linear", "--weight-decay", "0", "--clip-grad", "1", "--log-interval", "1"}
	if o.template != "" {
		base = append(base, "--chat-template", o.template)
	}
	if o.beta > 0 {
		base = append(base, "--beta", fmt.Sprint(o.beta))
	}
	if o.rank > 0 {
		base = append(base, "--lora-rank", strconv.Itoa(o.rank), "--lora-alpha", fmt.Sprint(o.alpha))
	}
	// The rows, read as training will read them, say how many steps an epoch has.
	run, err := o.parse(base)
	if err != nil {
		return nil, p, err
	}
	if p, err = o.count(p.length, &run); err != nil {
		return nil, p, err
	}
	base = append(base, o.batchFlags()...)
	each := float64(p.samples) / float64(o.batch)
	p.steps = max(1, int(math.Ceil(each*o.epochs)))
	if warmup*float64(p.steps) >= 1 { // the first step of a warm-up has a rate of 0: of few steps it would be lost
		base = append(base, "--lr-warmup-fraction", fmt.Sprint(warmup))
	}
	base = append(base, "--train-iters", strconv.Itoa(p.steps), "--save-interval", strconv.Itoa(max(1, int(math.Ceil(each)))), "--keep-last", "2")
	if o.evalData != "" {
		base = append(base, "--finetune-eval-data", o.evalData, "--eval-interval", strconv.Itoa(max(1, int(math.Ceil(each)))), "--eval-at-start", "--early-stopping-patience", strconv.Itoa(o.patience))
	}
	if o.keepBest {
		base = append(base, "--keep-best")
	}
	return append(base, o.others...), p, nil
}

// batchFlags are the flags of pretrain_gpt that set the batch.
func (o *options) batchFlags() []string {
	return []string{"--micro-batch-size", strconv.Itoa(o.micro), "--global-batch-size", strconv.Itoa(o.batch)}
}

// warmup is the part of the steps in which the learning rate rises.
const warmup = 0.03

// usual is the length of sequences that nobody named.
const usual = 1024

// sequence is the length of sequences: what was asked for, or what the model knows, up to the usual.
func (o *options) sequence() (int, error) {
	flags, err := training.CheckpointFlags(o.model, -1)
	if err == nil && flags == nil {
		if _, err = checkpoint.Detect(o.model); err == nil {
			err = exitcode.Errorf(exitcode.NoInput, "no model is in that folder")
		}
	}
	if err != nil {
		return 0, fmt.Errorf("--model %s: %w", o.model, err)
	}
	if o.length > 0 {
		return o.length, nil
	}
	length := usual
	for _, name := range []string{"max-position-embeddings", "seq-length"} {
		if text := flags[name]; len(text) == 1 {
			if n, err := strconv.Atoi(text[0]); err == nil && n > 1 {
				length = min(length, n)
			}
		}
	}
	return length, nil
}

// count reads the rows as training will.
func (o *options) count(length int, run *config.Run) (p plan, err error) {
	p = plan{length: length, what: "sequences"}
	// The same tokenizer and settings as the run's.
	tok, err := tokenizer.FromConfig(run.Tokenizer)
	if err != nil {
		return p, err
	}
	settings, err := training.TuningConfig(run, tok)
	if err != nil {
		return p, err
	}
	// Rows of the kind that the method learns from.
	read := func(path string) (err error) {
		set, err := sft.New(path, tok, settings)
		if err == nil {
			p.samples, p.rows = int(set.Len()), set.Counts.Rows
		}
		return err
	}
	if loss := run.Tuning.Prefers(); loss != nil {
		if p.what = "answers"; loss.Paired() {
			p.what = "pairs of answers"
		}
		read = func(path string) (err error) {
			set, err := sft.NewPreferences(path, tok, settings)
			if err == nil {
				p.samples, p.rows = int(set.Len()), set.Counts.Rows
			}
			return err
		}
	}
	if run.Tuning.Samples() {
		p.what = "answers"
		read = func(path string) (err error) {
			set, err := sft.NewPrompts(path, tok, settings)
			if err == nil {
				p.samples, p.rows = int(set.Len())*run.Tuning.Policy.Group, set.Counts.Rows
			}
			return err
		}
	}
	// Both files, so that a bad row in either ends it now.
	if o.evalData != "" {
		if err := read(o.evalData); err != nil {
			return p, fmt.Errorf("--eval-data: %w", err)
		}
	}
	if err := read(o.data); err != nil {
		return p, fmt.Errorf("--data: %w", err)
	}
	o.shrink(&p, run)
	return p, nil
}
