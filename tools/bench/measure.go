package bench

import (
	"context"
	"fmt"
	"runtime"

	"monotron/csrc/device"
	"monotron/internal/system"
	"monotron/mpu"
)

// result is what --json prints; times are of the median step, in seconds.
type result struct {
	Model          string  `json:"model"`
	MicroBatchSize int     `json:"micro_batch_size"`
	SeqLength      int     `json:"seq_length"`
	Precision      string  `json:"precision"`
	Dropout        float64 `json:"dropout"`
	Device         string  `json:"device"`
	Processor      string  `json:"processor"`
	Threads        int     `json:"threads"`
	Processors     int     `json:"cores"`

	// What `bench step` does not measure is absent from it.
	GEMM          []speed `json:"gemm,omitempty"`             // every product timed
	GEMMPeak      float64 `json:"gemm_peak_flops,omitempty"`  // of the run's precision: the best of its products, over seconds
	GEMMBurst     float64 `json:"gemm_burst_flops,omitempty"` // the fastest repetition of any
	GEMMPeakF32   float64 `json:"gemm_peak_flops_f32,omitempty"`
	GEMMPeakBF16  float64 `json:"gemm_peak_flops_bf16,omitempty"`
	CopyBandwidth float64 `json:"copy_bytes_per_second,omitempty"` // read and written
	// Instructions are multiply-adds in registers, for the run's precision; none where the device cannot be asked.
	Instructions      string  `json:"instructions,omitempty"`
	InstructionPeak   float64 `json:"instruction_peak_flops,omitempty"`           // of all threads
	InstructionThread float64 `json:"instruction_peak_flops_of_thread,omitempty"` // of one while the others rest

	TokensPerSecond float64 `json:"tokens_per_second"`
	FLOPsPerToken   float64 `json:"flops_per_token"` // Megatron's formula
	Fraction        float64 `json:"fraction_of_gemm_peak,omitempty"`
	OfBurst         float64 `json:"fraction_of_gemm_burst,omitempty"`
	OfInstructions  float64 `json:"fraction_of_instruction_peak,omitempty"`
	PeakMemory      int64   `json:"peak_memory_bytes,omitempty"` // of the process, resident
	ArenaPeak       int64   `json:"arena_peak_bytes"`
	Arena           memory  `json:"arena_peak_bytes_by_purpose"`
	Steps           int     `json:"steps"`
	StepSeconds     float64 `json:"step_seconds"`
	FastestStep     float64 `json:"fastest_step_seconds"`
	Phases          phases  `json:"phase_seconds"`
	Busy            float64 `json:"busy"` // processor time of this process over threads x wall time
	Loss            float64 `json:"loss"` // of the last step
	Cores           *cores  `json:"cores_shared,omitempty"`
	Graphs          string  `json:"cuda_graphs,omitempty"`
	Ops             []opSum `json:"ops"`

	onHost bool     // ops are done when they return; else phases are the host's alone
	watch  bool     // ops are asked for, where watching them takes steps of their own
	seen   *watcher // of the machine during the steps; may be nil
	warm   warmth   // of ops, from a step of their own
}

// speed is one product's.
type speed struct {
	DType   string  `json:"dtype"`
	Product string  `json:"product"`
	Burst   float64 `json:"flops_per_second"` // the fastest repetition
	// Sustained is over seconds; 0 of those that are far from the fastest.
	Sustained float64 `json:"sustained_flops_per_second,omitempty"`
	Library   bool    `json:"library,omitempty"` // by the library, where training uses other kernels
}

type phases struct {
	Data      float64 `json:"data"`
	Forward   float64 `json:"forward"` // with the head's gradients, which are made while logits exist
	Backward  float64 `json:"backward"`
	Optimizer float64 `json:"optimizer"`
	Other     float64 `json:"other"`
}

// memory is bytes by purpose.
type memory map[string]int64

// refSide is the side of the one product that is timed on the ref device.
const refSide = 128

func newPeaks(d *device.Device, o options, e effort) *peaks {
	if !d.OnHost() {
		e.cube = max(e.cube, cubeOfGPU)
	}
	p := &peaks{effort: e, device: d, products: products(&o.model, int64(o.batch), int64(o.seq), e.cube, mpu.HeadRows(d)), instructions: d.Instructions(valueType(o.precision))}
	if d.Name == "ref" { // plain Go: the model's own products would take minutes
		p.products = []device.Product{{M: refSide, N: refSide, K: refSide}}
	}
	return p
}

// measure times the machine, then the step, then the machine's best products
// again: on a shared machine the better measurement counts.
func measure(ctx context.Context, d *device.Device, o options, e effort, note func(string)) (*result, error) {
	r := &result{Model: o.name, MicroBatchSize: o.batch, SeqLength: o.seq, Precision: o.precision, Dropout: o.model.HiddenDropout,
		Device: d.Name + ": " + d.Describe(), Processor: system.Processor(), Threads: device.SharedPool().Threads(), Processors: runtime.NumCPU(), watch: true}
	p, own := newPeaks(d, o, e), valueType(o.precision)
	note("measuring matrix products and copies ...")
	if err := p.first(device.F32, device.BF16, own); err != nil {
		return nil, err
	}
	d.Arena.Close() // what the products took must not count as the step's
	if hasOther(d, own) {
		note("measuring the library's ...")
		var err error
		if p.library, err = libraryPeak(ctx, o); err != nil {
			return nil, err
		}
	}
	forgetPeakMemory()
	r.seen = &watcher{instructions: p.instructions}
	note(fmt.Sprintf("training %s, %d x %d tokens, %s ...", o.name, o.batch, o.seq, o.precision))
	if err := r.train(d, o, e.steps); err != nil {
		return nil, err
	}
	r.PeakMemory = peakMemory()
	d.Arena.Close()
	if err := p.again(own); err != nil {
		return nil, err
	}
	d.Arena.Close()
	p.tell(r, own)
	r.warm.fill(r.Ops, r.CopyBandwidth)
	r.Cores = r.seen.tell(r.Threads, r.Processors, r.Busy, r.InstructionPeak)
	done := r.TokensPerSecond * r.FLOPsPerToken
	r.Fraction, r.OfBurst = done/r.GEMMPeak, done/r.GEMMBurst
	if r.InstructionPeak > 0 {
		r.OfInstructions = done / r.InstructionPeak
	}
	return r, nil
}

func valueType(precision string) device.DType {
	switch precision {
	case "bf16":
		return device.BF16
	case "fp16":
		return device.F16
	}
	return device.F32
}
