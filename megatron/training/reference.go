package training

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"monotron/dataset"
	"monotron/dataset/sft"
	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/megatron/engine"
	"monotron/mpu/health"
)

// beginPreference prepares preference tuning, before the weights are loaded: what a resumed run
// knows of its reference is read, and what --ref-load says is computed.
func (r *Run) beginPreference() error {
	t := &r.Config.Tuning
	loss := t.Prefers()
	if loss == nil {
		return nil
	}
	r.prefer = newPreferring(t)
	r.setObjective(r.prefer)
	// A loss without a reference, or a dry run, needs no more; a memory checkpoint has the reference.
	if !loss.Reference || r.device.Counts() || r.found != nil {
		return nil
	}
	// A resumed run has its reference in the checkpoint's folder, for the same rows.
	dir, err := r.resumesFrom()
	if err != nil {
		return err
	}
	if dir != "" {
		known, err := r.readReference(dir)
		if known || err != nil {
			return err
		}
		if t.Preference.Reference == "" && len(r.Config.Model.Adapters) == 0 {
			return exitcode.Errorf(exitcode.NoInput, "%s: the reference's log-probabilities are missing or belong to other rows; give --ref-load, the model from which the tuning started", filepath.Join(dir, referenceFile))
		}
	}
	// Without --ref-load the reference is the model before it is tuned, or the base with the adapter off.
	if t.Preference.Reference == "" {
		return nil
	}
	if err := r.loadReference(t.Preference.Reference); err != nil {
		return err
	}
	return r.computeReference(t.Preference.Reference)
}

// resumesFrom is the folder whose tuning continues; "": a tuning begins.
func (r *Run) resumesFrom() (string, error) {
	c := &r.Config.Checkpoint
	dir, finetune, err := r.source()
	if dir == "" || finetune || err != nil || foreign(dir, wantedStep(c)) != "" {
		return "", err
	}
	step := int64(-1)
	if dir == c.Load {
		step = wantedStep(c)
	}
	if r.begins(dir, step) {
		return "", nil
	}
	return dir, nil
}

// loadReference replaces the policy's weights by the reference's.
func (r *Run) loadReference(dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return exitcode.Errorf(exitcode.NoInput, "--ref-load: %w", err)
	}
	if err := r.load(dir, -1, true); err != nil {
		return fmt.Errorf("--ref-load: %w", err)
	}
	r.saver.saved = -1 // what is trained is not on disk
	return nil
}

// refer computes the log-probabilities of the reference where the tuning starts from it: by the
// weights as they are loaded, without their adapters.
func (r *Run) refer() error {
	if r.prefer == nil || !r.prefer.loss.Reference || len(r.prefer.reference) > 0 || r.device.Counts() {
		return nil
	}
	what := "the weights that the tuning starts from"
	c := &r.Config
	if begun := c.Adapter.Folder != "" || r.holdsAdapter(c.Checkpoint.Load, wantedStep(&c.Checkpoint)); begun && c.Model.Retrained != nil {
		return exitcode.Errorf(exitcode.Usage, "the reference should be the model without its adapter, but %s was trained in full together with the adapter; give --ref-load, the model from which the tuning started", c.Model.Retrained.Names[0])
	}
	if c.Adapter.Folder != "" || len(c.Model.Adapters) > 0 && r.holdsAdapter(c.Checkpoint.Load, wantedStep(&c.Checkpoint)) {
		what += ", without their adapter (to have the adapter in the reference, merge it with monotron convert --adapter)"
	}
	return r.computeReference(what)
}

// computeReference finds the log-probabilities of all rows under the weights as they are.
func (r *Run) computeReference(what string) error {
	sets, err := r.datasets()
	if err != nil {
		return err
	}
	r.Engine.Bare = true
	defer func() { r.Engine.Bare = false }()
	for _, set := range []dataset.Dataset{sets[dataset.Train], sets[dataset.Valid]} {
		if set == nil {
			continue
		}
		if set == sets[dataset.Valid] {
			set = sft.Epochs(set, sft.Config{})
		}
		if err := r.referenceOf(set); err != nil {
			return err
		}
	}
	r.log.note("the reference of --tuning %s is %s", r.Config.Tuning.Method, what)
	return r.writeReference()
}

// referenceOf goes through a set by global batches as training does, so that a first step that has
// moved nothing sees the same numbers, bit for bit.
func (r *Run) referenceOf(set dataset.Dataset) error {
	c, p := &r.Config, r.prefer
	rows := sft.PreferencesOf(set)
	feed, err := newFeed(c, set, dataset.Train, r.rank.Coordinates.DP, ownOrder(c))
	if err != nil {
		return err
	}
	r.cutPadding(feed)
	// mine: f64 [rows, 2], log-probabilities of the chosen and the rejected answer; 0 for rows of other ranks.
	mine := make([]float64, 2*rows.Len())
	size := int64(c.GlobalBatchSize)
	micros := max(1, c.GlobalBatchSize/(c.MicroBatchSize*r.rank.Sizes.DP))
	p.set = rows
	defer func() { p.collect = nil }()
	r.log.note("the reference's log-probabilities of %s are computed", logging.Count(rows.Len(), "row"))
	for at := int64(0); at < rows.Len(); at += size {
		r.rank.Enter(health.Eval, 0)
		batch, err := feed.Batch(at, micros)
		if err != nil {
			return err
		}
		// A forward pass of the global batch, which hands over the sums by sequence.
		p.collect = func(row int64, sequence int32, answer int, logp float64) {
			if at+int64(sequence)/int64(c.Tuning.Sequences()) < rows.Len() && r.rank.Coordinates.TP == 0 { // later ones come a second time
				mine[2*row+int64(answer)] = logp
			}
		}
		if err := r.Engine.Peek(batch, engine.Observer{}); err != nil {
			return err
		}
		if p.loss.Mismatched() {
			if err := p.peekMismatched(r, batch); err != nil {
				return err
			}
		}
	}
	// Every row is on one data-parallel rank, so the sum over ranks has all of them.
	all, err := r.sum(mine)
	if err != nil {
		return err
	}
	return p.keep(rows, all)
}

// keep takes the log-probabilities of a set's rows, two a row.
func (p *preferring) keep(set *sft.Preferences, logps []float64) error {
	list := make([][2]float64, set.Len())
	for i := range list {
		list[i] = [2]float64{logps[2*i], logps[2*i+1]}
		if x := list[i][0] + list[i][1]; math.IsNaN(x) || math.IsInf(x, 0) {
			return exitcode.Errorf(exitcode.BadData, "the reference's log-probabilities of the row in line %d are %g and %g; check the reference model", set.Rows[i].Line, list[i][0], list[i][1])
		}
	}
	p.reference[set] = list
	return nil
}

// referenceFile is where --save keeps the reference's log-probabilities, for runs that resume.
const referenceFile = "reference_logps.json"

// keptReference is its content: by the sum of the rows they are of.
type keptReference map[string][][2]float64

// writeReference keeps the log-probabilities in --save, on the first rank.
func (r *Run) writeReference() error {
	if r.Config.Checkpoint.Save == "" || !r.rank.First() {
		return nil
	}
	text, err := r.prefer.kept()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.Config.Checkpoint.Save, 0o755); err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	return atomicfile.WriteFile(filepath.Join(r.Config.Checkpoint.Save, referenceFile), 0o666, text)
}

// kept are the log-probabilities as JSON.
func (p *preferring) kept() (json.RawMessage, error) {
	all := keptReference{}
	for set, list := range p.reference {
		all[set.Sum()] = list
	}
	text, err := json.Marshal(all)
	return text, exitcode.With(exitcode.Internal, err)
}

// readReference takes the log-probabilities of the folder that is resumed from. known: the folder
// has those of all rows.
func (r *Run) readReference(dir string) (known bool, err error) {
	path := filepath.Join(dir, referenceFile)
	known, err = r.takeReference(path, func() ([]byte, error) {
		text, err := exitcode.ReadFile(path, 1<<33)
		if exitcode.CodeOf(err) == exitcode.NoInput {
			return nil, nil
		}
		return text, err
	})
	if !known || err != nil || dir == r.Config.Checkpoint.Save {
		return known, err
	}
	return true, r.writeReference()
}

// takeReference takes the log-probabilities that the first rank reads; from names their source. The others have
// them from it. known: they are those of all rows.
func (r *Run) takeReference(from string, read func() ([]byte, error)) (known bool, err error) {
	sets, err := r.datasets()
	if err != nil {
		return false, err
	}
	var rows []*sft.Preferences
	n := int64(0)
	for _, set := range []dataset.Dataset{sets[dataset.Train], sets[dataset.Valid]} {
		if p := sft.PreferencesOf(set); p != nil {
			rows, n = append(rows, p), n+p.Len()
		}
	}
	all := make([]float64, 1, 1+2*n) // whether they are known, then two of each row
	if r.rank.First() {
		text, err := read()
		if err == nil {
			all, err = keptLogPs(from, text, rows, all)
		}
		if err != nil {
			return false, err
		}
	}
	if all, err = r.sum(all[:1+2*n]); err != nil || all[0] == 0 {
		return false, err
	}
	all = all[1:]
	for _, set := range rows {
		if err := r.prefer.keep(set, all[:2*set.Len()]); err != nil {
			return false, err
		}
		all = all[2*set.Len():]
	}
	return true, nil
}

// keptLogPs appends the log-probabilities that a text has of the rows of sets to all, and sets the first
// entry to 1 where it has all of them. from names the source of the text, which may be empty.
func keptLogPs(from string, text []byte, sets []*sft.Preferences, all []float64) ([]float64, error) {
	if len(text) == 0 {
		return all, nil
	}
	var kept keptReference
	if err := json.Unmarshal(text, &kept); err != nil {
		return nil, exitcode.Errorf(exitcode.IO, "%s: %w; remove this file and give the reference with --ref-load", from, err)
	}
	all[0] = 1
	for _, set := range sets {
		list := kept[set.Sum()]
		if int64(len(list)) != set.Len() {
			all[0] = 0
			return all, nil
		}
		for _, two := range list {
			all = append(all, two[0], two[1])
		}
	}
	return all, nil
}
