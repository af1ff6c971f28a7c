package dashboard

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"monotron/internal/exitcode"
	"monotron/megatron/telemetry"
	"monotron/mpu/comm/failure"
)

// line is a step's as --log-jsonl writes it.
func line(iteration int, loss float64) string {
	return fmt.Sprintf(`{"time":"2026-11-22T17:00:%02dZ","iteration":%d,"consumed_samples":%d,"consumed_tokens":%d,"loss":{"lm loss":%v},"learning_rate":0.001,"grad_norm":%v,"loss_scale":1,"seconds":0.5,"phase_seconds":{"data":0.01},"tokens_per_second":64,"memory_bytes":1048576}`,
		iteration%60, iteration, iteration*4, iteration*128, loss, loss/3)
}

func evaluation(iteration int, loss float64) string {
	return fmt.Sprintf(`{"time":"2026-11-22T17:00:00Z","iteration":%d,"consumed_tokens":%d,"loss":{"lm loss":%v},"validation":"validation"}`, iteration, iteration*128, loss)
}

// logOf writes a run's log into a folder of its own.
func logOf(t *testing.T, name string, lines ...string) (folder string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(folder, "steps.log"), strings.Join(lines, "\n"))
	return folder
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func opened(t *testing.T, paths ...string) []*Run {
	t.Helper()
	var sources []Source
	for _, path := range paths {
		sources = append(sources, Source{Path: path, FlagsOf: noFlags, Finished: true})
	}
	runs, err := OpenAll(sources)
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

func noFlags(string, int64) (map[string][]string, error) { return nil, nil }

// TestWhatALogSays: what was trained again counts once, as last trained, and what is not a step is counted
// (docs/logging.md).
func TestWhatALogSays(t *testing.T) {
	long := `{"x":"` + strings.Repeat("x", 2*longestLine) + `"}`
	for name, c := range map[string]struct {
		lines           []string
		steps           []int
		validations     int
		torn, replaced  int
		restarts        []int
		lossAtTheSecond float64
	}{
		"a whole run":               {[]string{line(1, 9), line(2, 8), evaluation(2, 8.5), line(3, 7), ""}, []int{1, 2, 3}, 1, 0, 0, nil, 8},
		"killed in a line":          {[]string{line(1, 9), line(2, 8), line(3, 7)[:50]}, []int{1, 2}, 0, 1, 0, nil, 8},
		"killed before the newline": {[]string{line(1, 9), line(2, 8)}, []int{1, 2}, 0, 0, 0, nil, 8},
		"resumed behind a torn line": {[]string{line(1, 9), line(2, 8), evaluation(2, 8.5), line(3, 7), line(4, 6)[:70], line(2, 5), line(3, 4), ""},
			[]int{1, 2, 3}, 0, 1, 3, []int{2}, 5},
		"resumed, not yet as far":      {[]string{line(1, 9), line(2, 8), line(3, 7), line(4, 6), line(3, 5), ""}, []int{1, 2, 3}, 0, 0, 2, []int{3}, 8},
		"evaluated twice at the end":   {[]string{line(1, 9), line(2, 8), evaluation(2, 8.5), evaluation(2, 8.4), ""}, []int{1, 2}, 1, 0, 0, nil, 8},
		"foreign, empty and long ones": {[]string{line(1, 9), "", "[]", `{"a":1}`, long, "\x00", line(2, 8), ""}, []int{1, 2}, 0, 4, 0, nil, 8},
	} {
		t.Run(name, func(t *testing.T) {
			r := opened(t, logOf(t, "run", c.lines...))[0]
			var steps, restarts []int
			for _, i := range r.Steps.Of("iteration") {
				steps = append(steps, int(i))
			}
			for _, m := range r.Restarts {
				restarts = append(restarts, m.Iteration)
			}
			if !slices.Equal(steps, c.steps) || !slices.Equal(restarts, c.restarts) || r.Torn != c.torn || r.Replaced != c.replaced || r.Evaluations[telemetry.Validation].Len() != c.validations {
				t.Errorf("steps %v, restarts %v, %d torn, %d replaced, %d evaluations", steps, restarts, r.Torn, r.Replaced, r.Evaluations[telemetry.Validation].Len())
			}
			if got := r.Steps.Of("loss")[1]; got != c.lossAtTheSecond {
				t.Errorf("loss of step 2 is %v, want %v", got, c.lossAtTheSecond)
			}
		})
	}
}

// TestWhichLog: a folder's log is found under any name, and a file that is not a log is refused.
func TestWhichLog(t *testing.T) {
	folder := logOf(t, "run", line(1, 9), "")
	write(t, filepath.Join(folder, "notes.txt"), "hello\n")
	if log, err := findLog(folder); err != nil || filepath.Base(log) != "steps.log" {
		t.Errorf("%s, %v", log, err)
	}
	write(t, filepath.Join(folder, "second.jsonl"), line(1, 9)+"\n")
	for path, want := range map[string]exitcode.Code{
		folder:                                exitcode.Usage,
		t.TempDir():                           exitcode.NoInput,
		filepath.Join(folder, "none"):         exitcode.NoInput,
		filepath.Join(folder, "notes.txt"):    exitcode.BadData,
		filepath.Join(folder, "second.jsonl"): 0,
	} {
		if _, err := findLog(path); exitcode.CodeOf(err) != want {
			t.Errorf("%s: %v, want code %d", path, err, want)
		}
	}
}

// TestLogOfASaveFolder: the checkpoints of a folder name the run's log; without one the error says what to give.
func TestLogOfASaveFolder(t *testing.T) {
	log := filepath.Join(logOf(t, "run", line(1, 9), ""), "steps.log")
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "iter_0000001"), 0o755); err != nil {
		t.Fatal(err)
	}
	named := func(string, int64) (map[string][]string, error) {
		return map[string][]string{"log-jsonl": {log}}, nil
	}
	if runs, err := OpenAll([]Source{{Path: folder, FlagsOf: named}}); err != nil || runs[0].Log() != log {
		t.Errorf("%v", err)
	}
	_, err := OpenAll([]Source{{Path: folder, FlagsOf: noFlags}})
	if exitcode.CodeOf(err) != exitcode.NoInput || !strings.Contains(err.Error(), "only checkpoints; give the file that --log-jsonl wrote") {
		t.Errorf("%v", err)
	}
}

// TestDifferences: flags with the same value everywhere are left out, and those that say where a run is kept come last; a run whose flags
// are not known makes none.
func TestDifferences(t *testing.T) {
	runs := []*Run{{Flags: map[string]string{"load": "a", "lr": "1e-3", "seed": "1"}}, {Flags: map[string]string{"load": "b", "lr": "2e-3", "seed": "1", "fp16": "true"}}, {}}
	want := []Difference{{"fp16", []string{notGiven, "true", notKnown}, false}, {"lr", []string{"1e-3", "2e-3", notKnown}, false}, {"load", []string{"a", "b", notKnown}, true}}
	got := Differences(runs)
	if len(got) != len(want) {
		t.Fatalf("%v", got)
	}
	for i := range want {
		if got[i].Flag != want[i].Flag || got[i].Where != want[i].Where || !slices.Equal(got[i].Values, want[i].Values) {
			t.Errorf("%v, want %v", got[i], want[i])
		}
	}
}

// Claim (docs/report.md): runs differ in flags as they were given, not in the paths of the copies of one tokenizer
// that are in their checkpoints.
func TestCopiesInCheckpointsDoNotDiffer(t *testing.T) {
	r := &Run{source: Source{FlagsOf: func(folder string, _ int64) (map[string][]string, error) {
		return map[string][]string{"lr": {"1e-3"}, "vocab-file": {filepath.Join(folder, "iter_0000001", "vocab.json")}, "merge-file": {"other/merges.txt"}}, nil
	}}}
	r.flags([]string{"run/"})
	if want := map[string]string{"lr": "1e-3", "merge-file": "other/merges.txt"}; !maps.Equal(r.Flags, want) {
		t.Errorf("%v, want %v", r.Flags, want)
	}
}

const hostile = `</script><img src=x onerror="document.body.dataset.owned='yes'"><script>document.body.dataset.owned='yes'</script>|*`

// hostileRun has text from outside wherever a run has text.
func hostileRun(t *testing.T) *Run {
	quoted, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	with := func(line, fields string) string {
		return strings.TrimSuffix(line, "}") + "," + strings.ReplaceAll(fields, "HOSTILE", string(quoted)) + "}"
	}
	folder := logOf(t, "run", line(1, 9), with(evaluation(1, 8), `"samples":[{"prompt":HOSTILE,"text":HOSTILE}]`),
		with(line(2, 8), `"train_iters":5,"rank_seconds":[0.1,0.2],"straggler_scores":[1,0.5],"straggler_own_scores":[1,0.9],"memory_by_purpose":{HOSTILE:1e9},"planned_memory_by_purpose":{HOSTILE:2e9,"optimizer":1e6},"alerts":[{"kind":HOSTILE,"text":HOSTILE}],"experts":[{"layer":1,"max":2,"shares":[0,2]}]`),
		line(3, 1.0/3), "")
	write(t, filepath.Join(folder, "trace.json"), `{"traceEvents":[{"ph":"X","name":`+string(quoted)+`,"tid":0,"ts":1,"dur":5},{"ph":"i","name":"iteration 1","tid":0,"ts":9}]}`)
	if err := (&failure.Verdict{Kind: "death", Step: 2, Text: hostile}).Write(folder); err != nil {
		t.Fatal(err)
	}
	r := opened(t, folder)[0]
	r.Name, r.Note, r.Notes, r.Flags = hostile, hostile, hostile, map[string]string{"lr": hostile}
	r.About = &telemetry.About{Name: hostile, Command: []string{hostile}, Facts: []telemetry.Fact{{Label: hostile, Text: hostile}}, Flags: []telemetry.Setting{{Name: hostile, Value: hostile, Default: hostile}}}
	return r
}

// TestTextFromOutsideIsEscaped: no text of a run is markup in what is written.
func TestTextFromOutsideIsEscaped(t *testing.T) {
	runs := []*Run{hostileRun(t), opened(t, logOf(t, "plain", line(1, 9), ""))[0]}
	runs[1].Flags = map[string]string{"lr": "1"}
	var b bytes.Buffer
	if err := WritePage(&b, runs); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "<img") || !strings.Contains(b.String(), "onerror") {
		t.Error("text of the run is there as markup, or not at all")
	}
}

// served is the page of a run that is followed.
func served(t *testing.T, folder string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(newViewer([]Source{{Path: folder, FlagsOf: noFlags}}).handler())
	t.Cleanup(server.Close)
	return server
}

// listen gives the lines of the events after id.
func listen(t *testing.T, server *httptest.Server, id string) *bufio.Scanner {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	ask.Header.Set("Last-Event-ID", id)
	reply, err := server.Client().Do(ask)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reply.Body.Close() })
	return bufio.NewScanner(reply.Body)
}

// nextRow waits for the next step, and returns its id.
func nextRow(t *testing.T, lines *bufio.Scanner) (id string, n news) {
	t.Helper()
	row := false
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case name == "id":
			id = value
		case name == "event":
			row = value == "row"
		case name == "data" && row:
			if err := json.Unmarshal([]byte(value), &n); err != nil {
				t.Fatal(err)
			}
			return id, n
		}
	}
	t.Fatalf("the events ended: %v", lines.Err())
	return "", n
}

func appendTo(t *testing.T, folder, text string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(folder, "steps.log"), os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// TestEventsContinueWhereABrowserWas: history and news together are the log, each line once,
// also over a lost connection; a line is sent when it is complete.
func TestEventsContinueWhereABrowserWas(t *testing.T) {
	folder := logOf(t, "run", line(1, 9), line(2, 8), "")
	server := served(t, folder)
	reply, err := server.Client().Get(server.URL + "/data")
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	var data pageData
	if err := json.NewDecoder(reply.Body).Decode(&data); err != nil || len(data.Runs[0].Steps[0]) != 2 {
		t.Fatalf("%v, %v", data, err)
	}
	lines := listen(t, server, data.Position)
	appendTo(t, folder, line(3, 7)+"\n"+line(4, 6)[:40])
	id, n := nextRow(t, lines)
	if n.Row[0] != 3 || n.Row[3] != 7 {
		t.Errorf("the first news are %v", n)
	}
	appendTo(t, folder, line(4, 6)[40:]+"\n")
	if _, n := nextRow(t, lines); n.Row[0] != 4 || n.Row[3] != 6 {
		t.Errorf("the second news are %v", n)
	}
	if _, n := nextRow(t, listen(t, server, id)); n.Row[0] != 4 {
		t.Errorf("after the connection was lost behind step 3 came %v", n)
	}
}

// TestAStuckViewerHoldsUpNobody: a browser that reads nothing of a long history does not
// keep another from its news.
func TestAStuckViewerHoldsUpNobody(t *testing.T) {
	var all []string
	for i := range 20000 { // more than sockets buffer
		all = append(all, line(i+1, 9))
	}
	folder := logOf(t, "run", append(all, "")...)
	server := served(t, folder)
	stuck, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	if _, err := fmt.Fprint(stuck, "GET /events?from=0 HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(filepath.Join(folder, "steps.log"))
	if err != nil {
		t.Fatal(err)
	}
	lines := listen(t, server, fmt.Sprint(st.Size()))
	appendTo(t, folder, line(20001, 5)+"\n")
	if _, n := nextRow(t, lines); n.Row[0] != 20001 {
		t.Errorf("came %v", n)
	}
}

// browse gives the page as a browser has it once its script has run.
func browse(t *testing.T, address string) string {
	t.Helper()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium here: apt-get install chromium")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--user-data-dir="+userData(t), "--window-size=1280,1000",
		"--virtual-time-budget=3000", "--dump-dom", address).Output()
	if err != nil {
		t.Fatalf("chromium: %v", err)
	}
	return string(out)
}

// TestTheBrowserShowsTheLog: charts are drawn, the numbers are the log's to the last digit,
// and hostile text is text.
func TestTheBrowserShowsTheLog(t *testing.T) {
	r := hostileRun(t)
	path := filepath.Join(t.TempDir(), "report.html")
	var b bytes.Buffer
	if err := WritePage(&b, []*Run{r}); err != nil {
		t.Fatal(err)
	}
	write(t, path, b.String())
	page := browse(t, "file://"+path)
	if strings.Contains(page, "data-owned") || strings.Contains(page, "<img") || !strings.Contains(page, `data-ready="yes"`) {
		t.Error("a script of the text ran, its markup is an element, or the page was not drawn")
	}
	for _, panel := range []string{"loss", "learning-rate", "gradient-norm", "speed", "memory", "data-wait"} {
		_, figure, found := strings.Cut(page, `<figure id="`+panel+`"`)
		figure, _, _ = strings.Cut(figure, "</figure>")
		if !found || !strings.Contains(figure, "<canvas") || !strings.Contains(figure, `data-points="3"`) {
			t.Errorf("%s: no chart of 3 points: %s", panel, figure)
		}
	}
	for _, id := range []string{"memory-by-purpose", "rank-spread", "expert-balance", "lanes", "samples"} {
		if !strings.Contains(page, `<figure id="`+id+`"`) {
			t.Errorf("there is no %s", id)
		}
	}
	for i := range r.Steps.Len() {
		if want := cells(r.Steps.Row(i)); !strings.Contains(page, want) {
			t.Errorf("step %v is not there as %s", r.Steps[0][i], want)
		}
	}
}

// cells are the numbers of a row as the page's table has them.
func cells(numbers []telemetry.Number) string {
	var b strings.Builder
	for _, n := range numbers {
		text, err := json.Marshal(n)
		if err != nil || string(text) == "null" {
			text = nil
		}
		fmt.Fprintf(&b, "<td>%s</td>", text)
	}
	return b.String()
}

// TestNames: as given, else as the run says, else the folder's; those of several runs differ, and none is a path.
func TestNames(t *testing.T) {
	folders := map[string]string{"one": logOf(t, "one", line(1, 9), ""), "two": logOf(t, "two", line(1, 9), ""), "three": logOf(t, "three", line(1, 9), "")}
	for _, name := range []string{"one", "two"} {
		if err := (&telemetry.About{Name: "GPT on pages", Notes: "as asked"}).Write(filepath.Join(folders[name], "steps.log")); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(folders["one"], "notes.txt"), "  written later\n")
	names := func(paths ...string) (names []string) {
		for _, r := range opened(t, paths...) {
			names = append(names, r.Name)
		}
		return names
	}
	if got := names(folders["one"]); !slices.Equal(got, []string{"GPT on pages"}) {
		t.Errorf("one: %v", got)
	}
	if got := names(folders["one"], folders["two"], folders["three"]); !slices.Equal(got, []string{"one", "two", "three"}) {
		t.Errorf("three: %v", got)
	}
	if r := opened(t, folders["one"])[0]; r.Notes != "written later" {
		t.Errorf("notes: %q", r.Notes)
	}
	if r := opened(t, folders["two"])[0]; r.Notes != "as asked" || r.Note != "the flags are not known, because the folder of the log has no checkpoint" {
		t.Errorf("notes: %q, note %q", r.Notes, r.Note)
	}
}

// Claim (docs/report.md): logs of one folder have the names of their files, those of folders of one name the names above
// them; a log that is given twice has a number.
func TestNamesOfLogsInOneFolder(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"logs/1e-3.jsonl", "logs/1e-2.jsonl", "more/logs/1e-3.jsonl", "more/other/1e-3.jsonl"} {
		write(t, filepath.Join(dir, name), line(1, 9)+"\n")
		if err := (&telemetry.About{Name: "GPT on pages"}).Write(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	top := filepath.Base(dir)
	for _, c := range []struct{ logs, want []string }{
		{[]string{"logs/1e-3.jsonl", "logs/1e-2.jsonl"}, []string{"1e-3", "1e-2"}},
		{[]string{"logs/1e-3.jsonl", "logs/1e-2.jsonl", "more/other/1e-3.jsonl"}, []string{"1e-3", "1e-2", "other"}},
		{[]string{"logs/1e-3.jsonl", "more/logs/1e-3.jsonl"}, []string{top + " logs 1e-3", "more logs 1e-3"}},
		{[]string{"logs/1e-3.jsonl", "logs/1e-3.jsonl"}, []string{"GPT on pages", "GPT on pages (2)"}},
	} {
		var paths, got []string
		for _, log := range c.logs {
			paths = append(paths, filepath.Join(dir, log))
		}
		for _, r := range opened(t, paths...) {
			got = append(got, r.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.logs, got, c.want)
		}
	}
}

// Claim (docs/report.md): checkpoints of other runs next to a log do not become marks of a run that says where it saves.
func TestCheckpointsOfOtherRuns(t *testing.T) {
	for save, want := range map[string]int{"elsewhere/mine": 1, "": 0, "none": 2} {
		folder := logOf(t, "run", line(1, 9), "")
		for _, name := range []string{"mine", "other"} {
			write(t, filepath.Join(folder, name, "iter_0000001", "manifest.json"), "{}")
		}
		about := telemetry.About{Name: "GPT", Flags: []telemetry.Setting{{Name: "lr", Value: "0.001"}}}
		switch save {
		case "none": // it does not say
			about.Flags = nil
		case "":
		default:
			about.Flags = append(about.Flags, telemetry.Setting{Name: "save", Value: save})
		}
		if err := about.Write(filepath.Join(folder, "steps.log")); err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, m := range opened(t, folder)[0].Marks() {
			if m.Kind == "checkpoint" && (want != 1 || strings.Contains(m.Text, "mine")) {
				got++
			}
		}
		if got != want {
			t.Errorf("--save %q: %d marks, want %d", save, got, want)
		}
	}
}

// TestNotesAreKept: what is written on the page of this machine alone is in the folder's file of notes, whichever that is; other pages,
// other sites, other encodings and texts without end are refused.
func TestNotesAreKept(t *testing.T) {
	folder := logOf(t, "run", line(1, 9), "")
	sources := []Source{{Path: folder, FlagsOf: noFlags}}
	local := newViewer(sources)
	local.local = true
	temporary := newViewer([]Source{{Path: folder, FlagsOf: noFlags, Passing: true}})
	temporary.local = true
	put := func(v *viewer, query, text string, header http.Header) int {
		ask := httptest.NewRequest(http.MethodPut, "/notes"+query, strings.NewReader(text))
		maps.Copy(ask.Header, header)
		answer := httptest.NewRecorder()
		v.handler().ServeHTTP(answer, ask)
		return answer.Code
	}
	for name, c := range map[string]struct {
		v           *viewer
		query, text string
		header      http.Header
		want        int
	}{
		"of all machines":    {newViewer(sources), "?run=0", "x", nil, http.StatusForbidden},
		"of a log that goes": {temporary, "?run=0", "x", nil, http.StatusForbidden},
		"another site":       {local, "?run=0", "x", http.Header{"Origin": {"https://evil.example"}}, http.StatusForbidden},
		"no such run":        {local, "?run=1", "x", nil, http.StatusBadRequest},
		"no number":          {local, "", "x", nil, http.StatusBadRequest},
		"not UTF-8":          {local, "?run=0", "\xff", nil, http.StatusBadRequest},
		"too long":           {local, "?run=0", strings.Repeat("x", longestNotes+1), nil, http.StatusRequestEntityTooLarge},
		"as it should be":    {local, "?run=0", " better than before\n", nil, http.StatusNoContent},
	} {
		if got := put(c.v, c.query, c.text, c.header); got != c.want {
			t.Errorf("%s: status %d, want %d", name, got, c.want)
		}
	}
	if text, err := os.ReadFile(filepath.Join(folder, "notes.md")); err != nil || string(text) != " better than before\n" || opened(t, folder)[0].Notes != "better than before" {
		t.Errorf("notes.md is %q, %v", text, err)
	}
	if err := os.Rename(filepath.Join(folder, "notes.md"), filepath.Join(folder, "notes.txt")); err != nil {
		t.Fatal(err)
	}
	if put(local, "?run=0", "worse", nil) != http.StatusNoContent || opened(t, folder)[0].Notes != "worse" {
		t.Error("notes.txt is not what is written")
	}
	if _, err := os.Stat(filepath.Join(folder, "notes.md")); err == nil {
		t.Error("there is a second file of notes")
	}
	text, err := local.history()
	if err != nil || !strings.Contains(string(text), `"writable":true`) || !strings.Contains(string(text), `"notes":"worse"`) {
		t.Errorf("the page is told %s, %v", text, err)
	}
}

// TestARunBeforeItsFirstStep: a log that a run has opened is a log, without a step as yet; any other empty file is none.
func TestARunBeforeItsFirstStep(t *testing.T) {
	folder := logOf(t, "run")
	log := filepath.Join(folder, "steps.log")
	if _, err := findLog(folder); exitcode.CodeOf(err) != exitcode.NoInput {
		t.Errorf("an empty file is taken for a log: %v", err)
	}
	if err := (&telemetry.About{Name: "GPT"}).Write(log); err != nil {
		t.Fatal(err)
	}
	r := opened(t, folder)[0]
	if r.Name != "GPT" || r.Steps.Len() != 0 || r.Summary().Step != 0 {
		t.Errorf("%q with %d steps", r.Name, r.Steps.Len())
	}
	if err := WritePage(io.Discard, []*Run{r}); err != nil {
		t.Error(err)
	}
}

// Claim (docs/report.md): without a checkpoint the flags are those that the run says of itself.
func TestFlagsWithoutACheckpoint(t *testing.T) {
	folder := logOf(t, "run", line(1, 9), "")
	about := telemetry.About{Name: "GPT", Flags: []telemetry.Setting{{Name: "lr", Value: "0.001", Default: ""}}}
	if err := about.Write(filepath.Join(folder, "steps.log")); err != nil {
		t.Fatal(err)
	}
	if r := opened(t, folder)[0]; r.Note != "" || !maps.Equal(r.Flags, map[string]string{"lr": "0.001"}) {
		t.Errorf("%v, note %q", r.Flags, r.Note)
	}
}

// TestPageWithoutDataIsSmall: what every page costs.
func TestPageWithoutDataIsSmall(t *testing.T) {
	var b bytes.Buffer
	if err := writePage(&b, nil); err != nil {
		t.Fatal(err)
	}
	if b.Len() > 150_000 {
		t.Errorf("%d bytes", b.Len())
	}
}

// Claim (docs/report.md): the legend of a single run does not repeat its name, so that "validation" fits.
func TestLegendOfOneRun(t *testing.T) {
	evaluated := `{"time":"2026-11-22T17:00:02Z","iteration":1,"loss":{"lm loss":0.7},"validation":"validation"}`
	runs := opened(t, logOf(t, "run", line(1, 9), evaluated, line(2, 8), strings.ReplaceAll(evaluated, `"iteration":1`, `"iteration":2`), ""))
	runs[0].Name = "GPT 137k on a corpus with a long name and 2 more"
	if text := Screen(runs, 80, 6, time.Now(), false); !strings.Contains(text, ": training, validation\n") || strings.Count(text, "GPT 137k")+strings.Count(text, "2 more") > 1 {
		t.Error(text)
	}
}
