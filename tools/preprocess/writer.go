package preprocess

import (
	"fmt"
	"path/filepath"
	"time"

	"monotron/dataset"
	"monotron/internal/exitcode"
	"monotron/internal/logging"
)

// writer has the output files: [partition][key].
type writer struct {
	*options
	pairs   [][]*dataset.Builder
	docs    int64
	bad     int64 // lines left out
	at      position
	perPart int64   // lines of a partition with --keep-sequential-samples
	given   []int64 // documents of each partition, for --max-documents
	saved   time.Time
}

// position is where the inputs were read to: the start of line Line of file File,
// at byte At of its unpacked text.
type position struct {
	File int   `json:"file"`
	At   int64 `json:"byte"`
	Line int64 `json:"line"`
}

// newWriter opens the output files, new ones or those of an interrupted run; nil
// where that run needed only its last steps, which are then done.
func (o *options) newWriter() (w *writer, err error) {
	o.hash = dataset.TokenizerHash(o.tok) // now: it encodes, and later only the workers shall
	w = &writer{options: o, saved: time.Now(), at: position{Line: 1}, given: make([]int64, o.partitions)}
	// Blocks of lines need to know how many lines there are.
	if o.partitions > 1 && o.sequential {
		lines, err := o.countLines()
		if err != nil {
			return nil, err
		}
		w.perPart = max(1, (lines+int64(o.partitions)-1)/int64(o.partitions))
	}
	// An interrupted run continues where its journal says, or only has its last steps left.
	j, err := o.readJournal()
	if err != nil {
		return nil, err
	}
	if j != nil && j.Complete {
		o.say("%s: only the last steps of the interrupted run were missing", o.prefix)
		return nil, o.finishOld(j)
	}
	if j != nil {
		w.docs, w.bad, w.at = j.Docs, j.Bad, j.At
		o.say("%s: continuing at %s:%d, after %d documents", o.prefix, o.inputs[min(w.at.File, len(o.inputs)-1)], w.at.Line, w.docs)
	}
	// A pair for each partition and key; one that cannot be opened closes those before it.
	for p := range o.partitions {
		row := make([]*dataset.Builder, 0, len(o.keys))
		for k := range o.keys {
			config := o.builder(p, k)
			if j != nil {
				config.From = &j.Marks[p][k]
			}
			b, err := dataset.OpenBuilder(config)
			if err != nil {
				w.pairs = append(w.pairs, row)
				w.end()
				return nil, err
			}
			row = append(row, b)
		}
		w.pairs = append(w.pairs, row)
	}
	return w, nil
}

// builder says what is written for a key.
func (o *options) builder(partition, key int) dataset.BuilderConfig {
	return dataset.BuilderConfig{Prefix: o.name(partition, o.keys[key]), DType: o.dtype, Format: o.output, Resumable: true}
}

// name is the prefix of a partition's files; there is one without number where
// nothing is partitioned.
func (o *options) name(partition int, key string) string {
	if o.partitions == 1 {
		return o.joined(key)
	}
	return fmt.Sprintf("%s_%d_%s_%s", o.prefix, partition, key, o.level())
}

func (o *options) joined(key string) string { return o.prefix + "_" + key + "_" + o.level() }

// level is what a sequence of the output is.
func (o *options) level() string {
	if o.sentences != nil {
		return "sentence"
	}
	return "document"
}

func (o *options) countLines() (lines int64, err error) {
	s := &source{options: o, free: make(chan *job, 1)}
	s.free <- &job{}
	for file := range o.inputs {
		err := s.readFile(file, func() *job { return <-s.free }, func(j *job) {
			lines += j.block.Lines
			s.free <- j
		})
		if err != nil {
			return 0, err
		}
	}
	return lines, nil
}

// partition of the next document: lines in turn, or in blocks.
func (w *writer) partition(doc int64) int64 {
	if w.perPart > 0 {
		return min(doc/w.perPart, int64(w.partitions)-1)
	}
	return doc % int64(w.partitions)
}

// add writes the documents of a block, and notes from time to time how far the
// run has come.
func (w *writer) add(j *job) error {
	if err := w.addKeys(j); err != nil {
		return err
	}
	for _, text := range j.bad {
		if w.bad++; w.bad <= badShown {
			w.say("left out: %s", text)
		} else if w.bad == badShown+1 {
			w.say("more lines are left out, which are only counted and not listed")
		}
	}
	w.read += j.docs
	w.at = position{File: j.file, At: j.block.End, Line: j.block.Line + j.block.Lines}
	if time.Since(w.saved) < w.saveEvery {
		return nil
	}
	w.saved = time.Now()
	return w.save(false)
}

// badShown is how many bad lines are named.
const badShown = 100

func (w *writer) addKeys(j *job) error {
	docs := j.docs
	// One pair takes the block as it is.
	if w.partitions == 1 && w.maxDocuments == 0 {
		w.docs += docs
		for k, e := range j.keys {
			if err := w.pairs[0][k].AddEncoded(e.raw, e.lengths, e.perDoc); err != nil {
				return err
			}
		}
		return nil
	}
	// Otherwise document by document: where each one's tokens and lengths begin.
	item, used := int64(w.dtype.Size()), make([]extent, len(j.keys))
	for d := range docs {
		p := w.partition(w.docs)
		w.docs++
		w.given[p]++
		for k, e := range j.keys {
			u := &used[k]
			n, tokens := int(e.perDoc[d]), int64(0)
			for _, l := range e.lengths[u.lengths : u.lengths+n] {
				tokens += int64(l)
			}
			end := u.raw + int(tokens*item)
			if w.maxDocuments == 0 || w.given[p] <= w.maxDocuments {
				err := w.pairs[p][k].AddEncoded(e.raw[u.raw:end], e.lengths[u.lengths:u.lengths+n], e.perDoc[d:d+1])
				if err != nil {
					return err
				}
			}
			u.raw, u.lengths = end, u.lengths+n
		}
	}
	return nil
}

// full: every partition has the documents that a search for the best number of
// workers takes.
func (w *writer) full() bool {
	for _, n := range w.given {
		if w.maxDocuments == 0 || n < w.maxDocuments {
			return false
		}
	}
	return true
}

// finish publishes the files and joins the partitions.
func (w *writer) finish() error {
	for _, row := range w.pairs {
		for _, b := range row {
			if err := b.Prepare(); err != nil {
				return err
			}
		}
	}
	if err := w.empty(); err != nil {
		return err
	}
	if err := w.save(true); err != nil {
		return err
	}
	for _, row := range w.pairs {
		for _, b := range row {
			if err := b.Publish(); err != nil {
				return err
			}
		}
	}
	if err := w.join(w.summaries()); err != nil {
		return err
	}
	if w.bad > 0 {
		w.say("%s: left out %s", w.prefix, logging.Count(w.bad, "line"))
	}
	return w.removeJournal()
}

// empty refuses an output without a document, of an input all of whose lines were left out.
func (w *writer) empty() error {
	if w.docs > 0 || w.bad == 0 {
		return nil
	}
	return exitcode.Errorf(exitcode.BadData, "%s: all %d lines of the input were left out, for the reasons above, so the dataset would be empty; see --json-keys and --input-format, or correct the input", w.prefix, w.bad)
}

// summaries describe what each key's files hold, all partitions together.
func (w *writer) summaries() []dataset.Sidecar {
	list := make([]dataset.Sidecar, len(w.keys))
	for k := range w.keys {
		list[k] = dataset.NewSidecar(w.tok, w.settings, w.pairs[0][k], w.appendEOD, w.bad)
		for _, row := range w.pairs[1:] {
			list[k].Documents += row[k].Documents()
			list[k].Sequences += row[k].Sequences()
			list[k].Tokens += row[k].Tokens()
		}
	}
	return list
}

// join makes the pair of all partitions, and the files that describe the pairs.
func (o *options) join(summaries []dataset.Sidecar) error {
	for k, key := range o.keys {
		s := summaries[k]
		if o.partitions > 1 {
			var names []string
			for p := range o.partitions {
				names = append(names, o.name(p, key))
			}
			if err := dataset.Merge(dataset.BuilderConfig{Prefix: o.joined(key), Resumable: true}, names); err != nil {
				return err
			}
		}
		if err := o.describe(s, o.joined(key)); err != nil {
			return err
		}
		o.say("%s: %s, %s, %s of %s", o.joined(key), logging.Count(s.Documents, "document"), logging.Count(s.Sequences, "sequence"), logging.Count(s.Tokens, "token"), o.dtype)
	}
	return nil
}

// describe writes the sidecar of a pair; other formats have none.
func (o *options) describe(s dataset.Sidecar, prefix string) error {
	if o.output != dataset.Pair && o.output != dataset.OldPair {
		return nil
	}
	return s.Write(prefix)
}

// end closes the files after an error: without a trace of them. (A process that
// is killed leaves them, and its journal, for --resume.)
func (w *writer) end() {
	for _, row := range w.pairs {
		for _, b := range row {
			b.Abort()
		}
	}
	_ = w.removeJournal()
}

// folder is where the output goes.
func (o *options) folder() string { return filepath.Dir(o.prefix) }
