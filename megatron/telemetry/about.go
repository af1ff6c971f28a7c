package telemetry

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
)

// About is what a run is, as opposed to what its steps say. A resumed run writes its own again.
type About struct {
	Name        string    `json:"name"` // as given, else model and data; never a path
	Named       bool      `json:"named,omitempty"`
	Notes       string    `json:"notes,omitempty"`
	Version     string    `json:"version"`
	Started     time.Time `json:"started"`
	Command     []string  `json:"command,omitempty"` // as it was given, the program first
	Facts       []Fact    `json:"facts"`
	Flags       []Setting `json:"flags,omitempty"`              // those that differ from their defaults
	MemoryLimit int64     `json:"memory_limit_bytes,omitempty"` // of the device of the last rank; 0: not known
	Ended       *Ended    `json:"ended,omitempty"`              // nil: it trains, or was killed
}

// Ended is how a run ended.
type Ended struct {
	Time      time.Time     `json:"time"`
	Iteration int64         `json:"iteration"` // the one under way, or the last
	Code      exitcode.Code `json:"code"`
	Text      string        `json:"text,omitempty"` // why, where it is not done
}

// Fact is a line about a run: model, data, layout, ...
type Fact struct {
	Label string `json:"label"`
	Text  string `json:"text"`
}

// Setting is a flag with its value, and the one it has if not given.
type Setting struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Default string `json:"default"`
}

// longestAbout is the most bytes of a file that ReadAbout reads.
const longestAbout = 4 << 20

// AboutFile is where the run of a log says what it is: steps.run.json for steps.jsonl.
func AboutFile(log string) string {
	return strings.TrimSuffix(log, filepath.Ext(log)) + ".run.json"
}

// Write writes a to the file that belongs to log.
func (a *About) Write(log string) error {
	text, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return exitcode.With(exitcode.Internal, err)
	}
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	return exitcode.With(exitcode.IO, atomicfile.WriteFile(AboutFile(log), 0o644, append(text, '\n')))
}

// ReadAbout reads the file that belongs to log; nil without an error: there is none.
func ReadAbout(log string) (*About, error) {
	text, err := exitcode.ReadFile(AboutFile(log), longestAbout)
	if exitcode.CodeOf(err) == exitcode.NoInput {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	a := &About{}
	if err := json.Unmarshal(text, a); err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", AboutFile(log), err)
	}
	return a, nil
}
