// Package golden finds the golden cases that tests compare with. Only tests
// import it.
package golden

import (
	"os"
	"path/filepath"
	"testing"
)

// Dir is a path inside the shared folder: that of MONOTRON_SHARED, else a
// folder `shared` beside the repository or above. The test is skipped without it.
func Dir(t testing.TB, parts ...string) string {
	t.Helper()
	var tried []string
	if dir := os.Getenv("MONOTRON_SHARED"); dir != "" {
		tried = append(tried, dir)
	} else {
		at, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		for ; at != filepath.Dir(at); at = filepath.Dir(at) {
			tried = append(tried, filepath.Join(at, "shared"))
		}
	}
	for _, dir := range tried {
		path := filepath.Join(append([]string{dir}, parts...)...)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Skipf("no shared folder with %s; MONOTRON_SHARED names it", filepath.Join(parts...))
	return ""
}
