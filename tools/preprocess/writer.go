package preprocess

import (
	"fmt"
	"time"

	"monotron/dataset"
)

// writer has the output pairs: [partition][key].
type writer struct {
	*options
	pairs   [][]*dataset.Builder
	docs    int64
	perPart int64 // lines of a partition with --keep-sequential-samples
	bytes   int64
	start   time.Time
	shown   int64
}

// newWriter opens the pairs of all partitions.
func (o *options) newWriter() (*writer, error) {
	w := &writer{options: o, start: time.Now()}
	if o.partitions > 1 && o.sequential {
		lines, err := o.countLines()
		if err != nil {
			return nil, err
		}
		w.perPart = max(1, (lines+int64(o.partitions)-1)/int64(o.partitions))
	}
	for p := range o.partitions {
		row := make([]*dataset.Builder, 0, len(o.keys))
		for _, key := range o.keys {
			b, err := dataset.NewBuilder(o.name(p, key), o.dtype)
			if err != nil {
				w.pairs = append(w.pairs, row)
				w.abort()
				return nil, err
			}
			row = append(row, b)
		}
		w.pairs = append(w.pairs, row)
	}
	return w, nil
}

// name is the prefix of a partition's pair; there is one without number where
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
	for _, path := range o.inputs {
		err := readBlocks(path, func(j *job) bool { lines += j.block.Lines; return true })
		if err != nil {
			return 0, err
		}
	}
	return lines, nil
}

// partition of the next document: lines in turn, or in blocks.
func (w *writer) partition(doc int64) int64 {
	if w.perPart > 0 {
		return doc / w.perPart
	}
	return doc % int64(w.partitions)
}

// add writes the documents of a block.
func (w *writer) add(r result) error {
	item := int64(w.dtype.Size())
	for k, e := range r.keys {
		raw, lengths := e.raw, e.lengths
		for d, n := range e.perDoc {
			tokens := int64(0)
			for _, l := range lengths[:n] {
				tokens += int64(l)
			}
			b := w.pairs[w.partition(w.docs+int64(d))][k]
			if err := b.AddEncoded(raw[:tokens*item], lengths[:n]); err != nil {
				return err
			}
			raw, lengths = raw[tokens*item:], lengths[n:]
		}
	}
	w.docs += r.docs
	w.bytes += int64(len(r.job.block.Data))
	return nil
}

// progress prints Megatron's line after every --log-interval documents, at most
// one for a block.
func (w *writer) progress(result) {
	if w.docs/w.interval == w.shown/w.interval {
		return
	}
	w.shown = w.docs
	seconds := time.Since(w.start).Seconds()
	w.say("Processed %d documents (%v docs/s, %v MB/s).", w.docs/w.interval*w.interval, float64(w.docs)/seconds, float64(w.bytes)/1024/1024/seconds)
}

// finish publishes the pairs and joins the partitions.
func (w *writer) finish() error {
	for _, row := range w.pairs {
		for _, b := range row {
			if err := b.Finalize(); err != nil {
				return err
			}
		}
	}
	for k, key := range w.keys {
		if w.partitions > 1 {
			var names []string
			for p := range w.partitions {
				names = append(names, w.name(p, key))
			}
			if err := dataset.Merge(w.joined(key), names); err != nil {
				return err
			}
		}
		var documents, sequences, tokens int64
		for _, row := range w.pairs {
			documents += row[k].Documents()
			sequences += row[k].Sequences()
			tokens += row[k].Tokens()
		}
		w.say("%s: %d documents, %d sequences, %d tokens of %s", w.joined(key), documents, sequences, tokens, w.dtype)
	}
	return nil
}

func (w *writer) abort() {
	for _, row := range w.pairs {
		for _, b := range row {
			b.Abort()
		}
	}
}
