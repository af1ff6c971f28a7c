package preprocess

import (
	"errors"
	"io"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"monotron/dataset/jsonl"
	"monotron/fault"
)

// blockBytes is how much text a worker gets at a time.
const blockBytes = 1 << 20

// job is a block on its way through a worker and back; out gets it when it is
// encoded. The writer gives it to the reader again, with its memory.
type job struct {
	block jsonl.Block
	file  int   // of the inputs
	err   error // of reading; ends the stream
	out   chan struct{}

	keys   []encoded // its tokens, by key
	docs   int64
	bad    []string // lines left out, each with file:line
	failed error
}

// encoded is one key's documents of a block.
type encoded struct {
	raw     []byte  // tokens, as in the file
	lengths []int32 // of sequences
	perDoc  []int32 // sequences of each document
}

// source gives blocks of all inputs.
type source struct {
	*options
	from     position
	consumed atomic.Int64 // bytes of the files, still packed
	free     chan *job
}

// jsonl runs the pipeline: one goroutine reads blocks, workers encode them, and
// this one writes them in the order they were read. There are so many jobs and
// no more, so memory does not depend on the input.
func (o *options) jsonl() (err error) {
	w, err := o.newWriter()
	if w == nil || err != nil {
		return err
	}
	defer w.end()
	in := &source{options: o, from: w.at, free: make(chan *job, o.workers+2)}
	for range cap(in.free) {
		in.free <- &job{out: make(chan struct{}, 1), keys: make([]encoded, len(o.keys))}
	}
	stop := make(chan struct{})
	var wait sync.WaitGroup
	defer wait.Wait()
	defer close(stop)

	jobs, order := make(chan *job, cap(in.free)), make(chan *job, cap(in.free))
	wait.Go(func() { in.readAll(jobs, order, stop) })
	for range o.workers {
		wait.Go(func() { o.encodeAll(jobs) })
	}
	p := o.newProgress(&in.consumed)
	for j := range order {
		<-j.out
		if j.failed != nil {
			return j.failed
		}
		if err := w.add(j); err != nil {
			return err
		}
		p.show(w.docs, int64(len(j.block.Data)))
		if n := len(j.block.Data); n > 4*blockBytes && n > o.longest {
			o.longest = n
			debug.SetMemoryLimit(o.memory(n))
		}
		j.slim()
		in.free <- j
		if w.full() {
			break
		}
	}
	p.end()
	return w.finish()
}

// slim gives up memory that a very long line needed.
func (j *job) slim() {
	if cap(j.block.Data) > 2*blockBytes {
		j.block.Data = nil
	}
	for k := range j.keys {
		if cap(j.keys[k].raw) > 2*blockBytes {
			j.keys[k].raw = nil
		}
	}
}

// readAll sends every block to a worker (jobs) and, in order, to the writer,
// until the input ends, fails, or stop is closed.
func (s *source) readAll(jobs, order chan<- *job, stop <-chan struct{}) {
	defer close(order)
	defer close(jobs)
	take := func() *job {
		select {
		case j := <-s.free:
			return j
		case <-stop:
			return nil
		}
	}
	send := func(j *job) bool {
		order <- j // both have room for every job
		jobs <- j
		return true
	}
	for file := s.from.File; file < len(s.inputs); file++ {
		if err := s.readFile(file, take, send); err != nil {
			if j := take(); j != nil {
				j.err = err
				send(j)
			}
			return
		}
	}
}

// readFile sends the blocks of one file; nil at its end or when there is no job.
func (s *source) readFile(file int, take func() *job, send func(*job) bool) error {
	r, err := s.open(file)
	if err != nil {
		return err
	}
	before, n := s.consumed.Load(), int64(0)
	for j := take(); j != nil; j = take() {
		block, err := r.Next(j.block.Data)
		n = r.Consumed()
		s.consumed.Store(before + n)
		if err == io.EOF {
			s.free <- j
			break
		}
		if err != nil {
			s.free <- j
			return errors.Join(err, r.Close())
		}
		j.block, j.file, j.err = block, file, nil
		send(j)
	}
	return r.Close()
}

// open opens an input, where a resumed run goes on.
func (s *source) open(file int) (*jsonl.Reader, error) {
	r, err := jsonl.Open(s.inputs[file], blockBytes)
	if err != nil {
		return nil, err
	}
	r.MaxLine = s.maxLine
	if file == s.from.File && s.from.At > 0 {
		if err := r.Skip(s.from.At, s.from.Line); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	return r, nil
}

func (o *options) encodeAll(jobs <-chan *job) {
	e := &encoder{options: o, parser: jsonl.NewParser(o.keys...)}
	for j := range jobs {
		e.block(j)
		if cap(e.ids) > blockBytes {
			e.ids = nil
		}
		j.out <- struct{}{}
	}
}

// encoder is one worker's state.
type encoder struct {
	*options
	parser *jsonl.Parser
	ids    []int32
}

func (e *encoder) block(j *job) {
	j.docs, j.bad, j.failed = 0, j.bad[:0], j.err
	for k := range j.keys {
		j.keys[k].cut(extent{})
	}
	if j.failed != nil {
		return
	}
	before := make([]extent, len(j.keys))
	for n, line := range j.block.Each() {
		for k := range j.keys {
			before[k] = j.keys[k].extent()
		}
		err := e.line(j.keys, line)
		if err == nil {
			j.docs++
			continue
		}
		err = fault.Errorf(fault.BadData, "%s:%d: %w", j.block.Name, n, err)
		if !e.skipBad {
			j.failed = err
			return
		}
		j.bad = append(j.bad, err.Error())
		for k := range j.keys {
			j.keys[k].cut(before[k])
		}
	}
}

// line encodes one line's document, for every key.
func (e *encoder) line(to []encoded, line []byte) error {
	if err := e.parser.Parse(line); err != nil {
		return err
	}
	for k := range to {
		pieces, err := e.pieces(k)
		if err == nil {
			err = e.document(&to[k], pieces)
		}
		if err != nil {
			return err
		}
	}
	return nil
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
// the end of the last one (in llm.c's files before the first).
func (e *encoder) document(to *encoded, pieces []string) (err error) {
	e.ids = e.ids[:0]
	first := len(to.lengths)
	for _, piece := range pieces {
		before := len(e.ids)
		if e.ids, err = e.tok.Append(e.ids, piece); err != nil {
			return err
		}
		if n := len(e.ids) - before; n > 0 {
			to.lengths = append(to.lengths, int32(n))
		}
	}
	if len(to.lengths) == first && e.emptyToo {
		to.lengths = append(to.lengths, 0)
	}
	sequences := to.lengths[first:]
	if eod := int32(e.tok.EOD()); len(sequences) > 0 && e.appendEOD && e.eodFirst {
		e.ids = slices.Insert(e.ids, 0, eod)
		sequences[0]++
	} else if len(sequences) > 0 && e.appendEOD {
		e.ids = append(e.ids, eod)
		sequences[len(sequences)-1]++
	}
	to.perDoc = append(to.perDoc, int32(len(sequences)))
	to.raw, err = e.dtype.Append(to.raw, e.ids)
	return err
}

// extent is how much of an encoded is filled.
type extent struct{ raw, lengths, perDoc int }

func (t *encoded) extent() extent { return extent{len(t.raw), len(t.lengths), len(t.perDoc)} }

func (t *encoded) cut(to extent) {
	t.raw, t.lengths, t.perDoc = t.raw[:to.raw], t.lengths[:to.lengths], t.perDoc[:to.perDoc]
}
