package failure

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"monotron/fault"
)

// File is where a run's verdict lies.
func File(folder string) string { return filepath.Join(folder, "verdict.json") }

// Write puts the verdict into the run's folder, whole or not at all.
func (v *Verdict) Write(folder string) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fault.With(fault.Internal, err)
	}
	f, err := os.CreateTemp(folder, ".tmp-verdict-*") // its owner's alone
	if err != nil {
		return fault.With(fault.IO, err)
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), File(folder))
	}
	if err != nil {
		os.Remove(f.Name()) // it is of no use
		return fault.Errorf(fault.IO, "the verdict cannot be written to %s: %w", folder, err)
	}
	return nil
}

// Read reads the verdict of a run's folder.
func Read(folder string) (*Verdict, error) {
	text, err := fault.ReadFile(File(folder), 16<<20)
	if err != nil {
		return nil, err
	}
	v := &Verdict{}
	if err := json.Unmarshal(text, v); err != nil {
		return nil, fault.Errorf(fault.BadData, "%s: %w", File(folder), err)
	}
	return v, nil
}
