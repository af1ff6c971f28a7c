package preprocess

import (
	"errors"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"monotron/dataset/jsonl"
	"monotron/internal/exitcode"
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

	text []byte        // reserved for block.Data
	raw  [][]byte      // reserved for the keys'
	gone chan struct{} // of a long line: closed when it is written
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
	rest     []byte // for the beginnings of lines
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
	var buffers stock
	defer buffers.free() // when nobody uses them any more
	in := &source{options: o, from: w.at, free: make(chan *job, o.workers+2), rest: buffers.buffer(sizeFor(o.maxLine, o.dtype).text)}
	for range cap(in.free) {
		in.free <- o.newJob(&buffers)
	}
	encoders := make([]*encoder, o.workers)
	for i := range encoders {
		encoders[i] = o.newEncoder(&buffers)
	}
	runtime.GC() // what a collection takes is taken now, so that it is in every run's peak
	stop := make(chan struct{})
	var wait sync.WaitGroup
	defer wait.Wait()
	defer close(stop)

	jobs, order := make(chan *job, cap(in.free)), make(chan *job, cap(in.free))
	wait.Go(func() { in.readAll(jobs, order, stop) })
	for _, e := range encoders {
		wait.Go(func() { e.all(jobs) })
	}
	p := o.newProgress(&in.consumed)
	collect := 0
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
		if collect += len(j.block.Data); collect > collectEvery {
			collect = 0
			runtime.GC()
		}
		j.reset()
		in.free <- j
		if w.full() {
			break
		}
	}
	p.end()
	return w.finish()
}

// collectEvery is after how many bytes of text the little that is left behind
// meanwhile is collected, so that it does not add up where the limit is far.
const collectEvery = 64 << 20

// newJob has the buffers that the run's blocks go through.
func (o *options) newJob(s *stock) *job {
	r := sizeFor(o.maxLine, o.dtype)
	j := &job{out: make(chan struct{}, 1), keys: make([]encoded, len(o.keys)), text: s.buffer(r.text)}
	for range j.keys {
		j.raw = append(j.raw, s.buffer(r.raw))
	}
	j.reset()
	return j
}

// reset empties a job for the next block, and gives back what a long line's tokens
// took; what its text took was given back when it was encoded.
func (j *job) reset() {
	j.block.Data = j.text
	for k, raw := range j.raw {
		giveBack(raw, usual, len(j.keys[k].raw))
		j.keys[k].raw = raw
	}
	if j.gone != nil {
		close(j.gone)
		j.gone = nil
	}
}

// mark is closed when the job is written, if it has a long line, else nil.
func (j *job) mark() chan struct{} {
	if len(j.block.Data) > usual {
		j.gone = make(chan struct{})
	}
	return j.gone
}

// usual is a block for which no memory is given back.
const usual = blockBytes + blockBytes/4

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
	send := func(j *job) {
		gone := j.mark()
		order <- j // both have space for every job
		jobs <- j
		if gone != nil { // one long line at a time: the peak does not depend on where in the input they stand
			select {
			case <-gone:
			case <-stop:
			}
		}
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

// readFile sends the blocks of one file; nil at its end or without a job.
func (s *source) readFile(file int, take func() *job, send func(*job)) error {
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

// part is what is read of an input.
func (o *options) part(file int) (all jsonl.Part) {
	if o.parts == nil {
		return all
	}
	return o.parts[file]
}

// open opens an input, where a resumed run continues.
func (s *source) open(file int) (*jsonl.Reader, error) {
	r, err := jsonl.OpenPart(s.inputs[file], blockBytes, s.part(file))
	if err != nil {
		return nil, err
	}
	r.MaxLine = s.maxLine
	r.Use(s.rest)
	if file == s.from.File && s.from.At > 0 {
		if err := r.Skip(s.from.At, s.from.Line); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	return r, nil
}

// encoder is one worker's state.
type encoder struct {
	*options
	parser *jsonl.Parser
	ids    []int32
	own    []int32 // reserved for ids
	text   []byte  // reserved for the parser
}

func (o *options) newEncoder(s *stock) *encoder {
	r := sizeFor(o.maxLine, o.dtype)
	return &encoder{options: o, parser: jsonl.NewParser(o.keys...), own: s.ids(r.ids), text: s.buffer(r.text)}
}

func (e *encoder) all(jobs <-chan *job) {
	for j := range jobs {
		e.one(j)
		j.out <- struct{}{}
	}
}

// one encodes a block. Lines beyond what the buffers are reserved for are taken from the
// heap, some eight times their length, by one worker at a time.
func (e *encoder) one(j *job) {
	if len(j.block.Data) > longLine {
		e.heap.Lock()
		defer e.heap.Unlock()
	}
	e.parser.Use(e.text)
	e.ids = e.own
	e.block(j)
	e.giveBack(j, len(j.block.Data))
}

// giveBack gives up what the longer lines of a block of n bytes took; its text is not
// read again.
func (e *encoder) giveBack(j *job, n int) {
	const keep = blockBytes / 8 // of one line
	giveBack(j.text, usual, 2*n)
	giveBack(e.text, keep, n)
	giveBack(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(e.own))), 4*cap(e.own)), 4*keep, 4*n)
}

func (e *encoder) block(j *job) {
	j.docs, j.bad, j.failed = 0, j.bad[:0], j.err
	for k := range j.keys {
		j.keys[k].cut(extent{})
	}
	if j.failed != nil {
		return
	}
	// A line adds to every key's tokens, or, where it is bad, to none.
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
		err = exitcode.Errorf(exitcode.BadData, "%s:%d: %w", j.block.Name, n, err)
		if !e.skipBad {
			j.failed = exitcode.Errorf(exitcode.BadData, "%w; use --on-bad-line skip to leave such lines out", err)
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
