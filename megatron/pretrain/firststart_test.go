package pretrain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Claim: the first start of a script that saves and loads one folder is planned like any other.
func TestFirstStartIsPlanned(t *testing.T) {
	dir := t.TempDir()
	r := must(t, dir, tiny+someData+"--save DIR/new --load DIR/new --train-iters 1 --eval-iters 0")
	if strings.Contains(r.notes, "could not be planned") || !strings.Contains(r.notes, "training starts from random weights") {
		t.Error(r.notes)
	}
}

// Claim: during a run there is no result of an earlier one, which a run that is killed would leave.
func TestEarlierResultIsRemoved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "result.json")
	if err := os.WriteFile(path, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	seen := false
	callUntil(t, t.Context(), dir, tiny+someData+"--train-iters 2 --eval-iters 0 --result-json DIR/result.json", func(text string) {
		if strings.Contains(text, "iteration        1/") {
			_, err := os.Stat(path)
			seen = os.IsNotExist(err)
		}
	})
	if text, err := os.ReadFile(path); !seen || err != nil || len(text) < 10 {
		t.Errorf("gone during the run: %v; after it: %v, %s", seen, err, text)
	}
}
