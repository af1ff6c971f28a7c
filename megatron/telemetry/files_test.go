package telemetry

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"monotron/internal/exitcode"
)

// readRecords takes TFRecord framing apart and checks both checksums, by the
// format's description rather than by our writer's functions.
func readRecords(t *testing.T, data []byte) [][]byte {
	t.Helper()
	check := func(part []byte, sum uint32) {
		crc := crc32.Checksum(part, crc32.MakeTable(crc32.Castagnoli))
		if masked := ((crc >> 15) | (crc << 17)) + 0xa282ead8; masked != sum {
			t.Fatalf("checksum %08x, want %08x", sum, masked)
		}
	}
	var records [][]byte
	for len(data) > 0 {
		n := binary.LittleEndian.Uint64(data)
		check(data[:8], binary.LittleEndian.Uint32(data[8:]))
		body := data[12 : 12+n]
		check(body, binary.LittleEndian.Uint32(data[12+n:]))
		records = append(records, body)
		data = data[16+n:]
	}
	return records
}

// fields reads one protobuf message: field number to values in order.
func fields(t *testing.T, message []byte) map[protowire.Number][]any {
	t.Helper()
	out := map[protowire.Number][]any{}
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		message = message[n:]
		var v any
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(message)
		case protowire.Fixed64Type:
			v, n = protowire.ConsumeFixed64(message)
		case protowire.Fixed32Type:
			v, n = protowire.ConsumeFixed32(message)
		default:
			v, n = protowire.ConsumeBytes(message)
		}
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		out[number] = append(out[number], v)
		message = message[n:]
	}
	return out
}

// Claim: event files have TFRecord frames with right checksums, and Megatron's
// tags with the values given.
func TestEventFile(t *testing.T) {
	dir := t.TempDir()
	e, err := NewEvents(filepath.Join(dir, "tb"), EventOptions{Queue: 1000, Every: 7, Timers: true, CurveOptions: CurveOptions{LossScale: true, Memory: true, Perplexity: true}})
	if err != nil {
		t.Fatal(err)
	}
	norm := 1.5
	timers := TimerTable{Names: []string{"optimizer", "never"}, Seconds: [][]float64{{0.25, 0}, {0.5, 0}}}
	for _, s := range []*Step{
		{Iteration: 6, Losses: []Value{{"lm loss", 9}}},
		{Iteration: 7, ConsumedSamples: 56, NextLearningRate: 1e-3, LearningRate: 9, GlobalBatchSize: 8, Losses: []Value{{"lm loss", 3.25}}, NextLossScale: 65536, GradNorm: &norm,
			Tokens: 640, Elapsed: time.Second, Memory: Memory{Allocated: 5}, Line: &Interval{Iterations: 2, Timers: timers}},
		{Iteration: 7, ConsumedSamples: 56, Split: Validation, Losses: []Value{{"lm loss", 2}}},
		{Iteration: 7, ConsumedSamples: 56, Split: Test, Losses: []Value{{"lm loss", 9}}},
	} {
		if err := e.Take(s); err != nil {
			t.Fatal(err)
		}
	}
	e.Text("arguments", "lr: 0.001", 0)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "tb", "events.out.tfevents.*"))
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	records := readRecords(t, data)
	if v := fields(t, records[0])[3]; len(v) != 1 || string(v[0].([]byte)) != "brain.Event:2" {
		t.Errorf("the first record has version %v", v)
	}
	got := map[string][2]float64{} // tag to step and value
	for _, r := range records[1:] {
		ev := fields(t, r)
		if wall := math.Float64frombits(ev[1][0].(uint64)); math.Abs(wall-float64(time.Now().Unix())) > 100 {
			t.Errorf("wall time %f", wall)
		}
		value := fields(t, fields(t, ev[5][0].([]byte))[1][0].([]byte))
		tag := string(value[1][0].([]byte))
		if tag == "arguments/text_summary" {
			if tensor := fields(t, value[8][0].([]byte)); string(tensor[8][0].([]byte)) != "lr: 0.001" || tensor[1][0] != uint64(7) {
				t.Errorf("text tensor %v", tensor)
			}
			continue
		}
		got[tag] = [2]float64{float64(ev[2][0].(uint64)), float64(math.Float32frombits(value[2][0].(uint32)))}
	}
	want := map[string][2]float64{
		"learning-rate": {7, float64(float32(1e-3))}, "learning-rate vs samples": {56, float64(float32(1e-3))}, "batch-size": {7, 8}, "batch-size vs samples": {56, 8},
		"lm loss": {7, 3.25}, "lm loss vs samples": {56, 3.25}, "loss-scale": {7, 65536}, "loss-scale vs samples": {56, 65536},
		"grad-norm": {7, 1.5}, "grad-norm vs samples": {56, 1.5}, "mem-reserved-bytes": {7, 0}, "mem-allocated-bytes": {7, 5},
		"mem-max-allocated-bytes": {7, 0}, "mem-allocated-count": {7, 0}, "optimizer-time": {7, 0.25}, "iteration-time": {7, 1}, "tokens-per-second": {7, 640},
		"lm loss validation": {7, 2}, "lm loss validation vs samples": {56, 2},
		"lm loss validation ppl": {7, float64(float32(math.Exp(2)))}, "lm loss validation ppl vs samples": {56, float64(float32(math.Exp(2)))},
	}
	for tag, v := range want {
		if got[tag] != v {
			t.Errorf("%s: %v, want %v", tag, got[tag], v)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d tags, want %d: %v", len(got), len(want), got)
	}
}

// Claim: a folder that cannot be made, a disk that is full: an I/O error with
// the path, not a panic.
func TestUnwritableFolders(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	under := filepath.Join(file, "x")
	if _, err := NewEvents(under, EventOptions{}); exitcode.CodeOf(err) != exitcode.IO {
		t.Errorf("events: %v", err)
	}
	if _, err := OpenJSONL(under); exitcode.CodeOf(err) != exitcode.IO {
		t.Errorf("jsonl: %v", err)
	}
	if _, err := NewTrace(under, 1); exitcode.CodeOf(err) != exitcode.IO {
		t.Errorf("trace: %v", err)
	}
	made := filepath.Join(t.TempDir(), "run", "a", "steps.jsonl")
	if j, err := OpenJSONL(made); err != nil {
		t.Errorf("a log in a new folder: %v", err)
	} else if err := j.Close(); err != nil {
		t.Error(err)
	}
	if full, err := OpenJSONL("/dev/full"); err == nil {
		if err := full.Take(&Step{}); exitcode.CodeOf(err) != exitcode.IO {
			t.Errorf("a full disk: %v", err)
		}
	}
}

// Claim: two runs never write one log; when the first has ended, the second may.
func TestOneRunWritesALog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steps.jsonl")
	first, err := OpenJSONL(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenJSONL(path); exitcode.CodeOf(err) != exitcode.IO || !strings.Contains(err.Error(), "another run") {
		t.Errorf("a second run: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := OpenJSONL(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

// Claim: steps survive, inf and nan are null, a resumed run's lines win, a line
// cut short by a crash is left out.
func TestJSONL(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steps.jsonl")
	norm := math.Inf(1)
	write := func(steps ...Step) {
		j, err := OpenJSONL(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range steps {
			if err := j.Take(&steps[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	loss := func(x float64) []Value { return []Value{{"lm loss", x}} }
	write(Step{Iteration: 1, Losses: loss(4), GradNorm: &norm, Elapsed: 2 * time.Second, GlobalBatchSize: 8, Tokens: 80, Ranks: 4, FLOPs: 3e12}, Step{Iteration: 2, Losses: loss(math.NaN())})
	half, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := half.WriteString(`{"iteration":3,"lo`); err != nil {
		t.Fatal(err)
	}
	half.Close()
	write(Step{Iteration: 2, Losses: loss(3), Update: time.Second / 2}, Step{Iteration: 2, Split: Validation, Losses: loss(3.5)})

	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	steps, err := ReadJSONL(file)
	if err != nil || len(steps) != 3 {
		t.Fatalf("%d steps, %v", len(steps), err)
	}
	if steps[0].Loss["lm loss"] != 4 || steps[0].GradNorm != nil && !math.IsNaN(float64(*steps[0].GradNorm)) || steps[1].Loss["lm loss"] != 3 || steps[1].PhaseSeconds["optimizer"] != 0.5 {
		t.Errorf("%+v", steps)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if last := lines[len(lines)-1]; strings.Contains(last, "learning_rate") || !strings.Contains(last, `"validation":"validation"`) || strings.Contains(lines[0], "validation") {
		t.Errorf("an evaluation has what only a step has, or the other way round:\n%s\n%s", lines[0], last)
	}
	if s := steps[0]; s.Seconds != 2 || s.SamplesPerSecond != 4 || s.TokensPerSecond != 40 || s.RankTokensPerSecond != 10 || s.TFLOPs != 1.5 || s.MFU != 0 {
		t.Errorf("rates %+v", s.Trained)
	}
}

// Claim: the trace is JSON that names ranks and holds the spans recorded while
// on; before Close no file has its name.
func TestTrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.json")
	trace, err := NewTrace(path, 2)
	if err != nil {
		t.Fatal(err)
	}
	tm := NewTimers(LevelAlways)
	tm.Trace, tm.Rank = trace, 1
	tm.Time("off", LevelMicro, func() {})
	trace.Record(true)
	tm.Time("forward-compute", LevelMicro, func() { time.Sleep(time.Millisecond) })
	trace.Mark(`step "1"`, 0, time.Now())
	if err := trace.Marks(1).Take(&Step{Iteration: 3, Time: time.Now(), Losses: []Value{{"lm loss", 2.5}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the file has its name before it is complete")
	}
	if err := trace.Publish(); err != nil {
		t.Fatal(err)
	}
	if early, err := os.ReadFile(path); err != nil || !json.Valid(early) || !strings.Contains(string(early), "iteration 3, lm loss") {
		t.Errorf("what can be looked at before Close: %v: %s", err, early)
	}
	if err := trace.Close(); err != nil {
		t.Fatal(err)
	}
	if err := trace.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		TraceEvents []struct {
			Ph, Name string
			Tid      int
			Ts, Dur  float64
		}
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.TraceEvents) != 5 {
		t.Fatalf("%+v", got.TraceEvents)
	}
	if span := got.TraceEvents[2]; span.Ph != "X" || span.Name != "forward-compute" || span.Tid != 1 || span.Dur < 1000 {
		t.Errorf("%+v", span)
	}
	if mark := got.TraceEvents[3]; mark.Name != `step "1"` {
		t.Errorf("%+v", mark)
	}
	if end := got.TraceEvents[4]; end.Name != "iteration 3, lm loss 2.5000" || end.Tid != 1 {
		t.Errorf("%+v", end)
	}
	var none *Trace
	none.Record(true)
	none.Span("x", 0, time.Now(), time.Now())
	if none.On() || none.Publish() != nil || none.Close() != nil {
		t.Error("a nil Trace does something")
	}
}

// Claim: progress is silent where the output is not a terminal, and draws where it is.
func TestProgress(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	p := NewProgress(file, 10, "work")
	p.Add(5)
	printed := false
	p.Above(func() { printed = true })
	p.Close()
	if info, _ := file.Stat(); info.Size() != 0 || !printed {
		t.Errorf("%d bytes in a file that is no terminal, printed %v", info.Size(), printed)
	}
	var screen bytes.Buffer
	p = newProgress(&screen, 10, "work")
	p.Add(5)
	p.Above(func() { screen.WriteString("a line\n") })
	p.Close()
	if out := screen.String(); !strings.Contains(out, "work") || !strings.Contains(out, "\x1b[2Ka line\n") {
		t.Errorf("%q", out)
	}
}
