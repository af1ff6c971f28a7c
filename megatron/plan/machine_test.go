package plan

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

// Claim: every machine file that comes with the program is complete, and found by its name.
func TestShippedMachines(t *testing.T) {
	if len(Machines()) < 5 {
		t.Errorf("machines: %v", Machines())
	}
	for _, name := range Machines() {
		m, err := ReadMachine(name)
		if err != nil || m.Name != name || m.About == "" {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

const tinyMachine = "name: x\ndevice: cpu\ndevices_per_node: 2\nmemory: 1GiB\npeak_flops: {f32: 1e12}\nmemory_bytes_per_second: 1e10\nmatmul_share: [{from: 0, share: 1}]\n" +
	"stream_share: [{from: 0, share: 1}]\nattention: {share: 0.5}\ninside_node: {latency_seconds: 0, bytes_per_second: 1e9}\nbetween_nodes: {latency_seconds: 0, bytes_per_second: 1e9}\n"

// Claim: what is wrong with a machine file is said, all at once, and nothing else happens.
func TestBadMachines(t *testing.T) {
	if _, err := ParseMachine([]byte(tinyMachine)); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"":                         "empty",
		"name: [":                  "line 1: did not find expected node content",
		"nothing: 1":               "nothing",
		"device: abacus":           "device is \"abacus\"",
		"memory: many":             "not a size",
		"devices_per_node: -1":     "devices_per_node is -1",
		"peak_flops: {f8: 1e12}":   "f8",
		"peak_flops: {f32: .nan}":  "peak_flops of f32 is NaN",
		"peak_flops: {f32: .inf}":  "peak_flops of f32 is +Inf",
		"matmul_share: []":         "matmul_share is missing",
		"attention: {share: 1e99}": "attention.share is 1e+99",
		"stream_share: [{from: 5, share: 1}, {from: 5, share: 1}]": `the values of "from" must increase from one entry to the next`,
		"inside_node: {latency_seconds: -1, bytes_per_second: 0}":  "inside_node.bytes_per_second is 0",
		"threads: -2": "threads is -2",
		"threads: 2":  "ops is missing",
		"ops: [{op: x, form: \"#\", ranks: 1, times: [[1, 2, 3, 4]]}]":                      "threads is missing",
		"threads: 2\nops: [{op: x, form: \"#\", ranks: 3, times: [[1, 2, 3, 4]]}]":          "ranks is 3",
		"threads: 2\nops: [{op: x, form: \"#\", ranks: 1, times: [[1, 2, 3]]}]":             "must be 4 numbers",
		"threads: 2\nops: [{op: x, form: \"#\", ranks: 1, times: [[1, 2, 3, 0]]}]":          "numbers of 0 or more, the last of which is seconds",
		"threads: 2\nops: [{op: x, form: \"#\", ranks: 1, times: [[1, 2, .nan, 1]]}]":       "must be 4 numbers",
		"threads: 2\nops: [{op: x, form: \"#\", ranks: 1, times: []}]":                      "times is empty",
		"collectives: [{op: all_reduce, dtype: f32, ranks: 1, groups: 1, times: [[1, 1]]}]": "groups; there must be at least 2 ranks in 1 group",
		"disk: {write_bytes_per_second: -1}":                                                "disk",
	} {
		full := text
		if key, _, found := strings.Cut(text, ":"); found && key != "nothing" && !strings.HasSuffix(text, "[") {
			var lines []string
			for _, line := range strings.Split(tinyMachine, "\n") {
				if !strings.HasPrefix(line, key+":") {
					lines = append(lines, line)
				}
			}
			full = strings.Join(append(lines, text), "\n")
		}
		if _, err := ParseMachine([]byte(full)); err == nil || exitcode.CodeOf(err) == exitcode.Internal || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	_, err := ParseMachine([]byte("device: x\ndevices_per_node: 0"))
	for _, want := range []string{"device is", "devices_per_node is 0", "memory is 0", "peak_flops is missing"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("not all at once, %q is missing: %v", want, err)
		}
	}
	if _, err := ReadMachine("abacus"); exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), "h100") {
		t.Errorf("an unknown name: %v", err)
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("mine", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadMachine("mine"); exitcode.CodeOf(err) != exitcode.BadData || !strings.HasPrefix(err.Error(), "--machine mine: ") {
		t.Errorf("a file without a folder in its name: %v", err)
	}
	if _, err := ReadMachine("/dev/zero"); err == nil {
		t.Error("/dev/zero is a machine")
	}
}

// FuzzMachine: whatever a file holds, it is a machine or an error.
func FuzzMachine(f *testing.F) {
	f.Add([]byte(tinyMachine))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := ParseMachine(text)
		if err == nil && (m.PerNode < 1 || len(m.Matmul) == 0 || !(m.MemoryRate > 0)) {
			t.Errorf("%+v", m)
		}
	})
}

// Claim: a curve's share lies on the line between its points, by the logarithm of the size.
func TestShares(t *testing.T) {
	curve := []Share{{0, 0.1}, {100, 0.3}, {10000, 0.7}}
	for size, want := range map[float64]float64{0: 0.1, 10: 0.2, 100: 0.3, 1000: 0.5, 10000: 0.7, 1e9: 0.7} {
		if got := at(curve, size); math.Abs(got-want) > 1e-12 {
			t.Errorf("at %g: %g, want %g", size, got, want)
		}
	}
}

// Claim: constants with which seconds were made are found again from the seconds of a few
// layouts; and few micro-batches on the clock say what all of them do.
func TestFitFindsConstants(t *testing.T) {
	m, err := ReadMachine("a100")
	if err != nil {
		t.Fatal(err)
	}
	made := Constants{1.3, 2.1, 1.7}
	var samples []Sample
	for _, layout := range []string{"--world-size 8", "--world-size 16 --micro-batch-size 1", "--world-size 16 --tensor-model-parallel-size 4", "--world-size 32 --pipeline-model-parallel-size 4",
		"--world-size 64 --tensor-model-parallel-size 8 --micro-batch-size 1", "--world-size 32 --use-distributed-optimizer --tensor-model-parallel-size 2"} {
		c := parsed(t, small+"--hidden-size 1024 --seq-length 256 --bf16 --global-batch-size 256 --micro-batch-size 4 "+layout)
		k, err := NewClock(c, m)
		if err != nil {
			t.Fatal(err)
		}
		s, err := k.Run(made)
		if err != nil {
			t.Fatal(err)
		}
		if about, err := k.about(made); err != nil || math.Abs(about/s.Step-1) > 1e-9 {
			t.Errorf("%s: %g s by all micro-batches, %g by few of them, %v", layout, s.Step, about, err)
		}
		samples = append(samples, Sample{k, s.Step})
	}
	found, err := Fit(samples)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range [][2]float64{{found.Compute, made.Compute}, {found.Move, made.Move}, {found.Between, made.Between}} {
		if math.Abs(x[0]/x[1]-1) > 0.05 {
			t.Errorf("found %+v, made with %+v", found, made)
		}
	}
}

// Claim: of sliced sends a rank carries its part and gathers the others' inside its node; a stage
// that blocks is busy for each value that it sends or waits for: two each way in the middle.
func TestSends(t *testing.T) {
	clock := func(sends Sends) *Clock {
		m, err := ReadMachine("a100")
		if err != nil {
			t.Fatal(err)
		}
		m.Sends = sends
		k, err := NewClock(parsed(t, small+"--num-layers 9 --bf16 --world-size 24 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 3"), m)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	full, sliced, blocking := clock(Sends{}), clock(Sends{Sliced: true}), clock(Sends{Blocking: true})
	m, bytes := full.machine, 4*256*256*2.0
	if got, want := full.send.Between-m.Between.Latency, bytes/(m.Between.Rate/8); math.Abs(got/want-1) > 1e-9 || full.send.Move != 0 {
		t.Errorf("whole: %+v, want %g s between nodes", full.send, want)
	}
	if got, want := sliced.send.Between-m.Between.Latency, bytes/8/(m.Between.Rate/8); math.Abs(got/want-1) > 1e-9 {
		t.Errorf("sliced: %g s between nodes, want %g", got, want)
	}
	if got, want := sliced.send.Move, bytes*7/8/m.Node.Rate+7*m.Node.Latency; math.Abs(got/want-1) > 1e-9 {
		t.Errorf("sliced: %g s of gathering, want %g", got, want)
	}
	free, blocked, send := full.times(nominal), blocking.times(nominal), full.send.seconds(nominal)
	if free.Transfer != send || blocked.Transfer != 0 {
		t.Errorf("transfers %g and %g, want %g and 0", free.Transfer, blocked.Transfer, send)
	}
	for stage, values := range []float64{1, 2, 1} {
		f, b := blocked.Forward[stage][0]-free.Forward[stage][0], blocked.Backward[stage][0]-free.Backward[stage][0]
		if math.Abs(f/send-values) > 1e-6 || math.Abs(b/send-values) > 1e-6 {
			t.Errorf("stage %d blocks for %g and %g s, want %g times %g", stage, f, b, values, send)
		}
	}
}

// Claim: Spearman's coefficient; equal values share their ranks.
func TestRankCorrelation(t *testing.T) {
	for _, c := range []struct {
		x, y []float64
		want float64
	}{{[]float64{1, 2, 3}, []float64{10, 20, 99}, 1}, {[]float64{1, 2, 3}, []float64{3, 2, 1}, -1}, {[]float64{1, 2, 2, 3}, []float64{1, 2, 2, 3}, 1},
		{[]float64{106, 100, 86, 101, 99, 103, 97, 113, 112, 110}, []float64{7, 27, 2, 50, 28, 29, 20, 12, 6, 17}, -29.0 / 165}} {
		if got := RankCorrelation(c.x, c.y); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v, %v: %g, want %g", c.x, c.y, got, c.want)
		}
	}
}

// values are what the formulas say, in their order.
func values(z Sizes, out []float64) []float64 {
	out = out[:0]
	for i := range Formulas {
		out = append(out, Formulas[i].Of(z))
	}
	return out
}

// Claim: formulas are those of their sources: Korthikanti et al. 2022, table 3, has 175 billion
// parameters; 18 bytes of each on 64 ranks are 45.56 GiB with 1.02 parameters' worth more in
// the first stage's embedding (figure 1).
func TestFormulas(t *testing.T) {
	z := Sizes{B: 64, S: 2048, H: 12288, L: 96, A: 96, V: 51200, FFN: 49152, T: 8, P: 8, D: 1, C: 3, Micro: 1, Micros: 64, N: 174.6e9, Value: 2}
	said := map[string]float64{}
	for i, x := range values(z, nil) {
		said[Formulas[i].Name+" "+Formulas[i].Text] = x
	}
	for name, want := range map[string]float64{
		"parameters 12lh²(1 + 13/12h + (V+s)/12lh)":                          174.6e9,
		"weights, gradients, optimizer of a rank 18N/tp·pp":                  45.7 * (1 << 30),
		"activations of a rank, tensor parallelism sbhl(10 + 24/t + 5as/ht)": 51.8 * (1 << 30),
		"idle over busy time of the pipeline (p−1)/(v·m)":                    7.0 / 3 / 64,
		"operations a step, recomputed 96Bslh²(1 + s/6h + V/16lh)":           1.88e17,
		"activations, tensor and sequence parallelism, no scores 34sbhl/t":   9.56 * (1 << 30),
	} {
		if got, has := said[name]; !has || math.Abs(got/want-1) > 0.005 {
			t.Errorf("%s: %g, want %g", name, got, want)
		}
	}
}

// numbered is a line n times, with its number.
func numbered(line string, n int) (text string) {
	for i := range n {
		text += fmt.Sprintf(line, i)
	}
	return text
}

// Claim: a file that is made to keep the reader busy, or to fill the screen, is one short answer.
func TestHostileMachines(t *testing.T) {
	for text, want := range map[string]string{
		tinyMachine + "\n---\nname: another\n":                   "a second YAML document begins after that of the machine",
		"regimes:\n" + numbered("  x%d: [y]\n", mostKeys+1):      "line 2: an object has 1001 fields",
		numbered("what%d: 1\n", mostKeys):                        "and 980 more",
		"constants:\n" + numbered("  r%d: {compute: -1}\n", 100): " more",
		"name: " + strings.Repeat("[", 20000):                    "max depth",
		"flags: &a [*a]":                                         "a value of the wrong type",
		"a: &a [x, x]\nb: &b [*a, *a]\nflags: [*b, *b]":          "unknown field",
		tinyMachine + "\nflags: !!binary aGk=\n":                 "a value of the wrong type",
		tinyMachine + "\nconstants: {x: {compute: 1e999}}\n":     "1e999",
		tinyMachine + "\nregimes: {<<: 3}\n":                     "map merge",
		"\x00\x01\xff":                                           "control characters are not allowed",
	} {
		_, err := ParseMachine([]byte(text))
		if exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), want) || len(err.Error()) > 4000 {
			t.Errorf("%.60q: %.300v, want %q", text, err, want)
		}
	}
}
