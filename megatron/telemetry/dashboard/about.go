package dashboard

import (
	"fmt"
	"path/filepath"
	"slices"
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
			r.Note = "the description of the run cannot be read: " + err.Error()
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

// logName is the name of the run's log without its ending.
func (r *Run) logName() string {
	name := filepath.Base(r.log.path)
	return strings.TrimSuffix(name, filepath.Ext(name))
}

// tellApart gives runs of one name those of their folders; those of one folder, those of their logs.
func tellApart(runs []*Run) {
	for _, name := range []func(r *Run) string{
		(*Run).folderName,
		(*Run).logName,
		func(r *Run) string { return r.folderName() + " " + r.logName() },
		func(r *Run) string { return parentName(r) + " " + r.folderName() + " " + r.logName() },
	} {
		same := map[string][]*Run{}
		for _, r := range runs {
			same[r.Name] = append(same[r.Name], r)
		}
		for _, group := range same {
			if len(group) > 1 && differ(group, name) {
				for _, r := range group {
					if r.source.Name == "" {
						r.Name = name(r)
					}
				}
			}
		}
	}
	number(runs)
}

// differ reports whether runs have several names.
func differ(runs []*Run, name func(*Run) string) bool {
	return slices.ContainsFunc(runs[1:], func(r *Run) bool { return name(r) != name(runs[0]) })
}

// parentName is the name of the folder in which the run's folder lies.
func parentName(r *Run) string {
	folder, err := filepath.Abs(r.Folder)
	if err != nil {
		folder = r.Folder
	}
	return filepath.Base(filepath.Dir(folder))
}

// number numbers runs that still have one name, as a log that was given twice.
func number(runs []*Run) {
	count := map[string]int{}
	for _, r := range runs {
		if count[r.Name]++; count[r.Name] > 1 && r.source.Name == "" {
			r.Name = fmt.Sprintf("%s (%d)", r.Name, count[r.Name])
		}
	}
}

// saves reports whether the run may have written the checkpoints of a folder: it lies where --save says, by its name, as
// folders may have been moved. Of a run that does not say how it was started, all next to its log count.
func (r *Run) saves(dir string) bool {
	if r.About == nil || len(r.About.Flags) == 0 || slices.Contains(r.source.Extra, dir) {
		return true
	}
	for _, f := range r.About.Flags {
		if f.Name != "save" && f.Name != "save-local-dir" {
			continue
		}
		name := filepath.Base(filepath.Clean(f.Value))
		if dir == r.Folder || name == filepath.Base(dir) {
			return true
		}
	}
	return false
}
