package dashboard

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/telemetry"
	"monotron/mpu/comm/failure"
)

// Mark is an event of a run, at a step.
type Mark struct {
	Iteration int    `json:"iteration"`
	Kind      string `json:"kind"`            // checkpoint, restart, verdict, alert
	About     string `json:"about,omitempty"` // of an alert, its kind
	Text      string `json:"text"`
}

// Run is a log and the files next to it.
type Run struct {
	Name   string
	Folder string
	History
	Flags map[string]string // as given; nil: not known
	Note  string            // to the reader
	About *telemetry.About  // nil: not known
	Notes string            // what somebody wrote about the run

	source Source
	log    tail
	kept   []Mark // checkpoints and verdicts
	traced traced
}

// Source is where a run is read from, and what else is known of it.
type Source struct {
	// On the page; "": what the run says of itself, else its folder's.
	Name    string
	About   *telemetry.About                                                  // nil: read from the file next to the log
	Path    string                                                            // a log, or the folder of one
	FlagsOf func(folder string, iteration int64) (map[string][]string, error) // what a checkpoint was trained with
	// Those of the run, where they are known; FlagsOf is then not asked.
	Flags    map[string][]string
	Price    float64  // of an hour of the run; 0: not known
	Ongoing  bool     // this process trains it: the log may have no step yet
	Extra    []string // folders that it writes to, wherever they lie; "": none
	Passing  bool     // the log is removed when the run ends
	Finished bool     // no run continues with it: a last line without its end counts
}

// Open reads the run that s is.
func Open(s Source) (*Run, error) {
	log, err := s.log()
	if err != nil {
		return nil, err
	}
	r := &Run{Name: s.Name, About: s.About, Folder: filepath.Dir(log), History: newHistory(), source: s, log: tail{path: log}}
	if s.Flags != nil {
		r.Flags = joined(s.Flags)
	}
	err = r.read()
	if err == nil && s.Finished {
		err = r.ended()
	}
	if err != nil {
		return nil, err
	}
	return r, r.refresh()
}

// Log is the file that the run was read from.
func (r *Run) Log() string { return r.log.path }

// log is the file of the run's steps.
func (s *Source) log() (string, error) {
	if s.Ongoing {
		return s.Path, nil
	}
	log, err := findLog(s.Path)
	if err != nil && exitcode.CodeOf(err) == exitcode.NoInput && s.FlagsOf != nil {
		// A folder of --save: its newest checkpoint has the flags of the run, and so the name of the log.
		if flags, _ := s.FlagsOf(s.Path, -1); len(flags["log-jsonl"]) == 1 {
			if named, failed := findLog(flags["log-jsonl"][0]); failed == nil {
				return named, nil
			}
		}
	}
	return log, err
}

// OpenAll opens runs, all as one of their paths.
func OpenAll(sources []Source) (runs []*Run, err error) {
	for _, s := range sources {
		r, err := Open(s)
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	tellApart(runs)
	return runs, nil
}

// Renewed are runs with what is new; one whose log became shorter is read again.
func Renewed(runs []*Run) (renewed []*Run, err error) {
	for _, r := range runs {
		if err = errors.Join(r.read(), r.refresh()); errors.Is(err, errShorter) {
			r, err = Open(r.source)
		}
		if err != nil {
			return nil, err
		}
		renewed = append(renewed, r)
	}
	tellApart(renewed)
	return renewed, nil
}

// joined are flags with their values as one text.
func joined(given map[string][]string) map[string]string {
	flags := map[string]string{}
	for name, values := range given {
		flags[name] = strings.Join(values, " ")
	}
	return flags
}

// ended also counts a last line that no run will end any more.
func (r *Run) ended() error {
	rest, err := r.log.rest()
	if err == nil && len(rest) > 0 {
		r.take(rest)
	}
	return err
}

// read takes the lines that are new.
func (r *Run) read() error {
	return r.log.next(func(line []byte, _ int64) error {
		if len(strings.TrimSpace(string(line))) > 0 || line == nil {
			r.take(line)
		}
		return nil
	})
}

// Marks are the run's events, in the order of their steps.
func (r *Run) Marks() []Mark {
	list := slices.Concat(r.kept, r.Restarts, r.alerts)
	slices.SortStableFunc(list, func(a, b Mark) int { return cmp.Compare(a.Iteration, b.Iteration) })
	return list
}

// findLog is the log that path names: itself, or the only one in that folder.
func findLog(path string) (string, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", exitcode.Errorf(exitcode.NoInput, "%s does not exist", path)
	}
	if err != nil {
		return "", exitcode.With(exitcode.IO, err)
	}
	// A file must be a log.
	if !st.IsDir() {
		found, err := isLog(path)
		if err != nil {
			return "", err
		}
		if !found {
			return "", exitcode.Errorf(exitcode.BadData, "%s has no steps; give a file that --log-jsonl wrote", path)
		}
		return path, nil
	}
	// In a folder, by content: names are the user's.
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", exitcode.With(exitcode.IO, err)
	}
	var found []string
	var failed error // of a file that may be the log
	for _, e := range entries {
		file := filepath.Join(path, e.Name())
		if !e.Type().IsRegular() {
			continue
		}
		is, err := isLog(file)
		if is {
			found = append(found, file)
		}
		failed = errors.Join(failed, err)
	}
	if len(found) == 0 && failed != nil {
		return "", failed
	}
	// Exactly one, or the user must choose.
	switch len(found) {
	case 0:
		return "", exitcode.Errorf(exitcode.NoInput, "%s has no log of the steps of a run%s; give the file that --log-jsonl wrote, or its folder (for the next run, give --log-jsonl %s)", path, checkpointsOnly(entries), filepath.Join(path, "steps.jsonl"))
	case 1:
		return found[0], nil
	}
	return "", exitcode.Errorf(exitcode.Usage, "%s has several logs; choose one of %s", path, strings.Join(found, ", "))
}

// checkpointsOnly says so of a folder that has checkpoints: nothing in them is a log.
func checkpointsOnly(entries []os.DirEntry) string {
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), "iter_") {
			return ", only checkpoints"
		}
	}
	return ""
}

// isLog reports whether one of a file's first lines is a step, or the file is that of a run that has
// made no step yet.
func isLog(path string) (bool, error) {
	file, err := exitcode.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	head := make([]byte, longestLine) // one line may have the shares of thousands of experts
	n, err := file.Read(head)
	if err != nil && err != io.EOF {
		return false, exitcode.With(exitcode.IO, err)
	}
	if n == 0 {
		_, err := os.Stat(telemetry.AboutFile(path)) // written when the run opens its log
		return err == nil, nil
	}
	for line := range strings.Lines(string(head[:n])) {
		if _, ok := parse([]byte(line)); ok {
			return true, nil
		}
	}
	return false, nil
}

// refresh reads the files next to the log: checkpoints, the flags they keep, verdicts.
func (r *Run) refresh() error {
	r.kept, r.Note = nil, ""
	r.describe()
	saved := r.folders(func(dir string) bool {
		list, err := native.List(dir)
		return err == nil && len(list) > 0 && r.saves(dir)
	})
	for _, dir := range saved {
		list, err := native.List(dir)
		if err != nil {
			return err
		}
		for _, c := range list {
			r.kept = append(r.kept, Mark{Iteration: int(c.Iteration), Kind: "checkpoint", Text: c.Path})
		}
	}
	for _, dir := range r.folders(func(dir string) bool { _, err := os.Stat(failure.File(dir)); return err == nil }) {
		r.kept = append(r.kept, verdict(dir))
	}
	if e := r.ending(); e != nil && e.Code != exitcode.Done && e.Code != exitcode.Again && !slices.ContainsFunc(r.kept, func(m Mark) bool { return m.Kind == "verdict" }) {
		r.kept = append(r.kept, Mark{Iteration: int(e.Iteration), Kind: "verdict", Text: e.Text})
	}
	if r.Flags == nil {
		r.flags(saved)
	}
	r.findTrace()
	return nil
}

// folders are the run's folder, those in it and those that it is known to write to, that fit.
func (r *Run) folders(fit func(dir string) bool) []string {
	dirs := []string{r.Folder}
	entries, _ := os.ReadDir(r.Folder) // a folder that cannot be listed has nothing to show
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, filepath.Join(r.Folder, e.Name()))
		}
	}
	for _, dir := range r.source.Extra {
		if dir != "" && !slices.Contains(dirs, filepath.Clean(dir)) {
			dirs = append(dirs, filepath.Clean(dir))
		}
	}
	return slices.DeleteFunc(dirs, func(dir string) bool { return !fit(dir) })
}

func verdict(dir string) Mark {
	v, err := failure.Read(dir)
	if err != nil {
		return Mark{Kind: "verdict", Text: err.Error()}
	}
	return Mark{Iteration: int(v.Step), Kind: "verdict", Text: v.Text}
}

// flags takes the flags that the run says of itself, or else those of the newest checkpoint.
func (r *Run) flags(saved []string) {
	if r.About != nil && len(r.About.Flags) > 0 {
		r.Flags = map[string]string{}
		for _, f := range r.About.Flags {
			r.Flags[f.Name] = f.Value
		}
		return
	}
	switch len(saved) {
	case 0:
		r.Note = "the flags are not known, because the folder of the log has no checkpoint"
		return
	case 1:
	default:
		r.Note = "the folder of the log has several checkpoint folders; the flags are those of " + saved[0]
	}
	if r.source.FlagsOf == nil {
		return
	}
	given, err := r.source.FlagsOf(saved[0], -1)
	if err != nil {
		r.Note = "the flags are not known: " + err.Error()
		return
	}
	r.Flags = joined(given)
	for name, value := range r.Flags { // its copies of the tokenizer's files are the same files for each run
		if strings.HasPrefix(value, filepath.Clean(saved[0])+string(filepath.Separator)) {
			delete(r.Flags, name)
		}
	}
}
