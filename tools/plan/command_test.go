package plan

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
)

// run calls `plan schedule` and returns what it prints.
func run(line ...string) (string, error) {
	var out bytes.Buffer
	app := &cli.App{Name: "monotron", Commands: []*cli.Command{Command(nil)}, Writer: &out, ErrWriter: io.Discard, ExitErrHandler: func(*cli.Context, error) {}}
	err := app.Run(append([]string{"monotron", "plan", "schedule"}, line...))
	return out.String(), err
}

// Claim: the default is the picture of 1F1B that the papers draw.
func TestScheduleText(t *testing.T) {
	out, err := run("--pipeline-model-parallel-size", "2", "--micro-batches", "3")
	want := `1F1B: 2 stages, 3 micro-batches
step 120 ms, bubble 33.3% of the work (equal stages: (p-1)/m = 33.3%)

stage            busy             idle   live
0               90 ms     30 ms  25.0%      2
1               90 ms     30 ms  25.0%      1

        ╷0 ms                    ╷50 ms                   ╷100 ms
stage 0 │0────1────··········0═════════2────1═════════·····2═════════
stage 1 │·····0────0═════════1────1═════════2────2═════════··········

─ forward   ═ backward   · idle   numbers: micro-batches
`
	if err != nil || out != want {
		t.Errorf("%v\n%s, want\n%s", err, out, want)
	}
}

// Claim: text fits 100 columns, whatever is drawn.
func TestScheduleFits(t *testing.T) {
	for _, line := range []string{
		"", "--num-virtual-stages-per-pipeline-rank 4 --micro-batches 32 --pipeline-model-parallel-size 8",
		"--micro-batches 1000", "--pipeline-model-parallel-size 120 --micro-batches 130 --num-layers 120",
		"--num-layers 96 --num-layers-per-virtual-pipeline-stage 3 --head-work 2.5 --embedding-work 0.1 --transfer-ms 3",
		"--num-layers 62 --pp-partition-method type:transformer|embedding --pipeline-model-parallel-size 16",
		"--forward-only --micro-batches 3 --num-virtual-stages-per-pipeline-rank 2",
		"--forward-ms 0 --backward-ms 0", "--forward-ms 0.0001", "--forward-ms 4000",
	} {
		out, err := run(strings.Fields(line)...)
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
		for _, row := range strings.Split(out, "\n") {
			if utf8.RuneCountInString(row) > 100 {
				t.Errorf("%s: %d columns: %s", line, utf8.RuneCountInString(row), row)
			}
		}
	}
}

// Claim: layers go where training puts them, and the head's work shows.
func TestScheduleOfAModel(t *testing.T) {
	out, err := run("--num-layers", "6", "--pipeline-model-parallel-size", "4", "--pp-partition-method", "type:transformer|embedding", "--head-work", "2", "--embedding-work", "1", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var r scheduleReport
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.PerStage) != 4 || r.Micros != 8 || r.Chunks != 1 || r.Schedule != "1f1b" || len(r.PerStage[2].Runs) != 16 || r.PerStage[0].Live != 4 {
		t.Fatalf("%+v", r)
	}
	first, last := r.PerStage[0].Holds[0], r.PerStage[3].Holds[0]
	if !first.Embedding || len(first.Layers) != 1 || !last.Head || len(last.Layers) != 1 || last.Layers[0] != 5 {
		t.Errorf("%+v, %+v", first, last)
	}
	// 9 units of work over 4 stages: 30 ms a micro-batch at 2.25 units.
	if near(r.PerStage[0].Busy, 8*30*2/2.25) && near(r.PerStage[3].Busy, 8*30*3/2.25) {
		return
	}
	t.Errorf("busy %g and %g ms", r.PerStage[0].Busy, r.PerStage[3].Busy)
}

func near(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 }

// Claim: the picture is well-formed XML with a box a forward and backward, and
// replaces an older one completely.
func TestScheduleSVG(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.svg")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := run("--svg", path, "--num-virtual-stages-per-pipeline-rank", "2", "--num-layers", "8"); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	boxes := 0
	for d := xml.NewDecoder(f); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "g" {
			boxes++
		}
	}
	if boxes != 4*2*8*2 {
		t.Errorf("%d boxes", boxes)
	}
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 1 {
		t.Errorf("%d files are left", len(files))
	}
	if _, err := run("--svg", filepath.Join(path, "b.svg")); exitcode.CodeOf(err) != exitcode.IO {
		t.Errorf("a folder that is a file: %v", err)
	}
}

var update = flag.Bool("update", false, "rewrite docs/pictures")

// Claim: the pictures of docs/pipeline.md are what the command draws.
func TestPicturesOfTheDocumentation(t *testing.T) {
	for name, line := range map[string]string{"1f1b.svg": "", "interleaved.svg": "--num-virtual-stages-per-pipeline-rank 2"} {
		path, drawn := filepath.Join("../../docs/pictures", name), filepath.Join(t.TempDir(), name)
		if *update {
			drawn = path
		}
		if _, err := run(append(strings.Fields(line), "--svg", drawn)...); err != nil {
			t.Fatal(err)
		}
		want, err1 := os.ReadFile(drawn)
		have, err2 := os.ReadFile(path)
		if err1 != nil || err2 != nil || !bytes.Equal(have, want) {
			t.Errorf("%s is not what is drawn; run go test ./tools/plan -update (%v, %v)", path, err1, err2)
		}
	}
}

// Claim: the lists can be read, exchanges included.
func TestScheduleActions(t *testing.T) {
	out, err := run("--actions", "--pipeline-model-parallel-size", "2", "--micro-batches", "1")
	want := `stage 0
  F0.0
  [send activation of chunk 0, micro-batch 0 to stage 1]
  [receive gradient of chunk 0, micro-batch 0 from stage 1]
  B0.0
stage 1
  [receive activation of chunk 0, micro-batch 0 from stage 0]
  F0.0
  B0.0
  [send gradient of chunk 0, micro-batch 0 to stage 0]
`
	if err != nil || out != want {
		t.Errorf("%v\n%s", err, out)
	}
}

// Claim: ranks that share sequences have equal work in each step.
func TestScheduleOfSharedSequences(t *testing.T) {
	out, err := run("--context-parallel-size", "4", "--seq-length", "64")
	want := "\n4 ranks share each sequence; pairs of a query and a key in each step of a ring:\nranks 0 to 3: 136 128 128 128\n"
	if err != nil || !strings.HasSuffix(out, want) {
		t.Errorf("%v\n%s", err, out)
	}
}

// Claim: what cannot run is refused with exit code 2 and what would do.
func TestScheduleRefuses(t *testing.T) {
	for line, want := range map[string]string{
		"--num-layers 10": "or --pipeline-model-parallel-layout 'Ettt|ttt|tt|ttL'",
		"--num-virtual-stages-per-pipeline-rank 2 --micro-batches 9": "use 8 or 12 micro-batches",
		"--pipeline-model-parallel-layout Ett|ttL":                   "needs --num-layers",
		"--micro-batches 99999999":                                   "--micro-batches must be from 1 to",
		"--micro-batches 200000 --pipeline-model-parallel-size 64":   "; lower --micro-batches",
		"--pipeline-model-parallel-size 0":                           "--pipeline-model-parallel-size must be from 1 to",
		"--forward-ms -1":                                            "--forward-ms must be from 0 to 1000000000, not -1",
		"--head-work nan --num-layers 4":                             "--head-work must be from 0 to 1000000000, not NaN",
		"--micro-batchs 3":                                           "--micro-batches",
		"--context-parallel-size 3 --seq-length 64":                  "not a multiple of 6 (twice --context-parallel-size): use --seq-length 60 or 66",
		"stray": "stray",
		"--num-layers 4 --pipeline-model-parallel-layout E((t|)*2":              "a closing parenthesis is missing",
		"--num-layers 100000000 --pipeline-model-parallel-size 100000000":       "--num-layers must be from 0 to 100000, not 100000000",
		"--num-layers 4 --num-virtual-stages-per-pipeline-rank 100000000000000": "--num-virtual-stages-per-pipeline-rank must be from 0 to",
	} {
		if _, err := run(strings.Fields(line)...); exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}
