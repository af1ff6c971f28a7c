package bench

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/internal/system"
	"monotron/megatron/plan"
	"monotron/tools/internal/command"
	"monotron/tools/internal/timing"
)

// planned is what plans take on this machine.
type planned struct {
	Formulas float64        `json:"formula_configurations_per_second"`
	Searches []plannedTimed `json:"searches"`
	Run      plannedTimed   `json:"plan_run"`
}

type plannedTimed struct {
	Name    string  `json:"name"`
	Layouts int     `json:"layouts,omitempty"`
	Rate    float64 `json:"layouts_per_second,omitempty"`
	Seconds float64 `json:"seconds"`
	Memory  int64   `json:"peak_resident_bytes,omitempty"` // of its process
}

const plannedFlags = " --train-iters 10 --lr 1e-4 --bf16 --tokenizer-type NullTokenizer --mock-data"

// plannedSearches are published runs: who trained them chose one of these layouts.
var plannedSearches = []struct {
	name, machine  string
	devices, vocab int
	flags          string
}{
	{"BLOOM 176B on 384 A100", "a100-bloom", 384, 250680, "--num-layers 70 --hidden-size 14336 --num-attention-heads 112 --seq-length 2048 --max-position-embeddings 2048 --vocab-size 250680 --global-batch-size 2048"},
	{"Llama 3 405B on 16,384 H100", "h100", 16384, 128256, "--num-layers 126 --hidden-size 16384 --ffn-hidden-size 53248 --num-attention-heads 128 --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm " +
		"--position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights --seq-length 8192 --max-position-embeddings 8192 --vocab-size 128256 --global-batch-size 2048"},
}

// plannedRun is the 530 billion parameters of Narayanan et al. 2021 on their 2,520 devices.
const plannedRun = "plan run --machine a100 pretrain_gpt --num-layers 105 --hidden-size 20480 --num-attention-heads 128 --seq-length 2048 --max-position-embeddings 2048 --vocab-size 51200 --micro-batch-size 1 " +
	"--global-batch-size 2520 --world-size 2520 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 35 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1" + plannedFlags

// benchPlans times formulas, searches and a large plan.
func benchPlans(c *cli.Context) error {
	out, r, err := tableOf(c), planned{}, error(nil)
	if r.Run, err = timedPlan(c.Context); err != nil { // first: a process begins with its parent's mark of memory
		return err
	}
	out.Printf("plan run, %s: %.2f s, %.0f MiB\n", r.Run.Name, r.Run.Seconds, mib(r.Run.Memory))
	r.Formulas = formulaRate()
	out.Printf("formulas: %.3g million configurations a second\n", r.Formulas/1e6)
	for _, p := range plannedSearches {
		m, err := plan.ReadMachine(p.machine)
		if err != nil {
			return err
		}
		s := &plan.Search{Machine: m, Devices: p.devices, Memory: int64(m.Memory), Flags: strings.Fields(p.flags + plannedFlags), Vocab: p.vocab}
		began := time.Now()
		if _, _, err := s.Run(10); err != nil {
			return err
		}
		took := time.Since(began).Seconds()
		r.Searches = append(r.Searches, plannedTimed{Name: p.name, Layouts: s.Tried, Rate: float64(s.Tried) / took, Seconds: took})
		out.Printf("search, %s: %d layouts in %.2f s, %.0f a second\n", p.name, s.Tried, took, float64(s.Tried)/took)
	}
	if out.Err == nil && c.Bool("json") {
		out = &command.Printer{W: c.App.Writer}
		out.JSON(r)
	}
	return out.Err
}

// formulaRate is how many configurations all formulas are worked out for in a second, by one thread.
func formulaRate() float64 {
	z, sum, n := plan.Sizes{B: 64, S: 2048, H: 12288, A: 96, V: 51200, FFN: 49152, T: 8, P: 8, D: 1, C: 3, Micro: 1, Micros: 64, N: 174.6e9, Value: 2}, 0.0, 0
	began := time.Now()
	for time.Since(began) < time.Second/2 {
		for z.L = 1; z.L <= 100; z.L++ {
			for i := range plan.Formulas {
				sum += plan.Formulas[i].Of(z)
			}
			n++
		}
	}
	if math.IsNaN(sum) {
		return 0
	}
	return float64(n) / time.Since(began).Seconds()
}

// timedPlan is the command as a process of its own.
func timedPlan(ctx context.Context) (plannedTimed, error) {
	cmd, err := timing.Again(ctx, strings.Fields(plannedRun)...)
	if err != nil {
		return plannedTimed{}, err
	}
	var notes strings.Builder
	cmd.Stderr = &notes
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return plannedTimed{}, exitcode.Errorf(exitcode.Internal, "plan run: %w\n%s", err, notes.String())
	}
	took := plannedTimed{Name: "530 billion parameters on 2,520 A100", Seconds: time.Since(began).Seconds()}
	took.Memory = system.PeakMemory(cmd.ProcessState)
	return took, nil
}
