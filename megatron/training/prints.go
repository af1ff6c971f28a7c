package training

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/internal/fingerprint"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/engine"
	"monotron/mpu"
	"monotron/mpu/topology"
)

// Fingerprints of a rank's step, in the order that the rank computed: --log-fingerprints
// writes one as a line of DIR/rank_00000.jsonl. The first line of each start has a Header.
type Fingerprints struct {
	Iteration int64   `json:"iteration"`
	Header    *Header `json:"header,omitempty"`
	Prints    []Print `json:"prints,omitempty"`
}

// Header says what the lines after it are of.
type Header struct {
	Rank   int                 `json:"rank"`
	Layout topology.Sizes      `json:"layout"`
	Flags  map[string][]string `json:"flags"` // as given
}

// Print is the fingerprint of one tensor.
type Print struct {
	Phase string `json:"phase"` // PrintData, ..
	Micro int    `json:"micro"` // micro-batch of a data or forward phase
	Depth int    `json:"depth"` // of a forward phase: 0 the embedding's output, n that of layer n-1
	Name  string `json:"name"`
	Sum   string `json:"sum"`
}

// Phases of a Print, in the order of a step.
const (
	PrintData     = "data"     // tokens, labels, loss mask, positions
	PrintForward  = "forward"  // the residual stream
	PrintGradient = "gradient" // before clipping
	PrintWeight   = "weight"   // after the update
)

// PrintsOf is the file of a rank in a folder of fingerprints.
func PrintsOf(folder string, rank int) string {
	return filepath.Join(folder, fmt.Sprintf("rank_%05d.jsonl", rank))
}

// prints writes a rank's fingerprints; nil does nothing.
type prints struct {
	path string
	file *os.File
	out  *bufio.Writer
	step Fingerprints // under way
	on   bool         // this step is one of those asked for
}

// openPrints opens the rank's file, to which a resumed run appends.
func (r *Run) openPrints() error {
	dir := r.Config.Log.Fingerprints
	if dir == "" {
		return nil
	}
	err := os.MkdirAll(dir, 0o777)
	p := &prints{path: PrintsOf(dir, r.rank.Number)}
	if err == nil {
		p.file, err = os.OpenFile(p.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	}
	if err != nil {
		return exitcode.Errorf(exitcode.IO, "--log-fingerprints: %w", err)
	}
	p.out = bufio.NewWriterSize(p.file, 1<<20)
	p.step.Header = &Header{Rank: r.rank.Number, Layout: r.rank.Sizes, Flags: r.Config.Flags}
	r.prints = p
	p.step.Iteration = r.Engine.Iteration
	return p.write()
}

// watch adds to observer the fingerprints of a step's data and layers.
func (p *prints) watch(r *Run, batch []*engine.Micro, observer engine.Observer) engine.Observer {
	if p == nil {
		return observer
	}
	if p.on = due(r.Engine.Iteration+1, r.Config.Log.FingerprintN); !p.on {
		return observer
	}
	p.step.Iteration = r.Engine.Iteration + 1
	for i, m := range batch {
		p.data(i, m)
	}
	before := observer.Layer
	observer.Layer = func(depth int, x device.Tensor) {
		p.forward(r, depth, x)
		if before != nil {
			before(depth, x)
		}
	}
	return observer
}

// data adds what a micro-batch is made of.
func (p *prints) data(i int, m *engine.Micro) {
	p.rows(i, "tokens", asBytes(m.Tokens))
	p.rows(i, "labels", asBytes(m.Labels))
	p.rows(i, "loss mask", asBytes(m.LossMask))
	p.rows(i, "position ids", asBytes(m.PositionIDs))
	p.rows(i, "first positions seen", asBytes(m.DocStart))
}

// rows adds one kind of data of a micro-batch: elements of 4 bytes, a row a sample.
func (p *prints) rows(micro int, name string, rows [][]byte) {
	var sum fingerprint.Sum
	for at, row := range rows {
		sum.Add(fingerprint.KeyOf(name, "4 bytes", []int64{int64(at)}), row, 4, 0)
	}
	p.add(Print{Phase: PrintData, Micro: micro, Name: name, Sum: sum.String()})
}

func asBytes[T any](rows [][]T) [][]byte {
	all := make([][]byte, len(rows))
	for i, row := range rows {
		all[i] = device.AsBytes(row)
	}
	return all
}

// forward adds what this rank has of the residual stream.
func (p *prints) forward(r *Run, depth int, x device.Tensor) {
	name := "the embedding's output"
	if depth > 0 {
		name = fmt.Sprintf("the output of layer %d", depth-1)
	}
	raw := make([]byte, x.Bytes())
	r.device.Read(raw, x.Reshape(x.Len()))
	var sum fingerprint.Sum
	sum.Add(fingerprint.KeyOf(name, x.DType.String(), nil), raw, int(x.DType.Size()), 0)
	p.add(Print{Phase: PrintForward, Micro: r.Engine.Micro(), Depth: depth, Name: name, Sum: sum.String()})
}

func (p *prints) add(one Print) { p.step.Prints = append(p.step.Prints, one) }

// end adds gradients and weights after the step, and writes its line.
func (p *prints) end(r *Run) error {
	if p == nil || !p.on {
		return nil
	}
	for _, kind := range []struct {
		phase   string
		tensors []mpu.Stored
	}{{PrintGradient, r.Engine.Gradients()}, {PrintWeight, r.Engine.Weights()}} {
		for _, t := range kind.tensors {
			sum, err := native.Fingerprint(t, r.device)
			if err != nil {
				return err
			}
			p.add(Print{Phase: kind.phase, Name: t.Name, Sum: sum.String()})
		}
	}
	if err := p.write(); err != nil {
		r.log.notes.Warn("%v; training continues without fingerprints", err)
		r.prints = nil
		_ = p.file.Close() // which has failed
	}
	return nil
}

// write ends a line.
func (p *prints) write() error {
	line, err := json.Marshal(p.step)
	if err == nil {
		_, err = p.out.Write(append(line, '\n'))
	}
	if err == nil {
		err = p.out.Flush()
	}
	p.step = Fingerprints{Prints: p.step.Prints[:0]}
	if err != nil {
		return exitcode.Errorf(exitcode.IO, "--log-fingerprints %s: %w", p.path, err)
	}
	return nil
}

func (p *prints) close() error {
	if p == nil {
		return nil
	}
	if err := p.file.Close(); err != nil {
		return exitcode.Errorf(exitcode.IO, "--log-fingerprints: %w", err)
	}
	return nil
}
