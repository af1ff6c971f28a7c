package dashboard

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// browser is a headless Chromium that is told what to do through a pipe.
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
	command := exec.Command(path, "--headless=new", "--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "--window-size=1280,1000")
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
// reach the page with the log's values; the keyboard reads a chart; text of the run that
// comes later is no script either.
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
