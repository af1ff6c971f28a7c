package launch

import (
	"bytes"
	"strings"
	"testing"

	"monotron/internal/logging"
)

// Claim (docs/logging.md): under --log-format json launch's own lines are objects too; what
// the ranks print passes as it is.
func TestOwnNotesAsRecords(t *testing.T) {
	var out bytes.Buffer
	n := logging.New(&out)
	if err := n.Choose(logging.JSON, ""); err != nil {
		t.Fatal(err)
	}
	r := &records{to: &out, notes: n.From("launch")}
	text := "[1] a rank's line\nlaunch: restarting (1 of 3 since iteration 7)\n{\"level\":\"info\"}\n"
	if k, err := r.Write([]byte(text)); err != nil || k != len(text) {
		t.Fatal(k, err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || lines[0] != "[1] a rank's line" || lines[2] != `{"level":"info"}` {
		t.Fatalf("%q", lines)
	}
	if !logging.IsRecord(lines[1]) || !strings.Contains(lines[1], `"component":"launch"`) || !strings.Contains(lines[1], "restarting (1 of 3 since iteration 7)") {
		t.Error(lines[1])
	}
}
