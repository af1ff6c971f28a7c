package dashboard

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"
	"unicode/utf8"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
)

// writeNotes keeps what a reader of the page wrote about a run, in a file of the run's folder. Only a page at a
// loopback address accepts notes: another could be changed by everybody who can open it.
func (v *viewer) writeNotes(w http.ResponseWriter, r *http.Request) {
	number, err := strconv.Atoi(r.URL.Query().Get("run"))
	if err != nil || number < 0 || number >= len(v.sources) {
		http.Error(w, "run must be the number of a run of this page", http.StatusBadRequest)
		return
	}
	if !v.writable() {
		http.Error(w, "notes cannot be saved: this page is also served to other machines, or its run has no --log-jsonl", http.StatusForbidden)
		return
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longestNotes))
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		http.Error(w, "notes have more than "+strconv.Itoa(longestNotes)+" bytes; keep longer texts in a separate file", http.StatusRequestEntityTooLarge)
		return
	case err != nil:
		return // the browser has gone
	case !utf8.Valid(text):
		http.Error(w, "notes must be UTF-8", http.StatusBadRequest)
		return
	}
	if err := v.keepNotes(number, text); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// keepNotes writes the notes of a run, and reads them again.
func (v *viewer) keepNotes(number int, text []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.refresh(); err != nil {
		return err
	}
	run := v.runs[number]
	if err := atomicfile.WriteFile(run.notesFile(), 0o644, text); err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	run.describe()
	v.checked = time.Time{} // other viewers get the notes at their next rescan
	return nil
}

// writable reports whether this page accepts notes.
func (v *viewer) writable() bool {
	for _, s := range v.sources {
		if s.Passing {
			return false
		}
	}
	return v.local
}

// notesFile is where notes about the run are, or will be.
func (r *Run) notesFile() string {
	for _, name := range notesFiles {
		path := filepath.Join(r.Folder, name)
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return path
		}
	}
	return filepath.Join(r.Folder, notesFiles[0])
}
