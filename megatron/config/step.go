package config

import (
	"monotron/csrc/device"
	"monotron/megatron/model"
	"monotron/megatron/optimizer"
	"monotron/megatron/spec"
)

// Precisions of parameters and activations. Main parameters, main gradients,
// moments and the loss are f32 in all of them.
const (
	F32  = "f32"
	BF16 = "bf16"
	FP16 = "fp16"
)

// Step is the configuration of a step, without its batch.
type Step struct {
	Model     spec.Model
	Layout    Layout
	Recompute model.Recompute
	Optimizer optimizer.Config

	Precision        string // F32, BF16, FP16
	FP8              FP8    // of the operands of linear layers' products
	AttentionBackend string // auto, flash, fused, unfused, local
	SeqLength        int
	Seed             int64

	DecayExpertBiases bool // weight decay also on the biases of experts

	OptimizerCPUOffload      bool     // the optimizer's state in the host's memory; on a device whose memory that is: as ever
	OptimizerOffloadFraction float64  // of it, 0 to 1
	OffloadFolder            string   // folder of the files of offloaded tensors; "": none are in files
	FreezeParameters         []string // shell patterns of names: not trained
	PackedBase               bool     // what is not trained lies in memory as NF4 (--quantize-base), and comes where it is used

	CheckForNaN           bool // a loss or gradient that is not finite is an error
	CalculatePerTokenLoss bool // gradients are weighted by tokens, not by micro-batches
	RouterLossByLearned   bool // then routers' own losses are weighted by the tokens that the loss counts, not by all

	Leaves         int // of every axis that a layout may cut, whose sums are trees of these (--layout-invariant); 0: the layout changes bits
	SequenceLeaves int // of the positions of a sample in weight gradients of column- and row-parallel layers and of the output layer, at most Leaves
	LeafSamples    int // of a global batch, at most: how many leaves are added to a gradient

	LogitDivisor float64 // logits are divided by it; 0: they are not

	AsGenerated bool // forward, a token has the bits that generation computes it with, whatever batch it is in

	LossMeanPerContextRank bool // the mean of a micro-batch's loss is of each context-parallel rank's tokens, not of all
}

// DType is that of parameters and activations.
func (c *Step) DType() device.DType {
	switch c.Precision {
	case BF16:
		return device.BF16
	case FP16:
		return device.F16
	}
	return device.F32
}
