package finetune

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"monotron/internal/argv"
	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/megatron/arguments/table"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
)

// recordName is the file of --output that says what its checkpoints are trained from, on and how.
const recordName = "tuning.json"

// longestRecord is the most bytes of it that are read.
const longestRecord = 1 << 20

// record is what the result of a tuning depends on.
type record struct {
	Base     string            `json:"base"` // hash of the weights; of the other files, of their bytes
	Data     string            `json:"data"`
	EvalData string            `json:"eval_data,omitempty"`
	Template string            `json:"chat_template,omitempty"`
	Settings map[string]string `json:"settings"` // flags and their values
}

// keepRecord writes the record of the tuning next to its first checkpoint, and refuses to continue the checkpoints
// of another one. undo removes it where the training has made no checkpoint.
func (o *options) keepRecord(say func(format string, args ...any)) (undo func(), err error) {
	now, err := o.record()
	if err != nil {
		return nil, err
	}
	path := o.folder(recordName)
	if o.continues() {
		text, err := exitcode.ReadFile(path, longestRecord)
		if exitcode.CodeOf(err) == exitcode.NoInput {
			say("note: %s has no record of the model and the rows on which it was trained; training continues from it without a check", o.folder(checkpoints))
			return func() {}, nil
		}
		var before record
		if err == nil {
			err = exitcode.JSON(path, text, &before)
		}
		if err != nil {
			return nil, err
		}
		if list := now.differs(&before); len(list) > 0 {
			return nil, exitcode.Errorf(exitcode.Usage, "--output %s has the checkpoints of another run of finetune: %s; give another --output, or remove the folder %[1]s to train again", o.output, strings.Join(list, ", "))
		}
		return func() {}, nil
	}
	// A first start, or one whose checkpoints were removed.
	_, missing := os.Stat(o.output)
	text, err := json.MarshalIndent(now, "", "  ")
	if err == nil {
		err = os.MkdirAll(o.output, 0o777)
	}
	if err == nil {
		err = atomicfile.WriteFile(path, 0o666, append(text, '\n'))
	}
	return func() {
		if o.continues() {
			return
		}
		_ = os.Remove(path)
		if missing != nil {
			_ = os.Remove(o.output) // one that has more stays
		}
	}, exitcode.With(exitcode.IO, err)
}

// continues reports whether --output has a checkpoint, from which training continues.
func (o *options) continues() bool {
	_, err := checkpoint.ReadTracker(o.folder(checkpoints))
	return exitcode.CodeOf(err) != exitcode.NoInput
}

// record reads what the flags name.
func (o *options) record() (r record, err error) {
	base, err := all.NewBase(o.model, -1, "", false)
	if err != nil {
		return r, fmt.Errorf("--model %s: %w", o.model, err)
	}
	r.Base, r.Settings = base.Sum, o.settings()
	for _, file := range []struct {
		path string
		to   *string
	}{{o.data, &r.Data}, {o.evalData, &r.EvalData}, {o.template, &r.Template}} {
		if file.path == "" {
			continue
		}
		if *file.to, err = sumOf(file.path); err != nil {
			return r, err
		}
	}
	return r, nil
}

// sumOf is a hash of a file's bytes.
func sumOf(path string) (string, error) {
	f, err := exitcode.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := xxh3.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", exitcode.Errorf(exitcode.IO, "%s: %w", filepath.Clean(path), err)
	}
	sum := h.Sum128().Bytes()
	return hex.EncodeToString(sum[:]), nil
}

// settings are the flags that change what is trained, those of pretrain_gpt included.
func (o *options) settings() map[string]string {
	all := map[string]string{"tuning": o.method, "beta": fmt.Sprint(o.beta), "epochs": fmt.Sprint(o.epochs), "batch-size": fmt.Sprint(o.batch), "seq-length": fmt.Sprint(o.length),
		"packing": o.packing, "lr": fmt.Sprint(o.rate), "lora-rank": fmt.Sprint(o.rank), "lora-alpha": fmt.Sprint(o.alpha), "seed": fmt.Sprint(o.seed), "patience": fmt.Sprint(o.patience)}
	given, _, err := argv.Split(table.Arities(), o.others)
	if err != nil {
		return all // the line has been parsed: it has no other flags
	}
	for _, g := range given {
		if f := table.Find(g.Name); f != nil && trains(f) {
			all[f.Name] = strings.Join(g.Values, " ")
		}
	}
	return all
}

// trains reports whether a flag of pretrain_gpt changes what is trained, and not only where, how fast, and what is
// shown and kept of it.
func trains(f *table.Flag) bool {
	switch f.Owner {
	case table.Checkpoint, table.Logging, table.Layout, table.Distributed, table.Recompute:
		return false
	case table.Own:
		return f.Name == "freeze-parameters"
	}
	for _, prefix := range []string{"eval-", "exit-", "data-cache", "object-storage"} {
		if strings.HasPrefix(f.Name, prefix) {
			return false
		}
	}
	return !slices.Contains([]string{"micro-batch-size", "num-workers", "save-adapter-only", "reward-timeout", "optimizer-cpu-offload", "optimizer-offload-fraction"}, f.Name)
}

// differs lists where r is another tuning than before.
func (r *record) differs(before *record) (list []string) {
	for _, file := range []struct{ now, before, text string }{
		{r.Base, before.Base, "--model has other weights"}, {r.Data, before.Data, "--data has other rows"}, {r.EvalData, before.EvalData, "--eval-data has other rows"},
		{r.Template, before.Template, "--chat-template is another one"}} {
		if file.now != file.before {
			list = append(list, file.text)
		}
	}
	names := map[string]bool{}
	for name := range r.Settings {
		names[name] = true
	}
	for name := range before.Settings {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		now, is := r.Settings[name]
		was, had := before.Settings[name]
		switch {
		case is && !had:
			list = append(list, strings.TrimSpace("--"+name+" "+now)+" is new")
		case had && !is:
			list = append(list, strings.TrimSpace("--"+name+" "+was)+" is missing")
		case now != was:
			list = append(list, fmt.Sprintf("--%s is %s and was %s", name, argv.Shown(now), argv.Shown(was)))
		}
	}
	return list
}
