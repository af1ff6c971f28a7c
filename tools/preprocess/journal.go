package preprocess

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/zeebo/xxh3"

	"monotron/dataset"
	"monotron/internal/exitcode"
)

// journal is what an interrupted run leaves next to its unfinished files: how far
// it had come when everything up to there was safe on disk. --resume cuts the
// files to that and continues.
type journal struct {
	Fingerprint string            `json:"fingerprint"` // of flags, tokenizer and inputs
	At          position          `json:"at"`
	Docs        int64             `json:"documents"`
	Bad         int64             `json:"bad_lines_skipped"`
	Marks       [][]dataset.Mark  `json:"files"`    // [partition][key]
	Complete    bool              `json:"complete"` // all is written; the files wait for their names
	Summaries   []dataset.Sidecar `json:"summaries,omitempty"`
}

// journalPath is hidden next to the output.
func (o *options) journalPath() string {
	return filepath.Join(o.folder(), "."+filepath.Base(o.prefix)+"_"+o.level()+".resume")
}

// fingerprint changes with everything that the output depends on.
func (o *options) fingerprint() (string, error) {
	h := xxh3.New()
	fmt.Fprintln(h, o.keys, o.appendEOD, o.partitions, o.sequential, o.emptyToo, o.skipBad, o.maxLine, o.dtype, o.output, o.maxDocuments,
		o.hash, o.tok.Name(), o.split, o.parts)
	for _, path := range o.inputs {
		if path == "-" {
			fmt.Fprintln(h, "-")
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return "", exitcode.With(exitcode.IO, err)
		}
		fmt.Fprintln(h, path, info.Size(), info.ModTime().UnixNano())
	}
	return fmt.Sprintf("%016x", h.Sum64()), nil
}

// maxJournal bounds the journal of an interrupted run, in bytes.
const maxJournal = 1 << 28

// readJournal gives the state to continue from, nil to begin. Without --resume what
// an earlier run left is dropped.
func (o *options) readJournal() (*journal, error) {
	text, err := exitcode.ReadFile(o.journalPath(), maxJournal)
	if err != nil && exitcode.CodeOf(err) != exitcode.NoInput {
		return nil, err
	}
	if !o.resume || err != nil {
		if o.resume {
			o.say("%s: there is no interrupted run to continue; starting from the beginning", o.prefix)
		}
		return nil, o.removeJournal()
	}
	j := &journal{}
	if err := json.Unmarshal(text, j); err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: %w; run without --resume", o.journalPath(), err)
	}
	now, err := o.fingerprint()
	if err != nil {
		return nil, err
	}
	if j.Fingerprint != now || len(j.Marks) != o.partitions || len(j.Marks[0]) != len(o.keys) {
		return nil, exitcode.Errorf(exitcode.Usage, "--resume: the interrupted run of %s had other flags, another tokenizer or other inputs, or an input has changed since then; give the same flags and inputs, or run without --resume", o.prefix)
	}
	return j, nil
}

// save makes the files safe and then notes it.
func (w *writer) save(complete bool) error {
	print, err := w.fingerprint()
	if err != nil {
		return err
	}
	j := journal{Fingerprint: print, At: w.at, Docs: w.docs, Bad: w.bad, Complete: complete}
	if complete {
		j.Summaries = w.summaries()
	}
	for _, row := range w.pairs {
		marks := make([]dataset.Mark, len(row))
		for k, b := range row {
			if complete {
				continue
			}
			if marks[k], err = b.Save(); err != nil {
				return err
			}
		}
		j.Marks = append(j.Marks, marks)
	}
	text, err := json.Marshal(j)
	if err != nil {
		return exitcode.With(exitcode.Internal, err)
	}
	return dataset.RewriteFile(w.journalPath(), text)
}

// finishOld does the last steps of a run that died in them: each is done, or can
// be done again.
func (o *options) finishOld(j *journal) error {
	for p := range o.partitions {
		for k := range o.keys {
			if err := dataset.PublishPrepared(o.builder(p, k)); err != nil {
				return err
			}
		}
	}
	if err := o.join(j.Summaries); err != nil {
		return err
	}
	return o.removeJournal()
}

func (o *options) removeJournal() error {
	if err := os.Remove(o.journalPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return exitcode.With(exitcode.IO, err)
	}
	return nil
}
