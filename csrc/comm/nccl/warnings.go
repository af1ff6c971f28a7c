//go:build cgo && linux

package nccl

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"monotron/internal/exitcode"
)

// warnings are NCCL's own, which it would otherwise print to standard output,
// among the lines that tools parse. A user who sets NCCL_DEBUG or
// NCCL_DEBUG_FILE gets what he asked for instead.
type warnings struct {
	path string // "": the user's own
	mu   sync.Mutex
	seen int
}

func newWarnings() (*warnings, error) {
	if os.Getenv("NCCL_DEBUG") != "" || os.Getenv("NCCL_DEBUG_FILE") != "" {
		return &warnings{}, nil
	}
	dir, err := os.MkdirTemp("", "monotron-nccl-")
	if err != nil {
		return nil, exitcode.Errorf(exitcode.IO, "the folder for NCCL's warnings cannot be created: %w", err)
	}
	w := &warnings{path: filepath.Join(dir, fmt.Sprintf("%d.log", os.Getpid()))}
	for name, value := range map[string]string{"NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": w.path} {
		if err := os.Setenv(name, value); err != nil {
			return nil, exitcode.Errorf(exitcode.IO, "%s: %w", name, err)
		}
	}
	return w, nil
}

// most is how much of the warnings is shown at once.
const most = 4096

// Forget removes the warnings' file; the library can still be used.
func (l *Library) Forget() {
	if l.log.path != "" {
		_ = os.RemoveAll(filepath.Dir(l.log.path)) // what stays lies in a folder for what may go
	}
}

// fresh are the lines since it was asked last, the latest where they are many.
func (w *warnings) fresh() string {
	if w.path == "" {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	text, _ := os.ReadFile(w.path) // the file does not exist before the first warning
	lines := text[min(w.seen, len(text)):]
	w.seen = len(text)
	if len(lines) > most {
		lines = lines[len(lines)-most:]
	}
	return strings.TrimSpace(string(lines))
}
