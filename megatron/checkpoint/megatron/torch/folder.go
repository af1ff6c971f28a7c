package torch

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/megatron"
	"monotron/megatron/spec"
)

const (
	rankFile      = checkpoint.RankFile
	optimizerFile = "distrib_optim.pt"
)

// rank is the open file of one model-parallel rank.
type rank struct {
	megatron.Rank
	path   string // of its file
	file   *pickle.File
	root   *pickle.Dict
	chunks []*pickle.Dict // its state dicts, one a virtual stage
	layers [][]int        // global numbers of each chunk's layers
	before bool           // its names are those before Megatron's core
}

// iterationFolder is the folder of one checkpoint: path itself, or that of the
// iteration in a save folder.
func iterationFolder(path string, step int64) (string, error) {
	path = filepath.Clean(path)
	if filepath.Base(path) == rankFile {
		return filepath.Dir(filepath.Dir(path)), nil
	}
	if strings.HasPrefix(filepath.Base(path), checkpoint.RankPrefix) {
		return filepath.Dir(path), nil
	}
	if hasRanks(path) {
		return path, nil
	}
	return checkpoint.SavedFolder(path, step)
}

func hasRanks(dir string) bool {
	found, err := filepath.Glob(filepath.Join(escape(dir), checkpoint.RankPrefix+"*"))
	return err == nil && len(found) > 0
}

// escape keeps a path's own characters out of a pattern.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// openRanks opens the files of the grid, whose layout the first of them says.
func (s *source) openRanks(dir string) error {
	first, err := openFirst(dir)
	if err != nil {
		return err
	}
	// The first file says model and layout.
	s.ranks = []*rank{first}
	args, _ := first.root.Get("args")
	if s.args, err = megatron.AsArgs(args); err != nil {
		return exitcode.Errorf(exitcode.BadData, "%s: %w; without the args of the checkpoint the shape of the model is not known", first.path, err)
	}
	if s.model, err = s.args.Model(); err != nil {
		return exitcode.Errorf(exitcode.BadData, "%s: %w", first.path, err)
	}
	s.layout = s.args.Layout()
	if err := megatron.Check(s.model, s.evenLayout()); err != nil {
		return exitcode.Errorf(exitcode.BadData, "%s: %w", first.path, err)
	}
	// Every other rank of that layout has a file, which says the same.
	for _, r := range megatron.Ranks(s.layout) {
		path := filepath.Join(dir, r.Folder(s.layout), rankFile)
		if path == first.path {
			first.Rank = r
			continue
		}
		other, err := openRank(path)
		if exitcode.CodeOf(err) == exitcode.NoInput {
			return exitcode.Errorf(exitcode.BadData, "%s is missing, although %s has the layout tp %d, pp %d, ep %d", path, first.path, s.layout.TP, s.layout.PP, s.layout.EP)
		}
		if err != nil {
			return err
		}
		other.Rank = r
		s.ranks = append(s.ranks, other)
		if err := s.agrees(first, other); err != nil {
			return err
		}
	}
	return s.noteStrangers(dir)
}

// noteStrangers reports folders that another layout must have left.
func (s *source) noteStrangers(dir string) error {
	found, err := filepath.Glob(filepath.Join(escape(dir), checkpoint.RankPrefix+"*"))
	if err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	for _, r := range s.ranks {
		found = slices.DeleteFunc(found, func(path string) bool { return path == filepath.Dir(r.path) })
	}
	if len(found) > 0 {
		s.notes = append(s.notes, fmt.Sprintf("%s has the sizes tp %d, pp %d, ep %d; these folders are not read: %s", s.ranks[0].path, s.layout.TP, s.layout.PP, s.layout.EP, strings.Join(found, ", ")))
	}
	return nil
}

// evenLayout is the layout without a claim about who has which layers, which
// the files themselves say.
func (s *source) evenLayout() checkpoint.Layout {
	l := s.layout
	l.StageLayers = make([]int, l.PP)
	if l.PP > 0 {
		l.StageLayers[0] = s.model.NumLayers
	}
	l.VP = 1
	return l
}

// openFirst opens the first rank's file, whichever name the layout gives it.
func openFirst(dir string) (*rank, error) {
	for _, name := range []string{"mp_rank_00", "mp_rank_00_000", "mp_rank_00_000_000"} {
		r, err := openRank(filepath.Join(dir, name, rankFile))
		if exitcode.CodeOf(err) == exitcode.NoInput {
			continue
		}
		return r, err
	}
	return nil, exitcode.Errorf(exitcode.NoInput, "%s has no mp_rank_00*/%s: the first rank's part is missing", dir, rankFile)
}

func openRank(path string) (*rank, error) {
	f, err := pickle.Open(path)
	if err != nil {
		return nil, err
	}
	r := &rank{path: path, file: f}
	var ok bool
	if r.root, ok = f.Root.(*pickle.Dict); !ok {
		_ = f.Close()
		return nil, exitcode.Errorf(exitcode.BadData, "%s contains an object of type %s; it must contain Megatron's dict", path, pickle.TypeName(f.Root))
	}
	err = r.findChunks()
	if err == nil {
		err = r.modernize()
	}
	if err == nil {
		err = r.checkVersion()
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return r, nil
}

// checkVersion refuses versions whose rows of queries, keys and values lie in
// another order, and those to come.
func (r *rank) checkVersion() error {
	v, ok := r.root.Get("checkpoint_version")
	if !ok {
		return nil
	}
	if n, ok := pickle.Float(v); !ok || n < 2 || n > checkpointVersion {
		return exitcode.Errorf(exitcode.BadData, "%s: checkpoint_version is %v; versions 2 to %g are supported, because earlier versions order the rows of queries, keys and values differently", r.path, v, checkpointVersion)
	}
	return nil
}

// findChunks takes `model`, or model0, model1, .. where stages are virtual.
func (r *rank) findChunks() error {
	take := func(name string) (bool, error) {
		v, ok := r.root.Get(name)
		if !ok {
			return false, nil
		}
		d, ok := v.(*pickle.Dict)
		if !ok {
			return false, exitcode.Errorf(exitcode.BadData, "%s: %q has type %s; it must be a state dict", r.path, name, pickle.TypeName(v))
		}
		r.chunks = append(r.chunks, d)
		return true, nil
	}
	// One model, or as many as there are chunks.
	if found, err := take("model"); found || err != nil {
		return err
	}
	for i := 0; ; i++ {
		found, err := take(fmt.Sprintf("model%d", i))
		if err != nil {
			return err
		}
		if !found {
			break
		}
	}
	if len(r.chunks) == 0 {
		return exitcode.Errorf(exitcode.BadData, "%s has neither \"model\" nor \"model0\"; it was written by an old version of Megatron-LM, or by another program", r.path)
	}
	return nil
}

// agrees refuses ranks of different saves.
func (s *source) agrees(first, other *rank) error {
	v, _ := other.root.Get("args")
	a, err := megatron.AsArgs(v)
	if err != nil {
		return exitcode.Errorf(exitcode.BadData, "%s: %w", other.path, err)
	}
	m, err := a.Model()
	if err != nil {
		return exitcode.Errorf(exitcode.BadData, "%s: %w", other.path, err)
	}
	mine, theirs := first.root, other.root
	here, _ := mine.Get("iteration")
	there, _ := theirs.Get("iteration")
	switch {
	case here != there:
		return exitcode.Errorf(exitcode.BadData, "%s is from iteration %v, but %s is from iteration %v; restore the files of one save", other.path, there, first.path, here)
	case !same(m, s.model) || fmt.Sprint(a.Layout()) != fmt.Sprint(s.args.Layout()):
		return exitcode.Errorf(exitcode.BadData, "%s was saved with a different model or layout from %s; restore the files of one save", other.path, first.path)
	case len(other.chunks) != len(first.chunks):
		return exitcode.Errorf(exitcode.BadData, "%s has %d chunks of its stage, but %s has %d; restore the files of one save", other.path, len(other.chunks), first.path, len(first.chunks))
	}
	return nil
}

func same(a, b *spec.Model) bool {
	x, y := *a, *b
	x.Experts, y.Experts = nil, nil
	return reflect.DeepEqual(x, y)
}

// numberLayers gives each chunk's layers their global numbers: chunk by chunk,
// through all stages. The tensors themselves say how many a chunk has.
func (s *source) numberLayers() error {
	counts := map[int]int{} // (chunk, stage) -> layers
	at := func(chunk, stage int) int { return chunk*s.layout.PP + stage }
	// How many layers each chunk of a stage has: the highest local number.
	for _, r := range s.ranks {
		for c, d := range r.chunks {
			n := 0
			for _, p := range d.Pairs {
				name, _ := p.Key.(string)
				if k, ok := megatron.ParseKey(name); ok && k.Layer >= 0 {
					n = max(n, k.Layer+1)
				}
			}
			counts[at(c, r.PP)] = max(counts[at(c, r.PP)], n)
		}
	}
	// The first global number of each.
	starts, total := map[int]int{}, 0
	chunks := len(s.ranks[0].chunks)
	for c := range chunks {
		for p := range s.layout.PP {
			starts[at(c, p)] = total
			total += min(counts[at(c, p)], s.model.NumLayers+1)
		}
	}
	if total != s.model.NumLayers {
		return exitcode.Errorf(exitcode.BadData, "%s: the stages have %d layers together, but args.num_layers is %d", s.dir, total, s.model.NumLayers)
	}
	for _, r := range s.ranks {
		for c := range r.chunks {
			// The global numbers of a rank's layers, by chunk.
			layers := make([]int, counts[at(c, r.PP)])
			for i := range layers {
				layers[i] = starts[at(c, r.PP)] + i
			}
			r.layers = append(r.layers, layers)
		}
	}
	s.layout.VP = chunks
	return nil
}
