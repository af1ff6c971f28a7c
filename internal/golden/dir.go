// Package golden finds the reference cases that tests compare with: inputs and answers that
// other programs computed. Only tests import it.
//
// The cases travel with the repository as archives (testdata/*.tar.zst, unpacked by
// archive.go into .tools). Where a folder `shared` lies next to the repository, its complete
// set is used instead.
package golden

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

var archived = sync.OnceValues(unpacked)

// Dir is the path of a folder or file of reference cases, as Dir(t, "model", "llama"): in
// the folder that MONOTRON_SHARED names, else in a folder `shared` next to the repository or
// above it, else in the archives of the repository. The test fails where none has it.
func Dir(t testing.TB, parts ...string) string {
	t.Helper()
	if shared := Shared(); shared != "" {
		path := filepath.Join(append([]string{shared, "golden"}, parts...)...)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	root, err := archived()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(append([]string{root}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the repository's archives have no reference cases %s", filepath.Join(parts...))
	}
	return path
}

// AtHand is those of the cases of golden/model whose weights are there: the archives of the
// repository hold one of each kind, a complete set all. The test fails where there is none.
func AtHand(t testing.TB, cases []string) (list []string) {
	t.Helper()
	root := Dir(t, "model")
	for _, name := range cases {
		if _, err := os.Stat(filepath.Join(root, name, "weights.safetensors")); err == nil {
			list = append(list, name)
		}
	}
	if t.Logf("%d of %d cases are at hand", len(list), len(cases)); len(list) == 0 {
		t.Fatalf("none of the cases %v is at hand", cases)
	}
	return list
}

// Shared is the folder that MONOTRON_SHARED names, else a folder `shared` next to the
// repository or above; "" where there is none.
func Shared() string {
	if dir := os.Getenv("MONOTRON_SHARED"); dir != "" {
		if _, err := os.Stat(filepath.Join(dir, "golden")); err != nil {
			return ""
		}
		return dir
	}
	at, err := os.Getwd()
	if err != nil {
		return ""
	}
	for ; at != filepath.Dir(at); at = filepath.Dir(at) {
		if dir := filepath.Join(at, "shared"); isDir(filepath.Join(dir, "golden")) {
			return dir
		}
	}
	return ""
}

// Complete reports whether the complete set is there, and not the archives alone.
func Complete() bool { return Shared() != "" }

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// ReadJSON reads the JSON file at path into to, or ends the test.
func ReadJSON(t testing.TB, path string, to any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
