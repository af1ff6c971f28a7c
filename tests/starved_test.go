package tests

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A small Qwen3-MoE whose routers go by what lies in two channels of the embedding: in the first
// every token has the same, in the second the upper half of the vocabulary has the opposite of
// the lower.
const (
	starvedVocab, starvedSeq, starvedExperts = 32, 64, 4
	starvedLayers, starvedWidth, starvedFFN  = 2, 128, 192
	starvedSteps, starvedBatch               = 3, 16
)

// preference is what makes a router starve experts.
type preference struct {
	name       string
	topK       int
	all, lower [starvedExperts]float64 // of every token for an expert; of the lower half of the vocabulary, the upper one's is the opposite
	starved    string                  // experts without a token, as in the JSON log
}

var preferences = []preference{
	{"every token to one expert", 1, [4]float64{8}, [4]float64{}, "[1 2 3]"},
	{"no token to the experts of a rank", 2, [4]float64{8, 7}, [4]float64{}, "[2 3]"},
	{"micro-batches without a token for a rank", 2, [4]float64{}, [4]float64{8, 7, -8, -7}, "[]"},
}

// starving is a folder with such models and samples of either half of the vocabulary.
type starving struct {
	t        *testing.T
	bin, dir string
}

func newStarving(t *testing.T) *starving {
	s := &starving{t, program(t), t.TempDir()}
	var text strings.Builder
	random := rand.New(rand.NewSource(1))
	for document := range 4 * starvedBatch { // of starvedSeq tokens, as a sample has
		ids := make([]string, starvedSeq)
		for i := range ids {
			ids[i] = fmt.Sprint(document%2*starvedVocab/2 + random.Intn(starvedVocab/2-1))
		}
		fmt.Fprintf(&text, "{\"text\":%q}\n", strings.Join(ids, " "))
	}
	if err := os.WriteFile(filepath.Join(s.dir, "text.jsonl"), []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	s.must(fmt.Sprintf("preprocess_data --input text.jsonl --output-prefix text --tokenizer-type NullTokenizer --vocab-size %d --workers 1", starvedVocab))
	for i, p := range preferences {
		s.write(fmt.Sprintf("model%d", i), p)
	}
	return s
}

// write makes the folder that transformers would have written.
func (s *starving) write(name string, p preference) {
	dir := filepath.Join(s.dir, name)
	config := fmt.Sprintf(`{"model_type":"qwen3_moe","architectures":["Qwen3MoeForCausalLM"],"vocab_size":%d,"hidden_size":%d,"intermediate_size":%d,"num_hidden_layers":%d,
		"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"max_position_embeddings":%d,"num_experts":%d,"num_experts_per_tok":%d,"moe_intermediate_size":%d,
		"norm_topk_prob":false,"tie_word_embeddings":false,"hidden_act":"silu","rms_norm_eps":1e-6,"rope_theta":10000,"router_aux_loss_coef":0.01,"initializer_range":0.02}`,
		starvedVocab, starvedWidth, starvedFFN, starvedLayers, starvedSeq, starvedExperts, p.topK, starvedFFN)
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "model.safetensors"), p.weights(), 0o644)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// weights are small random numbers, but for embedding, norms and routers.
func (p preference) weights() []byte {
	random, header, data := rand.New(rand.NewSource(2)), map[string]any{}, []byte{}
	add := func(name string, value func(row, column int) float64, shape ...int) {
		from, width, n := len(data), shape[len(shape)-1], 1
		for _, size := range shape {
			n *= size
		}
		for i := range n {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(value(i/width, i%width))))
		}
		header[name] = map[string]any{"dtype": "F32", "shape": shape, "data_offsets": []int{from, len(data)}}
	}
	small := func(int, int) float64 { return 0.05 * random.NormFloat64() }
	one := func(int, int) float64 { return 1 }
	add("model.embed_tokens.weight", func(token, channel int) float64 {
		switch {
		case channel == 0, channel == 1 && token < starvedVocab/2:
			return 30
		case channel == 1:
			return -30
		}
		return random.NormFloat64()
	}, starvedVocab, starvedWidth)
	for layer := range starvedLayers {
		name := fmt.Sprintf("model.layers.%d.", layer)
		add(name+"input_layernorm.weight", one, starvedWidth)
		add(name+"self_attn.q_proj.weight", small, 64, starvedWidth)
		add(name+"self_attn.k_proj.weight", small, 32, starvedWidth)
		add(name+"self_attn.v_proj.weight", small, 32, starvedWidth)
		add(name+"self_attn.o_proj.weight", small, starvedWidth, 64)
		add(name+"self_attn.q_norm.weight", one, 16)
		add(name+"self_attn.k_norm.weight", one, 16)
		add(name+"post_attention_layernorm.weight", one, starvedWidth)
		add(name+"mlp.gate.weight", func(expert, channel int) float64 {
			switch channel {
			case 0:
				return p.all[expert]
			case 1:
				return p.lower[expert]
			}
			return 0.02 * random.NormFloat64()
		}, starvedExperts, starvedWidth)
		for e := range starvedExperts {
			add(fmt.Sprintf("%smlp.experts.%d.gate_proj.weight", name, e), small, starvedFFN, starvedWidth)
			add(fmt.Sprintf("%smlp.experts.%d.up_proj.weight", name, e), small, starvedFFN, starvedWidth)
			add(fmt.Sprintf("%smlp.experts.%d.down_proj.weight", name, e), small, starvedWidth, starvedFFN)
		}
	}
	add("model.norm.weight", one, starvedWidth)
	add("lm_head.weight", small, starvedVocab, starvedWidth)
	text, _ := json.Marshal(header)
	return slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text, data)
}

// call starts monotron; a run that does not end is ended.
func (s *starving) call(line string) (out, notes string, code int) {
	ctx, stop := context.WithTimeout(context.Background(), slow)
	defer stop()
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "monotron"), strings.Fields(line)...)
	var o, n bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, &o, &n
	_ = cmd.Run() // its code says it
	if ctx.Err() != nil {
		s.t.Fatalf("%s: it hangs\n%s", line, &n)
	}
	return o.String(), n.String(), cmd.ProcessState.ExitCode()
}

func (s *starving) must(line string) (out, notes string) {
	s.t.Helper()
	out, notes, code := s.call(line)
	if code != 0 {
		s.t.Fatalf("%s: code %d\n%s", line, code, notes)
	}
	return out, notes
}

// way is how ranks are started and tokens travel.
type way struct {
	ranks      int
	processes  bool
	dispatcher string
	capacity   string // "", "drop", "pad"
	bf16       bool
}

func (w way) String() string {
	who := fmt.Sprintf("%d goroutines", w.ranks)
	if w.processes {
		who = fmt.Sprintf("%d processes", w.ranks)
	}
	return strings.Join(strings.Fields(who+" "+w.dispatcher+" "+w.capacity+map[bool]string{true: " bf16"}[w.bf16]), ", ")
}

// flags are those of a run from a model, but for how ranks are started.
func (w way) flags(model int) string {
	line := fmt.Sprintf("--load model%d --use-checkpoint-args --finetune --data-path text_text_document --split 1,0,0 --tokenizer-type NullTokenizer --vocab-size %d "+
		"--make-vocab-size-divisible-by 1 --seq-length %d --max-position-embeddings %d --micro-batch-size 1 --global-batch-size %d --train-iters %d --lr 1e-4 "+
		"--lr-decay-style constant --hidden-dropout 0 --attention-dropout 0 --eval-iters 0 --log-interval 1 --log-moe-exchanges --device cpu "+
		"--expert-model-parallel-size %d --moe-token-dispatcher-type %s ", model, starvedVocab, starvedSeq, starvedSeq, starvedBatch, starvedSteps, w.ranks, w.dispatcher)
	if w.capacity != "" {
		line += "--moe-expert-capacity-factor 1 "
	}
	if w.capacity == "pad" {
		line += "--moe-pad-expert-input-to-capacity "
	}
	if w.bf16 {
		line += "--bf16 "
	}
	return line
}

// start is the command in front of the flags.
func (w way) start() string {
	if w.processes {
		return fmt.Sprintf("launch --nproc-per-node %d -- pretrain_gpt ", w.ranks)
	}
	return fmt.Sprintf("pretrain_gpt --world-size %d ", w.ranks)
}

// planned is every rank's peak as `plan run` says it.
func (s *starving) planned(w way, model int, more string) (peaks []int64) {
	out, _ := s.must(fmt.Sprintf("plan run --json %s pretrain_gpt --world-size %d %s", more, w.ranks, w.flags(model)))
	var plan struct {
		Ranks []struct {
			Peak int64 `json:"peak_bytes"`
		} `json:"ranks"`
	}
	if err := json.Unmarshal([]byte(out), &plan); err != nil {
		s.t.Fatal(err)
	}
	for _, r := range plan.Ranks {
		peaks = append(peaks, r.Peak)
	}
	return peaks
}

// starve runs one model one way: the run ends well, reports which experts got nothing, sends
// what the router says, and holds what the plan says.
func (s *starving) starve(w way, model int) {
	p, log := preferences[model], filepath.Join(s.dir, "log.jsonl")
	_ = os.Remove(log)
	_, notes := s.must(w.start() + w.flags(model) + "--log-jsonl log.jsonl")
	what := fmt.Sprintf("%s, %v", p.name, w)
	s.checkSteps(what, p, w, log)
	for e := range starvedExperts {
		reported := strings.Contains(notes, fmt.Sprintf("layer 0: expert %d got no tokens", e))
		if want := strings.Contains(p.starved, fmt.Sprint(e)) && w.capacity != "pad"; reported != want {
			s.t.Errorf("%s: that expert %d got no token is told: %v\n%s", what, e, reported, notes)
		}
	}
	if w.ranks > 1 {
		s.checkExchanges(what, p, w, notes)
	}
	s.checkMemory(what, p, w, model, log)
}

// checkSteps checks the JSON log.
func (s *starving) checkSteps(what string, p preference, w way, log string) {
	text, err := os.ReadFile(log)
	if err != nil {
		s.t.Fatal(err)
	}
	steps := 0
	for line := range bytes.Lines(text) {
		var step struct {
			Loss    map[string]float64
			Norm    float64 `json:"grad_norm"`
			Experts []struct {
				Starved []int
				Dropped float64
			}
		}
		if err := json.Unmarshal(line, &step); err != nil {
			s.t.Fatalf("%s: %v", what, err)
		}
		if loss := step.Loss["lm loss"]; !(loss > 0 && loss < 10 && step.Norm > 0) || len(step.Experts) != starvedLayers {
			s.t.Errorf("%s: step %d: %s", what, steps+1, line)
			continue
		}
		steps++
		for _, layer := range step.Experts {
			if want := map[bool]string{true: "[]", false: p.starved}[w.capacity == "pad"]; fmt.Sprint(layer.Starved) != want {
				s.t.Errorf("%s: step %d: starved %v, want %s", what, steps, layer.Starved, want)
			}
			if w.capacity == "" && layer.Dropped != 0 || w.capacity == "drop" && p.starved != "[]" && layer.Dropped == 0 {
				s.t.Errorf("%s: step %d: %g choices dropped", what, steps, layer.Dropped)
			}
		}
	}
	if steps != starvedSteps {
		s.t.Errorf("%s: %d steps", what, steps)
	}
}

// checkExchanges: a rank whose experts nobody chooses gets no token, in some micro-batches or in all.
func (s *starving) checkExchanges(what string, p preference, w way, notes string) {
	empty, full := 0, 0
	for line := range strings.Lines(notes) {
		var rank, layer, micro int
		at := strings.Index(line, "rank ")
		if at < 0 {
			continue
		}
		if n, _ := fmt.Sscanf(line[at:], "rank %d: layer %d, micro-batch %d:", &rank, &layer, &micro); n != 3 {
			continue
		}
		_, received, _ := strings.Cut(line, "received ")
		if strings.Trim(received, "[0 ]\n") == "" {
			empty++
		} else {
			full++
		}
	}
	const lines = starvedLayers * starvedSteps * starvedBatch
	fed := (p.topK*w.ranks + starvedExperts - 1) / starvedExperts // ranks with the first topK experts
	want := lines * (w.ranks - fed) / w.ranks
	switch {
	case w.dispatcher == "allgather":
		want = 0 // every token goes everywhere
	case p.starved == "[]":
		want = empty
		if empty == 0 || full == 0 {
			want = -1
		}
	}
	if empty+full != lines || empty != want {
		s.t.Errorf("%s: %d exchanges brought a rank tokens and %d none, of %d; want %d", what, full, empty, lines, want)
	}
}

// checkMemory: no rank holds more than it was planned to at most, and the one that has all tokens
// holds just that; a rank that is alone always does.
func (s *starving) checkMemory(what string, p preference, w way, model int, log string) {
	kept, most := keptAtEnd(s.t, log), s.planned(w, model, "--experts-at-most")
	if len(kept) != w.ranks || len(most) != w.ranks {
		s.t.Fatalf("%s: %v bytes held, %v planned", what, kept, most)
	}
	for rank := range kept {
		if kept[rank] > most[rank] {
			s.t.Errorf("%s: rank %d holds %d bytes, planned were %d at most", what, rank, kept[rank], most[rank])
		}
	}
	if even := s.planned(w, model, ""); w.ranks == 1 && !slices.Equal(kept, even) {
		s.t.Errorf("%s: %v bytes held, %v planned", what, kept, even)
	}
	if w.capacity == "" && p.starved != "[]" && kept[0] != most[0] {
		s.t.Errorf("%s: rank 0, which has all tokens, holds %d bytes, planned were %d", what, kept[0], most[0])
	}
}

// spoil runs with a token that is not a number: one line says where it was first, and the
// program ends with its code.
func (s *starving) spoil(w way) {
	rank := w.ranks - 1
	_, notes, code := s.call(w.start() + w.flags(2) + fmt.Sprintf("--inject nan:rank=%d:step=2:layer=1", rank))
	var verdict []string
	for line := range strings.Lines(notes) {
		if strings.HasPrefix(line, "monotron: ") {
			verdict = append(verdict, line)
		}
	}
	where := fmt.Sprintf("first in the output of layer 0 on rank %d, micro-batch 0, samples [", rank)
	if code != 70 || len(verdict) != 1 || !strings.Contains(verdict[0], "iteration 2: loss NaN") || !strings.Contains(verdict[0], where) {
		s.t.Errorf("NaN in a token, %v: code %d: %s", w, code, notes)
	}
}

// Claim (docs/experts.md): a router that sends every token to one expert, none to those of a rank,
// or none in some micro-batches, is a run like others, which says so and holds what was planned; a
// token that is not a number ends it with one line. MONOTRON_STARVED=all (tests/proofs/experts/starved.sh) takes
// every dispatcher, capacity, number of ranks, goroutines and processes, f32 and bf16.
func TestStarvedExperts(t *testing.T) {
	s := newStarving(t)
	if os.Getenv("MONOTRON_STARVED") != "all" {
		s.starve(way{ranks: 1, dispatcher: "alltoall"}, 0)
		s.starve(way{ranks: 2, dispatcher: "alltoall"}, 1)
		s.starve(way{ranks: 4, processes: true, dispatcher: "allgather", capacity: "drop"}, 2)
		s.spoil(way{ranks: 2, dispatcher: "alltoall", capacity: "pad", bf16: true})
		return
	}
	runs := 0
	for _, ranks := range []int{1, 2, 4} {
		for _, processes := range []bool{false, true}[:min(ranks, 2)] {
			for _, dispatcher := range []string{"allgather", "alltoall"} {
				for _, capacity := range []string{"", "drop", "pad"} {
					for _, bf16 := range []bool{false, true} {
						w := way{ranks, processes, dispatcher, capacity, bf16}
						for model := range preferences {
							s.starve(w, model)
						}
						s.spoil(w)
						runs += len(preferences) + 1
					}
				}
			}
		}
	}
	t.Logf("%d runs", runs)
}
