package modelcase

import (
	"sync"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/megatron/spec"
	"monotron/mpu"
	"monotron/mpu/ranks"
)

// subject is a model under test on a device, with its optimizer.
type subject struct {
	*engine.Engine
	config config.Run
	names  naming
	device *device.Device
}

// weights are the case's start.
type weights struct {
	mu     sync.Mutex
	names  naming
	file   *tensors
	biases routerBiases // of case.json; none: the file's
	model  *spec.Model
}

// paddingRows is what a case with trained padding appends to the embedding.
const paddingRows = "padding_rows"

// openWeights opens the weights that the case uses; model is the case that says
// which architecture they are of and with which settings they go.
func (r *run) openWeights(model *caseFile) (*weights, *config.Run, error) {
	line, err := model.commandLine(positionsOf(model))
	if err != nil {
		return nil, nil, err
	}
	config, err := model.parse(line)
	if err != nil {
		return nil, nil, err
	}
	var names naming
	if model.WeightNames != megatronNaming {
		m := config.Model // the mapping keeps it
		if names.family, err = hf.NewMapping(&m, model.Architecture); err != nil {
			return nil, nil, err
		}
	}
	file, err := openTensors(r.path(r.Weights, "weights.safetensors"))
	if err != nil {
		return nil, nil, err
	}
	r.opened = append(r.opened, file)
	w := &weights{names: names, file: file, biases: model.Biases, model: &config.Model}
	return w, &config, w.checkNames(&config)
}

// tensor is a Megatron tensor of the file with the rows of padding it stores;
// nil where the architecture has no such tensor.
func (w *weights) tensor(global string) ([]float32, error) {
	w.mu.Lock() // ranks share the file
	defer w.mu.Unlock()
	values, err := w.names.fromFile(w.file, global)
	if err != nil || global != "embedding.word_embeddings.weight" || !w.file.has(paddingRows) {
		return values, err
	}
	padding, err := w.file.Float32(paddingRows)
	return append(values, padding...), err
}

// fill gives a parameter its start; one that the file lacks starts as in
// training (norms of queries and keys: 1). Padded rows that do not count are 0.
func (w *weights) fill(d *device.Device, p *mpu.Param) error {
	host := make([]float32, p.Len())
	for _, t := range p.Tensors() {
		values, err := w.tensor(t.Name)
		if err != nil {
			return err
		}
		if values == nil {
			p.Initialize(d, 0)
			return nil
		}
		full := mpu.Piece{Size: t.Global}
		if int64(len(values)) < full.Len() {
			return exitcode.Errorf(exitcode.BadData, "%s: %s has %d elements, but the model needs %d", w.file.Path, t.Name, len(values), full.Len())
		}
		fillPieces(host, t, values)
	}
	p.SetMain(d, host)
	return nil
}

// newSubject builds the model of config with weights w. Whatever lay on the
// device before is gone: a run holds one subject at a time.
func newSubject(d *device.Device, config config.Run, w *weights) (*subject, error) {
	d.Arena.Close()
	schedule, err := config.Optimizer.Schedule(max(1, config.TrainIters), config.TrainSamples, config.GlobalBatchSize)
	if err != nil {
		return nil, err
	}
	e, err := engine.New(ranks.Alone(d), config.Step, schedule)
	if err != nil {
		return nil, err
	}
	for _, p := range e.Params {
		if err := w.fill(d, p); err != nil {
			return nil, err
		}
	}
	if err := w.fillBuffers(d, e.Stages); err != nil {
		return nil, err
	}
	return &subject{Engine: e, config: config, names: w.names, device: d}, d.Sync()
}

// gradient is the gradient of the last step, before clipping, of a tensor of the files.
func (s *subject) gradient(name string, factor float64) ([]float64, error) {
	return s.pull(name, func(p *mpu.Param) []float64 {
		g := read(s.device, p.Grad)
		for i := range g {
			g[i] /= factor
		}
		return g
	})
}

// parameter is a tensor of the files as it stands now.
func (s *subject) parameter(name string) ([]float64, error) {
	return s.pull(name, func(p *mpu.Param) []float64 { return read(s.device, p.Main) })
}

func (s *subject) pull(name string, values func(*mpu.Param) []float64) ([]float64, error) {
	return s.names.ofFile(name, func(global string) ([]float64, error) {
		for _, p := range s.Params {
			for _, h := range valuesOf(p) {
				if h.Name == global {
					return h.part(values(p)), nil
				}
			}
		}
		return nil, exitcode.Errorf(exitcode.BadData, "the model has no %s, from which %q is computed", global, name)
	})
}

// fileNames are the names that files have for the model's tensors.
func (s *subject) fileNames() (names []string) {
	if s.names.family != nil {
		for _, source := range s.names.family.Stored() {
			names = append(names, source.Name)
		}
		return names
	}
	for _, p := range s.Params {
		for _, t := range p.Tensors() {
			names = append(names, t.Name)
		}
	}
	return names
}

// read is a tensor's values on the host.
func read(d *device.Device, t device.Tensor) []float64 {
	raw := make([]byte, t.Bytes())
	d.Read(raw, t)
	return device.ToFloat64(t.DType, raw)
}

// batchFirst turns rows of [s, b] into [b, s], width values each.
func batchFirst(x []float64, batch, width int) []float64 {
	out := make([]float64, len(x))
	seq := len(x) / (batch * width)
	for i := range seq {
		for j := range batch {
			copy(out[(j*seq+i)*width:][:width], x[(i*batch+j)*width:][:width])
		}
	}
	return out
}

// newMicro checks the length and ids of a micro-batch and fills what the case
// leaves out: positions 0, 1, .. and samples 0, 1, ..
func newMicro(c *config.Run, tokens, labels [][]int32, mask [][]float32, positions [][]int32) (*engine.Micro, error) {
	m := &engine.Micro{Tokens: tokens, Labels: labels, LossMask: mask, PositionIDs: positions}
	if len(tokens) == 0 {
		return nil, exitcode.Errorf(exitcode.BadData, "there are no rows of tokens; at least one is needed")
	}
	if n := len(tokens[0]); n == 0 || n > c.SeqLength {
		return nil, exitcode.Errorf(exitcode.BadData, "row 0 has %d tokens; it must have from 1 to %d", n, c.SeqLength)
	}
	vocab := c.Model.VocabSize
	for j, row := range tokens {
		for i := range row {
			if bad := max(row[i], labels[j][i]); bad >= int32(vocab) || min(row[i], labels[j][i]) < 0 {
				return nil, exitcode.Errorf(exitcode.BadData, "row %d, position %d: token %d or label %d is outside the vocabulary of %d", j, i, row[i], labels[j][i], vocab)
			}
		}
		m.Samples = append(m.Samples, int32(j))
	}
	if positions == nil {
		for range tokens {
			row := make([]int32, len(tokens[0]))
			for i := range row {
				row[i] = int32(i)
			}
			m.PositionIDs = append(m.PositionIDs, row)
		}
	}
	return m, nil
}
