package dashboard

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monotron/megatron/telemetry"
)

// browser is a headless Chromium that is controlled through a pipe.
type browser struct {
	t       *testing.T
	to      *os.File
	from    *bufio.Reader
	session string
	calls   int
}

// openBrowser shows a page.
func openBrowser(t *testing.T, address string) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium here: apt-get install chromium")
	}
	theirs, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, back, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(path, "--headless=new", "--no-sandbox", "--disable-gpu", "--user-data-dir="+userData(t), "--remote-debugging-pipe", "--window-size=1280,1000")
	command.ExtraFiles = []*os.File{theirs, back} // 3 and 4
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		_ = to.Close()
		_ = from.Close()
	})
	_ = theirs.Close()
	_ = back.Close()
	b := &browser{t: t, to: to, from: bufio.NewReaderSize(from, 1<<20)}
	var target struct{ TargetID, SessionID string }
	b.call("Target.createTarget", map[string]any{"url": address}, &target)
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	b.session = target.SessionID
	return b
}

// userData is a folder for a browser's files. The browser's own processes can write there for a moment after it
// was killed, so the folder is removed as soon as that is possible.
func userData(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "monotron-browser")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 200 {
			if err = os.RemoveAll(folder); err == nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Error(err)
	})
	return folder
}

// call waits for a method's answer; events between are passed over.
func (b *browser) call(method string, params map[string]any, result any) {
	b.t.Helper()
	b.calls++
	text, err := json.Marshal(map[string]any{"id": b.calls, "method": method, "params": params, "sessionId": b.session})
	if b.session == "" {
		text, err = json.Marshal(map[string]any{"id": b.calls, "method": method, "params": params})
	}
	if err == nil {
		_, err = b.to.Write(append(text, 0))
	}
	for err == nil {
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		if text, err = b.from.ReadBytes(0); err != nil {
			break
		}
		if err = json.Unmarshal(text[:len(text)-1], &answer); err != nil || answer.ID != b.calls {
			continue
		}
		if answer.Error != nil {
			b.t.Fatalf("%s: %s", method, answer.Error.Message)
		}
		if err = json.Unmarshal(answer.Result, result); err == nil {
			return
		}
	}
	b.t.Fatalf("%s: %v", method, err)
}

// eval is the value of an expression on the page, as text.
func (b *browser) eval(expression string) string {
	b.t.Helper()
	var r struct{ Result struct{ Value any } }
	b.call("Runtime.evaluate", map[string]any{"expression": expression}, &r)
	return fmt.Sprint(r.Result.Value)
}

// becomes waits until an expression has a value, and says how long that took.
func (b *browser) becomes(expression, want string) time.Duration {
	b.t.Helper()
	began, got := time.Now(), ""
	for time.Since(began) < time.Minute {
		if got = b.eval(expression); got == want {
			return time.Since(began)
		}
		time.Sleep(20 * time.Millisecond)
	}
	b.t.Fatalf("%s is %s, want %s", expression, got, want)
	return 0
}

// serveAt is Serve at an address that was served before.
func serveAt(t *testing.T, address, folder string) *Server {
	t.Helper()
	for range 100 {
		if s, err := Serve(address, []Source{{Path: folder, FlagsOf: noFlags}}, nil); err == nil {
			return s
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("%s stays taken", address)
	return nil
}

// TestABrowserFollowsARun: new steps, a resumed run and a server that was gone for a while
// reach the page with the log's values; the keyboard reads a chart; later text of the run
// is not run as a script either.
func TestABrowserFollowsARun(t *testing.T) {
	folder := logOf(t, "run", line(1, 9), line(2, 8), "")
	server := serveAt(t, "127.0.0.1:0", folder)
	address := server.Addr()
	b := openBrowser(t, "http://"+address+"/")
	const points, last = "document.querySelector('#loss')?.dataset.points", "String(data.runs[0].steps[3].at(-1))"
	b.becomes(points, "2")
	appendTo(t, folder, line(3, 1.0/3)+"\n")
	t.Logf("a new step was drawn after %v", b.becomes(points, "3"))
	b.becomes(last, "0.3333333333333333")

	appendTo(t, folder, line(2, 7)+"\n")
	b.becomes(points, "2")
	b.becomes(last, "7")
	b.becomes("document.querySelector('#events').textContent.includes('resumed; the run before it had reached step 3')", "true")

	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	b.becomes("document.querySelector('#state').textContent.startsWith('No connection')", "true")
	quoted, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	alert := strings.TrimSuffix(line(3, 6), "}") + `,"alerts":[{"kind":"x","text":` + string(quoted) + `}],"train_iters":4}`
	appendTo(t, folder, alert+"\n")
	server = serveAt(t, address, folder)
	t.Cleanup(func() { _ = server.Close() })
	b.becomes(points, "3")
	b.becomes("document.querySelector('#events').textContent.includes('<script>')", "true")
	b.becomes("document.querySelector('#courses progress')?.value + ' ' + document.querySelector('#courses').textContent.includes('step 3 of 4')", "3 true")

	b.eval("document.querySelector('#loss .plot').focus()")
	for range 2 {
		b.eval("document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'End', bubbles: true}))")
	}
	b.becomes("document.querySelector('#loss output').textContent.includes('step 3') && document.querySelector('#loss output').getAttribute('aria-live')", "polite")
	if owned := b.eval("document.body.dataset.owned"); owned != "<nil>" {
		t.Errorf("a script of the run's text ran: %s", owned)
	}
}

// TestWhatARunDoes: a run that this process trains starts, runs, and stands still where no step came for long; one that is only
// watched has stopped. Notes are written on the page, and a second page has them.
func TestWhatARunDoes(t *testing.T) {
	folder := logOf(t, "run")
	log := filepath.Join(folder, "steps.log")
	server, err := Serve("127.0.0.1:0", []Source{{Path: log, Ongoing: true, About: &telemetry.About{Name: "GPT"}, FlagsOf: noFlags}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	b := openBrowser(t, "http://"+server.Addr()+"/")
	const pill = "document.querySelector('#status .pill')?.textContent"
	b.becomes(pill, "starting")
	at := func(i int, when time.Time) string {
		return strings.Replace(line(i, 9), fmt.Sprintf("2026-11-22T17:00:%02dZ", i%60), when.UTC().Format(time.RFC3339), 1)
	}
	appendTo(t, folder, at(1, time.Now().Add(-10*time.Minute))+"\n")
	b.becomes(pill, "stalled")
	appendTo(t, folder, at(2, time.Now())+"\n")
	b.becomes(pill, "running")

	b.eval("document.querySelector('#about .written button').click(), document.querySelector('#about textarea').value = 'a <b>good</b> one'")
	appendTo(t, folder, at(3, time.Now())+"\n")
	b.becomes("document.querySelector('#loss')?.dataset.points", "3")
	b.becomes("document.querySelector('#about textarea').value", "a <b>good</b> one") // news do not disturb who writes
	b.eval("document.querySelector('#about .row button').click()")
	b.becomes("document.querySelector('#about .notes')?.textContent + document.querySelectorAll('#about b').length", "a <b>good</b> one0")
	second := openBrowser(t, "http://"+server.Addr()+"/")
	second.becomes("document.querySelector('#about .notes')?.textContent", "a <b>good</b> one")
	b.eval("document.querySelector('#about .written button').click(), document.querySelector('#about textarea').value = 'better', document.querySelector('#about .row button').click()")
	second.becomes("document.querySelector('#about .notes')?.textContent", "better")

	watched := openBrowser(t, "http://"+serveAt(t, "127.0.0.1:0", logOf(t, "old", line(1, 9), "")).Addr()+"/")
	watched.becomes(pill, "stopped")
}

// TestAnotherNameIsRefused: who asks this machine under another's name is a page of the
// network that wants to read the run.
func TestAnotherNameIsRefused(t *testing.T) {
	server := served(t, logOf(t, "run", line(1, 9), ""))
	for host, want := range map[string]int{"localhost:1": 200, "127.0.0.1": 200, "[::1]:80": 200, "evil.example": 403, "evil.example:80": 403} {
		ask, err := http.NewRequest(http.MethodGet, server.URL+"/data", nil)
		if err != nil {
			t.Fatal(err)
		}
		ask.Host = host
		reply, err := server.Client().Do(ask)
		if err != nil {
			t.Fatal(err)
		}
		_ = reply.Body.Close()
		if reply.StatusCode != want {
			t.Errorf("host %s: %d, want %d", host, reply.StatusCode, want)
		}
	}
}

// TestAxes: what the page's script computes, by hand: ticks, labels of one format, an axis that fits, and a smoothed curve that
// lags at neither end.
func TestAxes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.html")
	var page bytes.Buffer
	scored := strings.TrimSuffix(line(2, 8), "}") + `,"rank_seconds":[0.1,0.2],"straggler_scores":[1,0.5],"straggler_own_scores":[1,0.9]}`
	if err := WritePage(&page, opened(t, logOf(t, "run", line(1, 9), scored, ""))); err != nil {
		t.Fatal(err)
	}
	write(t, path, page.String())
	b := openBrowser(t, "file://"+path)
	b.becomes("document.body.dataset.ready", "yes")
	for expression, want := range map[string]string{
		"JSON.stringify(ticks(0, 300, 10))": "[0,50,100,150,200,250,300]",
		"JSON.stringify(ticks(1, 9, 10))":   "[1,2,3,4,5,6,7,8,9]",
		"JSON.stringify(ticks(3, 3, 10))":   "[3]",
		"[1, 7, 90, 333, 1e4, 2.5e6].every((n) => { const k = ticks(0, n, 10).length; return k >= 5 && k <= 10 })": "true",
		"labels([0, 0.5, 1, 1.5]).join()":                                                         "0,0.5,1.0,1.5",
		"labels([0, 0.001, 0.0015]).join()":                                                       "0,0.0010,0.0015",
		"labels([5000, 10000, 12500]).join()":                                                     "5.0k,10.0k,12.5k",
		"labels([0.00001, 0.000025]).join()":                                                      "1.0e-5,2.5e-5",
		"labels([-2, 0, 2]).join()":                                                               "-2,0,2",
		"smoothed([1, 2, 3, 4, 5], 0.9).map((v) => v.toFixed(9)).join()":                          "1.000000000,2.000000000,3.000000000,4.000000000,5.000000000",
		"smoothed([3, null, 3], 0.5).join()":                                                      "3,,3",
		"smoothed([7], 0.9).join()":                                                               "7",
		"smoothed([0, 4], 0).join()":                                                              "0,4",
		"Math.max(...smoothed([0, 9, 0, 9, 0, 9, 0, 9], 0.9)) < 9":                                "true",
		"fit(Array.from({length: 100}, (_, i) => i === 50 ? 1e6 : i), {}).map(Math.round).join()": "0,114",
		"fit(Array.from({length: 100}, (_, i) => i === 50 ? 1e6 : i), {all: true})[1] > 1e6":      "true",
		"fit([5, 5, 5], {}).join()":                                                               "4.75,5.25",
		"[heat(0), heat(1), heat(9)].join()":                                                      "hsl(215 70% 62%),hsl(8 75% 92%),hsl(8 75% 60%)", // dark text on the strongest has a contrast of 4.6
		"fit([], {}).join()":                                                                      "0,1",
		"quoted(\"it's\")":                                                                        `'it'\''s'`,
		"[...document.querySelectorAll('#rank-spread tbody tr')].map((r) => [...r.cells].map((c) => c.textContent).join()).join(' ')": "rank 0,,100 ms,1.00,1.00 rank 1,,200 ms,0.50 slow,0.90",
		"commas({list: [{label: '=1+1'}], chart: {data: [[1, 2], [0.5, null]]}})":                                                     "\"iteration\",\"'=1+1\"\n1,0.5\n2,\n",
	} {
		if got := b.eval(expression); got != want {
			t.Errorf("%s is %s, want %s", expression, got, want)
		}
	}
}

// TestZoomIsInTheAddress: a part of the x axis is shown in all charts, and the address leads there.
func TestZoomIsInTheAddress(t *testing.T) {
	var lines []string
	for i := range 50 {
		lines = append(lines, line(i+1, 9))
	}
	path := filepath.Join(t.TempDir(), "report.html")
	var page bytes.Buffer
	if err := WritePage(&page, opened(t, logOf(t, "run", append(lines, "")...))); err != nil {
		t.Fatal(err)
	}
	write(t, path, page.String())
	b := openBrowser(t, "file://"+path+"#p=speed&zoom=10_20&log=1&s=0.5")
	b.becomes("document.body.dataset.ready", "yes")
	const ranges = "JSON.stringify([...drawn.values()].map((m) => [m.chart.scales.x.min, m.chart.scales.x.max].join()).filter((v, i, all) => all.indexOf(v) === i))"
	b.becomes(ranges, `["10,20"]`)
	b.becomes("$('log').checked + ' ' + $('smoothing').value + ' ' + $('reset').hidden", "true 0.5 false")
	b.becomes("address('loss')", "p=loss&s=0.5&log=1&zoom=10_20")
	b.eval("$('reset').click()")
	b.becomes(ranges, `["1,50"]`)
	b.eval("point(7, null)")
	b.becomes("[...document.querySelectorAll('#charts figure:not([hidden]) output')].every((o) => o.textContent.startsWith('step 7'))", "true")
}
