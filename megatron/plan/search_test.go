package plan

import (
	"strings"
	"testing"
)

// Claim: the bound by which layouts are excluded is at most their memory: state and
// activations of the first stage, under every way to cut, share and recompute.
func TestFloorIsBelowThePeak(t *testing.T) {
	m, err := ReadMachine("a100")
	if err != nil {
		t.Fatal(err)
	}
	const full = " --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
	for _, layout := range []string{"--world-size 1", "--world-size 1" + full, "--world-size 4", "--world-size 4 --use-distributed-optimizer", "--world-size 4 --use-distributed-optimizer --data-parallel-sharding-strategy optim_grads",
		"--world-size 4 --use-distributed-optimizer --data-parallel-sharding-strategy optim_grads_params", "--world-size 4 --tensor-model-parallel-size 2 --sequence-parallel", "--world-size 4 --pipeline-model-parallel-size 4",
		"--world-size 4 --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2", "--world-size 2 --context-parallel-size 2", "--world-size 4 --pipeline-model-parallel-size 2" + full,
		"--world-size 4 --num-experts 4 --moe-router-topk 2 --expert-model-parallel-size 2", "--world-size 4 --num-experts 4 --moe-router-topk 2 --tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 --expert-tensor-parallel-size 1"} {
		for _, precision := range []string{"", " --bf16"} {
			c := parsed(t, small+"--hidden-size 64 --seq-length 64 --micro-batch-size 2 --global-batch-size 32 "+layout+precision)
			k, err := NewClock(c, m)
			if err != nil {
				t.Fatalf("%s: %v", layout, err)
			}
			ranks, err := Memory(c, Options{Device: "cuda"})
			if err != nil {
				t.Fatal(err)
			}
			peak := Largest(ranks).Peak
			if floor := k.floor(); floor > float64(peak) || floor < float64(peak)/8 {
				t.Errorf("%s%s: the bound is %.0f bytes, the peak %d", layout, precision, floor, peak)
			}
		}
	}
}

// Claim: long sequences are shared, and experts cut, where that is legal and pays: what is found
// fits, and no layout is there twice.
func TestSearchCutsSequencesAndExperts(t *testing.T) {
	m, err := ReadMachine("h100")
	if err != nil {
		t.Fatal(err)
	}
	const model = "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --max-position-embeddings 32768 --global-batch-size 16 --train-iters 10 --lr 1e-4 --bf16 " +
		"--tokenizer-type NullTokenizer --vocab-size 1000 --mock-data "
	for flags, want := range map[string]string{model + "--seq-length 32768": "--context-parallel-size", model + "--seq-length 1024 --num-experts 8 --moe-router-topk 2 --moe-token-dispatcher-type alltoall": "--expert-model-parallel-size"} {
		s := &Search{Machine: m, Devices: 8, Memory: int64(m.Memory), Flags: strings.Fields(flags), Vocab: 1000}
		list, err := func() ([]*Found, error) {
			s.units, s.ended = map[unitKey]*countedUnits{}, map[string]float64{}
			return s.legal()
		}()
		if err != nil {
			t.Fatal(err)
		}
		seen, cut := map[string]bool{}, 0
		for _, f := range list {
			if seen[f.Line()] {
				t.Errorf("twice: %s", f.Line())
			}
			seen[f.Line()] = true
			if strings.Contains(f.Line(), want) {
				cut++
			}
		}
		best, front, err := s.Run(5)
		if err != nil || len(best) != 5 || len(front) == 0 || cut < 20 || s.Tried != len(list) {
			t.Fatalf("%d found of %d layouts, %d with %s: %v", len(best), len(list), cut, want, err)
		}
		for _, f := range best {
			if f.Memory > s.Memory || f.Memory < 1<<20 || !(f.Step.Step > 0) {
				t.Errorf("%s: %d bytes, %g s", f.Line(), f.Memory, f.Step.Step)
			}
		}
	}
}

// Claim: sequences shorter than those that ranks would share are searched as any other.
func TestSearchOfShortSequences(t *testing.T) {
	m, err := ReadMachine("h100")
	if err != nil {
		t.Fatal(err)
	}
	s := &Search{Machine: m, Devices: 2, Memory: int64(m.Memory), Vocab: 100, Flags: strings.Fields("--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --global-batch-size 4 " +
		"--train-iters 10 --lr 1e-4 --tokenizer-type NullTokenizer --vocab-size 100 --mock-data")}
	best, _, err := s.Run(1)
	if err != nil || len(best) != 1 || best[0].Config.SeqLength != 64 {
		t.Errorf("%v, %v", best, err)
	}
}
