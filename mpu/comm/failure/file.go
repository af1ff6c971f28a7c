package failure

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
)

// File is where a run's verdict lies.
func File(folder string) string { return filepath.Join(folder, "verdict.json") }

// Write puts the verdict into the run's folder, complete or not at all.
func (v *Verdict) Write(folder string) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return exitcode.With(exitcode.Internal, err)
	}
	if err := atomicfile.WriteFile(File(folder), 0o600, text, []byte("\n")); err != nil { // its owner's alone
		return fmt.Errorf("the verdict: %w", err)
	}
	return nil
}

// Read reads the verdict of a run's folder.
func Read(folder string) (*Verdict, error) {
	text, err := exitcode.ReadFile(File(folder), 16<<20)
	if err != nil {
		return nil, err
	}
	v := &Verdict{}
	if err := json.Unmarshal(text, v); err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", File(folder), err)
	}
	return v, nil
}
