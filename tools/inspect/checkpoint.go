package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/checkpoint/native"
	"monotron/tools/internal/command"
)

// checkpointCommand is `inspect checkpoint PATH`: a checkpoint of any format or a
// safetensors file.
func checkpointCommand() *cli.Command {
	return &cli.Command{
		Name:      "checkpoint",
		Usage:     "list the contents of a checkpoint: state, tensors, norms, NaNs and checksums",
		ArgsUsage: "PATH",
		Description: "PATH is a save folder, the s3:// URL of a run's --save, one iteration's folder, a Hugging Face folder, or a file: monotron's own format,\n" +
			"Megatron-LM's torch and torch_dist, Hugging Face, nanoGPT, llm.c, or any safetensors file. Pieces\n" +
			"are the slices in which a tensor is stored. Exit code 74: --verify found a wrong checksum.",
		Flags: []cli.Flag{
			command.Between(-1, command.Counts, &cli.Int64Flag{Name: "step", Value: -1, DefaultText: "the latest", Usage: "read this iteration of a save folder"}),
			&cli.BoolFlag{Name: "verify", Usage: "verify all checksums and print the hash of the weights; exit with code 74 if a checksum is wrong"},
			&cli.BoolFlag{Name: "headers-only", Usage: "print names, shapes and state only, without reading values"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object"},
		},
		Action: func(c *cli.Context) error {
			// Flags that contradict each other.
			if c.NArg() != 1 {
				return exitcode.Errorf(exitcode.Usage, "inspect checkpoint needs one path, but has %d: %q", c.NArg(), c.Args().Slice())
			}
			if c.Bool("verify") && c.Bool("headers-only") {
				return exitcode.Errorf(exitcode.Usage, "--verify cannot be combined with --headers-only: --verify reads all values and --headers-only reads none; give one")
			}
			// An s3:// URL is copied to a local folder first.
			path, err := command.Local(c, c.Args().First(), c.Int64("step"))
			if err != nil {
				return err
			}
			l, err := inspectCheckpoint(path, c.Int64("step"), !c.Bool("headers-only"), c.Bool("verify"))
			if err != nil {
				return err
			}
			if err := l.print(c.App.Writer, c.Bool("json")); err != nil {
				return exitcode.With(exitcode.IO, err)
			}
			// Everything is printed before damage ends the command.
			if c.Bool("verify") && len(l.Damage) > 0 {
				return exitcode.Errorf(exitcode.IO, "%s is damaged: %s", l.Path, strings.Join(l.Damage, "\n"))
			}
			return nil
		},
	}
}

// listing is the command's result; its JSON is for scripts.
type listing struct {
	Path        string             `json:"path"`
	Format      string             `json:"format"` // as convert --to spells it, or safetensors: a file alone
	Layout      *checkpoint.Layout `json:"layout,omitempty"`
	Iterations  []int64            `json:"iterations,omitempty"`
	State       *native.State      `json:"state,omitempty"`
	Model       any                `json:"model,omitempty"` // of config.json
	Metadata    map[string]string  `json:"metadata,omitempty"`
	Files       int                `json:"files"`
	Elements    int64              `json:"elements"`
	Bytes       int64              `json:"bytes"`
	WeightsHash string             `json:"weights_hash,omitempty"`
	Tensors     []tensorLine       `json:"tensors"`
	Notes       []string           `json:"notes,omitempty"`
	Damage      []string           `json:"damage,omitempty"`
}

// tensorLine is one tensor. Norm, Min and Max are over finite values and absent
// where nothing was read or the dtype has no values.
type tensorLine struct {
	Name     string   `json:"name"`
	DType    string   `json:"dtype"`
	Shape    []int64  `json:"shape"`
	Pieces   int      `json:"pieces"`
	Norm     *float64 `json:"norm,omitempty"`
	Min      *float64 `json:"min,omitempty"`
	Max      *float64 `json:"max,omitempty"`
	NaN      int64    `json:"nan"`
	Inf      int64    `json:"inf"`
	Checksum string   `json:"checksum"` // ok, wrong, unread, or none where the format has none
}

func inspectCheckpoint(path string, step int64, values, verify bool) (*listing, error) {
	st, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, exitcode.Errorf(exitcode.NoInput, "%s does not exist", path)
	}
	if err != nil {
		return nil, exitcode.With(exitcode.IO, err)
	}
	// A single file.
	if !st.IsDir() {
		if strings.HasSuffix(path, ".safetensors") {
			return inspectFile(path, values)
		}
		return inspectForeign(path, step, values)
	}
	// A folder by its format; one without a known format may still hold tensors.
	switch format, err := checkpoint.DetectAt(path, step); {
	case err != nil && !exists(path, safetensors.SingleName) && !exists(path, safetensors.IndexName):
		return nil, err
	case err != nil, format == checkpoint.HF && !exists(path, "pytorch_model.bin") && !exists(path, "pytorch_model.bin.index.json"):
		return inspectHF(path, values)
	case format != checkpoint.Native:
		return inspectForeign(path, step, values)
	}
	// One iteration of ours, or a folder of several.
	if exists(path, "manifest.json") {
		f, err := native.OpenFolder(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return inspectNative(f, values, verify)
	}
	list, err := native.List(path)
	if err != nil {
		return nil, err
	}
	return inspectSaves(path, list, step, values, verify)
}

func exists(parts ...string) bool {
	_, err := os.Stat(filepath.Join(parts...))
	return err == nil
}

func inspectSaves(dir string, list []native.Entry, step int64, values, verify bool) (*listing, error) {
	f, err := native.Open(dir, step)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l, err := inspectNative(f, values, verify)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		l.Iterations = append(l.Iterations, e.Iteration)
	}
	return l, nil
}

func inspectNative(f *native.Folder, values, verify bool) (*listing, error) {
	m := f.Manifest
	l := &listing{Path: f.Path, Format: string(checkpoint.Native), State: &m.State, Files: len(m.Files)}
	buf := make([]byte, 1<<20)
	// Each tensor piece by piece, through one buffer: checksums and statistics in one pass.
	for i := range m.Tensors {
		t := &m.Tensors[i]
		s := newStats(t.DType)
		line := tensorLine{Name: t.Name, DType: t.DType, Shape: t.Shape, Pieces: len(t.Pieces), Checksum: "unread"}
		for _, p := range t.Pieces {
			l.Bytes += t.Bytes(p)
			if !values {
				continue
			}
			err := f.Stream(t, p, buf, func(_ int64, chunk []byte) error { return s.add(chunk) })
			var damage *native.Damage
			switch {
			case errors.As(err, &damage):
				if !slices.Contains(l.Damage, err.Error()) { // a file's header is wrong for each tensor in it
					l.Damage = append(l.Damage, err.Error())
				}
				line.Checksum = "wrong"
			case err != nil:
				return nil, err
			case line.Checksum == "unread":
				line.Checksum = "ok"
			}
		}
		if line.Checksum == "ok" {
			s.fill(&line)
		}
		l.add(line)
	}
	// The hash of the weights, if all of them can be read.
	if verify && len(l.Damage) == 0 {
		return l, l.verify(f)
	}
	return l, nil
}

// verify checks what reading the tensors did not touch, and sums the weights up.
func (l *listing) verify(f *native.Folder) error {
	if err := f.Verify(); err != nil {
		l.Damage = append(l.Damage, err.Error())
		return nil
	}
	hash, err := f.Hash(func(name string) bool { return !strings.HasPrefix(name, "optimizer.") })
	l.WeightsHash = hash.Hash()
	return err
}

func (l *listing) add(line tensorLine) {
	n := int64(1)
	for _, d := range line.Shape {
		n *= d
	}
	l.Elements += n
	l.Tensors = append(l.Tensors, line)
}

func inspectFile(path string, values bool) (*listing, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l := &listing{Path: path, Format: "safetensors", Files: 1, Metadata: f.Metadata}
	return l, l.addFile(f, values)
}

func inspectHF(dir string, values bool) (*listing, error) {
	weights, err := safetensors.OpenFolder(dir)
	if err != nil {
		return nil, err
	}
	defer weights.Close()
	l := &listing{Path: dir, Format: string(checkpoint.HF), Files: len(weights.Files)}
	if config, err := hf.ReadConfig(filepath.Join(dir, hf.ConfigName)); err != nil {
		l.Notes = append(l.Notes, err.Error())
	} else {
		l.Model = config.Model
	}
	if f, err := hf.Open(dir); err != nil {
		l.Notes = append(l.Notes, "monotron cannot load it: "+err.Error())
	} else {
		_ = f.Close() // opened for reading
	}
	for _, f := range weights.Files {
		if err := l.addFile(f, values); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *listing) addFile(f *safetensors.File, values bool) error {
	for _, name := range f.Names() {
		info, _ := f.Info(name)
		line := tensorLine{Name: name, DType: info.DType, Shape: info.Shape, Pieces: 1, Checksum: "none"}
		if values {
			s := newStats(info.DType)
			if err := f.Stream(name, s.add); err != nil {
				return err
			}
			s.fill(&line)
		}
		l.Bytes += info.Bytes
		l.add(line)
	}
	return nil
}

// stats sums a tensor's values up, a chunk of complete elements at a time.
type stats struct {
	dtype      string
	width      int // bytes; 0: a dtype without values
	buf        []float64
	squares    float64
	low, high  float64
	finite     int64
	nans, infs int64
}

var widths = map[string]int{"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "BF16": 2, "F16": 2, "I16": 2, "U16": 2,
	"I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1}

func newStats(dtype string) *stats {
	return &stats{dtype: dtype, width: widths[dtype], low: math.Inf(1), high: math.Inf(-1)}
}

func (s *stats) add(chunk []byte) error {
	if s.width == 0 {
		return nil
	}
	s.buf = slices.Grow(s.buf[:0], len(chunk)/s.width)[:len(chunk)/s.width]
	safetensors.Decode(s.buf, s.dtype, chunk)
	for _, v := range s.buf {
		switch {
		case v != v:
			s.nans++
		case math.IsInf(v, 0):
			s.infs++
		default:
			s.finite++
			s.squares += v * v
			s.low, s.high = min(s.low, v), max(s.high, v)
		}
	}
	return nil
}

func (s *stats) fill(line *tensorLine) {
	line.NaN, line.Inf = s.nans, s.infs
	if norm := math.Sqrt(s.squares); s.finite > 0 && !math.IsInf(norm, 0) {
		line.Norm = &norm
	}
	if s.finite > 0 {
		line.Min, line.Max = &s.low, &s.high
	}
}

func (l *listing) print(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", " ")
		return e.Encode(l)
	}
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range l.head() {
		fmt.Fprintf(tab, "%s\t%s\n", row[0], row[1])
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(tab, "\ntensor\tdtype\tshape\tpieces\tnorm\tmin\tmax\tnan\tinf\tchecksum")
	for _, t := range l.Tensors {
		fmt.Fprintf(tab, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%d\t%d\t%s\n", t.Name, t.DType, shapeText(t.Shape), t.Pieces,
			number(t.Norm), number(t.Min), number(t.Max), t.NaN, t.Inf, t.Checksum)
	}
	return tab.Flush()
}

// head is what precedes the list of tensors.
func (l *listing) head() [][2]string {
	rows := [][2]string{{"path", l.Path}, {"format", l.Format}}
	add := func(key, format string, args ...any) {
		rows = append(rows, [2]string{key, fmt.Sprintf(format, args...)})
	}
	if s := l.State; s != nil {
		add("iteration", "%d", s.Iteration)
		add("samples", "%d train, %d valid, %d skipped", s.ConsumedTrain, s.ConsumedValid, s.SkippedTrain)
		if s.Version != "" { // else the format does not say it
			add("seed", "%d", s.Seed)
			add("written by", "%s", l.writer())
		}
		rows = append(rows, fields("config", s.Config)...)
		rows = append(rows, fields("scheduler", s.Scheduler)...)
		rows = append(rows, fields("scaler", s.Scaler)...)
	}
	if l.Layout != nil {
		add("layout", "tp %d, pp %d, virtual %d, ep %d, dp %d", l.Layout.TP, l.Layout.PP, l.Layout.VP, l.Layout.EP, l.Layout.DP)
	}
	if len(l.Iterations) > 1 {
		add("all iterations", "%v", l.Iterations)
	}
	if l.Model != nil {
		text, _ := json.Marshal(l.Model) // a struct of plain fields
		rows = append(rows, fields("config", text)...)
	}
	add("tensors", "%d of %d elements, %d bytes", len(l.Tensors), l.Elements, l.Bytes)
	if l.Files > 0 {
		add("files", "%d", l.Files)
	}
	if l.WeightsHash != "" {
		add("weights hash", "%s", l.WeightsHash)
	}
	for _, note := range l.Notes {
		add("note", "%s", note)
	}
	for _, damage := range l.Damage {
		add("DAMAGED", "%s", damage)
	}
	return rows
}

// writer is the program that made the checkpoint: a native one names the version alone.
func (l *listing) writer() string {
	if l.Format == string(checkpoint.Native) {
		return "monotron " + l.State.Version
	}
	return l.State.Version
}

// fields shows the first level of a JSON object, long values cut.
func fields(title string, raw json.RawMessage) [][2]string {
	const longest = 100
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		return nil // absent, or no object
	}
	var rows [][2]string
	for key, value := range object {
		text := []rune(string(value))
		if len(text) > longest {
			text = append(text[:longest], '…')
		}
		rows = append(rows, [2]string{title + "." + key, string(text)})
	}
	slices.SortFunc(rows, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return rows
}

func shapeText(shape []int64) string {
	return strings.Join(strings.Fields(fmt.Sprint(shape)), ",")
}

func number(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.6g", *v)
}
