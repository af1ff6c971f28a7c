package engine

import (
	"errors"
	"fmt"
	"math"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/model"
	"monotron/mpu/comm"
)

// mostFused bounds the workspace that cuDNN's attention gets by --attention-backend auto:
// without atomics its backward keeps a square of the sequence for each head.
const mostFused = 8 << 30

// Engine.Attention, as checkpoints keep it.
const (
	Flash = "flash"
	Fused = "fused"
)

// MicroShapes are the micro-batches that an engine will be given.
type MicroShapes struct {
	Batches   []int64 // samples of each, training's first
	Documents bool    // what a query sees ends at the borders of documents
}

// ChooseAttention does what --attention-backend asks and notes what was chosen, and why not
// the others. All ranks choose alike: each calls it.
func (e *Engine) ChooseAttention(coming MicroShapes, note func(format string, args ...any)) error {
	const own = "attention: monotron's flash kernels"
	backend := e.config.AttentionBackend
	// GPUs have flash kernels of our own; whether cuDNN's are taken is decided below.
	if e.device.IsGPU() {
		e.Attention = Flash
	}
	why := e.onlyOwn()
	switch {
	case !e.device.IsGPU() && (backend == "" || backend == "auto"):
	case !e.device.IsGPU():
		note("attention: device %s has a single implementation, which does not store scores; --attention-backend %s has an effect only with --device cuda", e.device.Name, backend)
	case why != "":
		if backend == "fused" {
			return exitcode.Errorf(exitcode.Usage, "--attention-backend fused: %s; or use --attention-backend auto or flash, which run monotron's kernels", why)
		}
		note("%s (flash), not cuDNN's (fused): %s", own, why)
	case backend == "flash":
		note("%s, as --attention-backend flash requests", own)
	case backend == "unfused" || backend == "local":
		note("%s: --attention-backend %s needs kernels that store all scores, and there are no such kernels", own, backend)
	// Asked for by name: an error where it cannot run. Otherwise chosen where it can.
	case backend == "fused":
		chosen, refusal, err := e.fuseAttention(coming, math.MaxInt64)
		if err != nil {
			return err
		}
		if refusal != nil {
			return exitcode.Errorf(exitcode.Usage, "--attention-backend fused: cuDNN's attention cannot run here: %w; use --attention-backend auto or flash, which run monotron's kernels", refusal)
		}
		note("attention: %s, as --attention-backend fused requests", chosen)
	default:
		chosen, refusal, err := e.fuseAttention(coming, mostFused)
		if err != nil {
			return err
		}
		if refusal != nil {
			note("%s (flash), not cuDNN's (fused): %v; unfused and local are not available", own, refusal)
		} else {
			note("attention: %s; --attention-backend flash chooses monotron's kernels; unfused and local are not available", chosen)
		}
	}
	return nil
}

// onlyOwn is why this run cannot have cuDNN's attention on any GPU; "": it may have it.
func (e *Engine) onlyOwn() string {
	switch {
	case !e.config.Layout.UncutSequences(): // partial results are needed
		return "cuDNN's attention needs complete sequences and returns no partial results in f32; with --context-parallel-size above 1 use --cp-comm-type a2a in all layers"
	case e.config.Leaves > 0: // another number of samples or heads may be another order
		return "with --layout-invariant every sum has the same order under all layouts, which cuDNN does not guarantee"
	}
	return ""
}

// fuseAttention prepares cuDNN's attention and describes it, where no rank refuses it: ranks
// that differ would make the numbers depend on the layout. Else all keep our kernels.
func (e *Engine) fuseAttention(coming MicroShapes, most int64) (chosen string, refusal, err error) {
	mine := attentionTrial{outcome: layerless}
	if e.hasLayers() {
		mine = e.tryFused(coming, most)
	}
	all, err := e.shareTrials(mine)
	if err != nil {
		return "", nil, err
	}
	if refusal = refusalOf(all); refusal != nil {
		e.device.OwnAttention()
		return "", refusal, nil
	}
	e.Attention = Fused
	chosen = "cuDNN's (fused), whose results repeat bit for bit and are within "
	for rank, t := range all {
		switch {
		case t.outcome != passed:
		case len(all) == 1:
			return chosen + t.text, nil, nil
		default:
			return fmt.Sprintf("%s%s (rank %d; none of the %d ranks refuses cuDNN)", chosen, t.text, rank, len(all)), nil, nil
		}
	}
	return "cuDNN's (fused), but no rank has a layer with attention", nil, nil
}

func (e *Engine) hasLayers() bool {
	for _, part := range e.parts {
		if len(part.Layers) > 0 {
			return true
		}
	}
	return false
}

// tryFused tries cuDNN's attention for each kind of micro-batch; the first one's trial is
// reported.
func (e *Engine) tryFused(coming MicroShapes, most int64) attentionTrial {
	c, first := &e.config, 0.0
	for i, batch := range coming.Batches {
		shape := model.AttentionRun{DType: e.DType, Batch: batch, Seq: int64(c.SeqLength), Workspace: most, Documents: coming.Documents}
		off, err := model.FuseAttention(e.device, &c.Model, parallelOf(e.rank, c), shape)
		if err != nil {
			return attentionTrial{refused, err.Error()}
		}
		if i == 0 {
			first = off
		}
	}
	return attentionTrial{passed, fmt.Sprintf("%.2g %% of those of monotron's kernels in a trial, with a workspace of %s", 100*first, device.Size(e.device.FusedWorkspace()))}
}

// attentionTrial is what cuDNN's attention came to on a rank.
type attentionTrial struct {
	outcome trialOutcome
	text    string // why it is refused, or how it did
}

type trialOutcome byte

const (
	layerless trialOutcome = 'l' // nothing to try: a stage of embedding or head alone
	passed    trialOutcome = 'p'
	refused   trialOutcome = 'r'
)

func (t attentionTrial) word() string { return string(rune(t.outcome)) + t.text }

func trialOf(word string) attentionTrial { return attentionTrial{trialOutcome(word[0]), word[1:]} }

// shareTrials are all ranks' trials, by rank.
func (e *Engine) shareTrials(mine attentionTrial) ([]attentionTrial, error) {
	words, err := comm.Words(e.rank.World(), e.device, mine.word())
	if err != nil {
		return nil, err
	}
	all := make([]attentionTrial, len(words))
	for rank, word := range words {
		all[rank] = trialOf(word)
	}
	return all, nil
}

// refusalOf is why not all ranks can have it: the reason that all give, or the first one's
// with its rank; nil where none refuses.
func refusalOf(all []attentionTrial) error {
	first, refusals, others := -1, 0, 0
	for rank, t := range all {
		switch {
		case t.outcome == layerless:
		case t.outcome == passed:
			others++
		case first < 0:
			first, refusals = rank, 1
		default:
			refusals++
			if t.text != all[first].text {
				others++
			}
		}
	}
	switch {
	case first < 0:
		return nil
	case others == 0:
		return errors.New(all[first].text)
	}
	return fmt.Errorf("rank %d refuses cuDNN (%d of %d ranks refuse it, and all ranks must use the same kernels): %s", first, refusals, len(all), all[first].text)
}
