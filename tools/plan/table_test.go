package plan

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/internal/golden"
)

// call is `plan` with any of its commands.
func call(line ...string) (string, error) {
	var out bytes.Buffer
	app := &cli.App{Name: "monotron", Commands: []*cli.Command{Command(nil)}, Writer: &out, ErrWriter: io.Discard, ExitErrHandler: func(*cli.Context, error) {}}
	err := app.Run(append([]string{"monotron", "plan"}, line...))
	return out.String(), err
}

// Claim (docs/plan.md): three constants a regime, fitted on every second row of BLOOM's sweep,
// predict the others within 5 percent in the mean; of memory the error is what the page says.
func TestBloomTable(t *testing.T) {
	out, err := call("table", golden.Dir(t, "planner", "bloom.csv"), "--machine", "a100-bloom", "--fit", "seconds_per_iteration", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Rows []struct {
			Problem string `json:"problem"`
		} `json:"rows"`
		Regimes []regime `json:"regimes"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	for i, r := range got.Rows {
		if r.Problem != "" {
			t.Errorf("row %d: %s", i, r.Problem)
		}
	}
	if len(got.Rows) != 68 || len(got.Regimes) != 3 {
		t.Errorf("%d rows, %d regimes", len(got.Rows), len(got.Regimes))
	}
	for _, g := range got.Regimes {
		t.Logf("%+v", g)
		if g.Judged < 5 || g.Mean > 0.05 {
			t.Errorf("%s: mean error %.1f%% on %d rows", g.Name, 100*g.Mean, g.Judged)
		}
		if g.MemoryMean > 0.051 || g.LostSeen < g.Lost-1 {
			t.Errorf("%s: memory's mean error %.1f%%; %d of %d rows run out", g.Name, 100*g.MemoryMean, g.LostSeen, g.Lost)
		}
	}
}

// Claim: rows go through as they came; what is wrong with one is reported in its row, what is
// wrong with the table at once.
func TestTable(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "x.csv")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const model = "layers,hidden,heads,seq_length,max_position_embeddings,vocab_size,tp,dp,micro_batch,global_batch,remark\n"
	out, err := call("table", file(model+"4,512,8,128,128,1000,1,8,1,64,\"one, small\"\n4,512,8,128,128,1000,3,8,1,64,odd\n96,12288,96,2048,2048,51200,1,8,8,64,large\n"), "--machine", "h100")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 4 || !strings.HasSuffix(lines[0], "remark,predicted_seconds,predicted_memory_gb,fits") || !strings.Contains(lines[1], `"one, small"`) || !strings.HasSuffix(lines[1], ",true") ||
		!strings.Contains(lines[2], "heads") || !strings.HasSuffix(lines[3], ",false") {
		t.Errorf("%s", out)
	}
	for text, want := range map[string]exitcode.Code{"": exitcode.BadData, "a,b\n": exitcode.BadData, "a,b\n1\n": exitcode.BadData, "a,b\n\"1,2\n": exitcode.BadData} {
		if _, err := call("table", file(text), "--machine", "h100"); exitcode.CodeOf(err) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, line := range [][]string{{"table"}, {"table", "x.csv"}, {"table", "--machine", "h100"}, {"table", file("a\n1\n"), "--machine", "abacus"}, {"table", file("a\n1\n"), "--machine", "h100", "--fit", "b"}} {
		if _, err := call(line...); exitcode.CodeOf(err) != exitcode.Usage {
			t.Errorf("%v: %v", line, err)
		}
	}
	if out, err := call("table", file("layers,hidden,heads,tp\n4,512,8,0\n"), "--machine", "h100"); exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(out, `tp is ""0""`) {
		t.Errorf("%v\n%s", err, out)
	}
}

// Claim: a table that cannot be read is one answer; what spreadsheets put before it is not.
func TestBadTables(t *testing.T) {
	const head, row = "hidden,layers,heads,micro_batch,global_batch,seq_length,max_position_embeddings,vocab_size", "64,4,4,1,8,64,64,100"
	for text, want := range map[string]string{"": "the file is empty", head + "\n": "no rows", head + ",hidden\n" + row + ",128\n": "hidden is given twice",
		head + "\n1\n": "line 2", head + "\n\"1\n": "line 2", "\ufeff" + head + "\r\n" + row + "\r\n": ""} {
		path := filepath.Join(t.TempDir(), "rows.csv")
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		out, err := call("table", path, "--machine", "h100")
		if want == "" && (err != nil || !strings.HasPrefix(out, "hidden,") || !strings.Contains(out, ",true\n")) {
			t.Errorf("%q: %v, %s", text, err, out)
		} else if want != "" && (exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
