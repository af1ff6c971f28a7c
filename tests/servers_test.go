package tests

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Claim: every HTTP server is made by web.NewServer, which has the limits on what a client may
// take; none is made next to it.
func TestServersHaveLimits(t *testing.T) {
	found := 0
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, way := range []string{"http.Server{", "http.ListenAndServe", " http.Serve(", "\thttp.Serve("} {
			if !strings.Contains(string(text), way) {
				continue
			}
			if found++; path != "../internal/web/server.go" {
				t.Errorf("%s uses %s; use web.NewServer", path, way)
			}
		}
		return nil
	})
	if err != nil || found == 0 {
		t.Errorf("%d servers found: %v", found, err)
	}
}
