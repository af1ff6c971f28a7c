package preprocess

import (
	"errors"
	"io"
	"sync"

	"monotron/dataset/jsonl"
	"monotron/fault"
)

// blockBytes is how much text a worker gets at a time.
const blockBytes = 1 << 20

// job is a block on its way through a worker; out gets its result.
type job struct {
	block jsonl.Block
	err   error // of reading; ends the stream
	out   chan result
}

// result is the tokens of a block, by key.
type result struct {
	job    *job
	keys   []encoded
	docs   int64
	failed error
}

// encoded is one key's documents of a block.
type encoded struct {
	raw     []byte  // tokens, as in the file
	lengths []int32 // of sequences
	perDoc  []int32 // sequences of each document
}

// jsonl runs the pipeline: one goroutine reads blocks, workers encode them, and
// this one writes them in the order they were read.
func (o *options) jsonl() error {
	w, err := o.newWriter()
	if err != nil {
		return err
	}
	defer w.abort()
	stop := make(chan struct{})
	var wait sync.WaitGroup
	defer wait.Wait()
	defer close(stop)

	jobs, order := make(chan *job), make(chan *job, 2*o.workers)
	wait.Go(func() { o.readAll(jobs, order, stop) })
	for range o.workers {
		wait.Go(func() { o.encodeAll(jobs) })
	}
	for j := range order {
		r := <-j.out
		if r.failed != nil {
			return r.failed
		}
		if err := w.add(r); err != nil {
			return err
		}
		w.progress(r)
	}
	return w.finish()
}

// readAll sends every block to a worker (jobs) and, in order, to the writer,
// until the input ends, fails, or stop is closed.
func (o *options) readAll(jobs, order chan<- *job, stop <-chan struct{}) {
	defer close(order)
	defer close(jobs)
	send := func(j *job) bool {
		for _, to := range []chan<- *job{order, jobs} {
			select {
			case to <- j:
			case <-stop:
				return false
			}
		}
		return true
	}
	for _, path := range o.inputs {
		if err := readBlocks(path, send); err != nil {
			send(&job{err: err, out: make(chan result, 1)})
			return
		}
	}
}

// readBlocks sends the blocks of one file; nil at its end or when send refuses.
func readBlocks(path string, send func(*job) bool) error {
	r, err := jsonl.Open(path, blockBytes)
	if err != nil {
		return err
	}
	for {
		block, err := r.Next(nil)
		if err == io.EOF {
			return r.Close()
		}
		if err != nil {
			return errors.Join(err, r.Close())
		}
		if !send(&job{block: block, out: make(chan result, 1)}) {
			return r.Close()
		}
	}
}

func (o *options) encodeAll(jobs <-chan *job) {
	e := &encoder{options: o, parser: jsonl.NewParser(o.keys...)}
	for j := range jobs {
		j.out <- e.block(j)
	}
}

// encoder is one worker's state.
type encoder struct {
	*options
	parser *jsonl.Parser
	ids    []int32
}

func (e *encoder) block(j *job) result {
	r := result{job: j, keys: make([]encoded, len(e.keys))}
	if r.failed = j.err; r.failed != nil {
		return r
	}
	for n, line := range j.block.Each() {
		err := e.parser.Parse(line)
		for k := 0; err == nil && k < len(e.keys); k++ {
			var pieces []string
			if pieces, err = e.pieces(k); err == nil {
				err = e.document(&r.keys[k], pieces)
			}
		}
		if err != nil {
			r.failed = fault.Errorf(fault.BadData, "%s:%d: %w", j.block.Name, n, err)
			return r
		}
		r.docs++
	}
	return r
}

// pieces are the texts of one document: those of the line, or its sentences.
func (e *encoder) pieces(k int) ([]string, error) {
	if e.sentences == nil {
		return e.parser.Strings(k)
	}
	text, err := e.parser.String(k)
	if err != nil {
		return nil, err
	}
	return e.sentences.Split(text), nil
}

// document adds one document: a sequence for every piece that has tokens, EOD at
// the end of the last one.
func (e *encoder) document(to *encoded, pieces []string) (err error) {
	e.ids = e.ids[:0]
	sequences := int32(0)
	for _, piece := range pieces {
		before := len(e.ids)
		if e.ids, err = e.tok.Append(e.ids, piece); err != nil {
			return err
		}
		if n := len(e.ids) - before; n > 0 {
			to.lengths = append(to.lengths, int32(n))
			sequences++
		}
	}
	if sequences == 0 && e.emptyToo {
		to.lengths = append(to.lengths, 0)
		sequences = 1
	}
	if sequences > 0 && e.appendEOD {
		e.ids = append(e.ids, int32(e.tok.EOD()))
		to.lengths[len(to.lengths)-1]++
	}
	to.perDoc = append(to.perDoc, sequences)
	to.raw, err = e.dtype.Append(to.raw, e.ids)
	return err
}
