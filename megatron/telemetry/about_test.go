package telemetry

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"monotron/internal/exitcode"
)

// TestAboutIsReadAsWritten: next to the log, under its name; a missing and a damaged one are distinguished.
func TestAboutIsReadAsWritten(t *testing.T) {
	log := filepath.Join(t.TempDir(), "new", "steps.jsonl")
	if a, err := ReadAbout(log); a != nil || err != nil {
		t.Errorf("without a file: %v, %v", a, err)
	}
	want := &About{Name: "a run", Notes: "</script>", Started: time.Unix(1, 0).UTC(), Command: []string{"pretrain_gpt", "--lr", "1"},
		Facts: []Fact{{"model", "GPT"}}, Flags: []Setting{{"lr", "1", "0"}}}
	if err := want.Write(log); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadAbout(log); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if err := os.WriteFile(AboutFile(log), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadAbout(log); exitcode.CodeOf(err) != exitcode.BadData {
		t.Errorf("a damaged file: %v", err)
	}
}
