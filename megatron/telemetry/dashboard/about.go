package dashboard

import (
	"path/filepath"
	"strings"

	"monotron/internal/exitcode"
	"monotron/megatron/telemetry"
)

// notesFiles are those in a run's folder in which somebody writes about it, at any time.
var notesFiles = []string{"notes.md", "notes.txt"}

// longestNotes is the most bytes of notes that are shown.
const longestNotes = 64 << 10

// describe reads what the run says of itself, and its notes.
func (r *Run) describe() {
	if r.source.About == nil {
		about, err := telemetry.ReadAbout(r.log.path)
		if err != nil {
			r.Note = "what the run is cannot be read: " + err.Error()
		}
		r.About = about
	}
	r.Notes = ""
	if r.About != nil {
		r.Notes = r.About.Notes
	}
	for _, name := range notesFiles {
		text, err := exitcode.ReadFile(filepath.Join(r.Folder, name), longestNotes)
		if err == nil {
			r.Notes = strings.TrimSpace(string(text))
			break
		}
		if exitcode.CodeOf(err) != exitcode.NoInput {
			r.Note = "notes: " + err.Error()
		}
	}
	if r.Name == "" {
		r.Name = r.title()
	}
}

// ending is how the run ended; nil: it has not, or nobody could say so.
func (r *Run) ending() *telemetry.Ended {
	if r.About == nil || r.source.Ongoing {
		return nil
	}
	return r.About.Ended
}

// title is a run's name for people; never a path.
func (r *Run) title() string {
	if r.About != nil && r.About.Name != "" {
		return r.About.Name
	}
	return r.folderName()
}

// folderName is the last part of the path of the run's folder.
func (r *Run) folderName() string {
	folder, err := filepath.Abs(r.Folder)
	if err != nil {
		folder = r.Folder
	}
	if name := filepath.Base(folder); name != string(filepath.Separator) {
		return name
	}
	return "run"
}

// tellApart gives runs of one name those of their folders, as nobody chose the name.
func tellApart(runs []*Run) {
	count := map[string]int{}
	for _, r := range runs {
		count[r.Name]++
	}
	for _, r := range runs {
		if count[r.Name] > 1 && r.source.Name == "" {
			r.Name = r.folderName()
		}
	}
}
