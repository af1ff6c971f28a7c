package native

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

// twoSaved makes a folder with iterations 1 and 2.
func twoSaved(t testing.TB) string {
	dir := fastDir(t)
	mustSave(t, dir, 1, SaveOptions{})
	mustSave(t, dir, 2, SaveOptions{})
	return dir
}

// fallsBack asserts that the latest is refused for the file's sake and
// iteration 1 is loaded instead, and that asking for 2 is an error.
func fallsBack(t *testing.T, dir, file, what string) {
	t.Helper()
	step, report, err := load(t, dir, -1)
	if err != nil || step != 1 {
		t.Fatalf("%s: loaded %d, %v", what, step, err)
	}
	if notes := strings.Join(report.Notes, "\n"); !contains(notes, file) || !contains(notes, "checkpoint: iteration 1 is used instead") {
		t.Fatalf("%s: the notes do not name %s: %s", what, file, notes)
	}
	if _, _, err := load(t, dir, 2); exitcode.CodeOf(err) != exitcode.IO || !contains(err.Error(), file) {
		t.Fatalf("%s: asked for iteration 2: %v", what, err)
	}
}

// Every byte of every file of a checkpoint flipped, one at a time: it is refused
// with the file's name and the one before is loaded. Nothing is ever loaded wrong.
func TestEveryFlippedByteIsFound(t *testing.T) {
	dir := twoSaved(t)
	for _, name := range names(t, iterPath(dir, 2)) {
		path := filepath.Join(iterPath(dir, 2), name)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for at := range good {
			bad := bytes.Clone(good)
			bad[at] ^= 1 << (at % 8)
			overwrite(t, path, bad)
			fallsBack(t, dir, path, "flipped byte")
		}
		overwrite(t, path, good)
	}
	if err := Verify(dir, 2); err != nil {
		t.Fatal(err)
	}
}

func overwrite(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
}

// Every file cut at every length, made longer, emptied, removed, or replaced by
// a pipe.
func TestTruncationIsFound(t *testing.T) {
	dir := twoSaved(t)
	for _, name := range names(t, iterPath(dir, 2)) {
		path := filepath.Join(iterPath(dir, 2), name)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for n := range good {
			overwrite(t, path, good[:n])
			fallsBack(t, dir, path, "cut")
		}
		overwrite(t, path, append(bytes.Clone(good), 0))
		fallsBack(t, dir, path, "longer")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		fallsBack(t, dir, path, "removed")
		if err := unix.Mkfifo(path, 0o666); err != nil {
			t.Fatal(err)
		}
		fallsBack(t, dir, path, "pipe")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		overwrite(t, path, good)
	}
}

// Verify names every broken tensor, its file and its bytes.
func TestVerifyNamesThePosition(t *testing.T) {
	dir := t.TempDir()
	mustSave(t, dir, 1, SaveOptions{})
	path := filepath.Join(iterPath(dir, 1), "rank_00000.safetensors")
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	first, _ := f.Info("decoder.final_layernorm.bias")
	second, _ := f.Info("optimizer.step")
	_ = f.Close()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	raw[first.Offset+3]++
	raw[second.Offset+7]++
	overwrite(t, path, raw)
	err = Verify(dir, -1)
	for _, says := range []string{path, `"decoder.final_layernorm.bias"`, `"optimizer.step"`, "bytes "} {
		if err == nil || !contains(err.Error(), says) {
			t.Errorf("%v does not say %s", err, says)
		}
	}
	if exitcode.CodeOf(err) != exitcode.IO {
		t.Errorf("exit code %d", exitcode.CodeOf(err))
	}
}

// A tracker that is of no use is said and got over; one that names an older
// iteration is obeyed (a run rewound by hand).
func TestTracker(t *testing.T) {
	for text, want := range map[string]struct {
		step int64
		note string
	}{"": {2, "an iteration"}, "x": {2, "an iteration"}, "-3": {2, "an iteration"}, strings.Repeat("9", 100): {2, "one iteration number"},
		"7": {2, "which does not exist"}, "0": {1, "which does not exist"}, "1": {1, ""}, " 2\n": {2, ""}, "release": {2, "an iteration"}} {
		dir := twoSaved(t)
		overwrite(t, filepath.Join(dir, trackerName), []byte(text))
		step, report, err := load(t, dir, -1)
		notes := strings.Join(report.Notes, "\n")
		if err != nil || step != want.step || !contains(notes, want.note) || want.note == "" && notes != "" {
			t.Errorf("tracker %q: loaded %d, %v, notes %s", text, step, err, notes)
		}
		if n, err := Latest(dir); n != want.step || err != nil {
			t.Errorf("tracker %q: latest is %d, %v", text, n, err)
		}
	}
}

func TestNothingThere(t *testing.T) {
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
		_, _, err := load(t, dir, -1)
		if !errors.Is(err, ErrNone) || exitcode.CodeOf(err) != exitcode.NoInput {
			t.Errorf("got %v", err)
		}
		if _, _, err := load(t, dir, 3); exitcode.CodeOf(err) != exitcode.NoInput {
			t.Errorf("got %v", err)
		}
	}
}

// Where every checkpoint is damaged the error lists each with its reason.
func TestAllDamaged(t *testing.T) {
	dir := twoSaved(t)
	for _, step := range []int64{1, 2} {
		if err := os.Remove(filepath.Join(iterPath(dir, step), manifestName)); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := load(t, dir, -1)
	if exitcode.CodeOf(err) != exitcode.IO || !contains(err.Error(), iterName(1)) || !contains(err.Error(), iterName(2)) {
		t.Errorf("got %v", err)
	}
}

// A checkpoint of another model is not damaged: no falling back, one error that
// names the tensors. Missing ones can be waived, and extra ones are reported.
func TestOtherModel(t *testing.T) {
	dir := twoSaved(t)
	d := newDevice(t)
	list := tensors(t, d, single, 0, false)
	list[0].Global, list[0].Pieces = []int64{6, 13}, rows([]int64{6, 13}, single)
	_, _, err := Load(dir, -1, list, d, LoadOptions{})
	if exitcode.CodeOf(err) != exitcode.IO || !contains(err.Error(), "[13 6] in the checkpoint, but [6 13] in this run") {
		t.Errorf("got %v", err)
	}
	list = tensors(t, d, single, 0, false)[:2]
	list[1].Name = "new"
	if _, _, err := Load(dir, -1, list, d, LoadOptions{}); exitcode.CodeOf(err) != exitcode.IO || !contains(err.Error(), `"new" is not in the checkpoint`) {
		t.Errorf("got %v", err)
	}
	_, report, err := Load(dir, -1, list, d, LoadOptions{AllowMissing: func(_ *State, n string) bool { return n == "new" }})
	if err != nil || !slices.Equal(report.Missing, []string{"new"}) || len(report.Extra) != 4 || len(report.Restored) != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	if text := strings.Join(report.Lines(), "\n"); !contains(text, "these keep their initial values (1): new") || !contains(text, "not used by this run (4)") {
		t.Errorf("the report says %s", text)
	}
}

// tiny is a correct manifest to break.
func tiny() *Manifest {
	s := strings.Repeat("0", sumDigits)
	return &Manifest{Format: manifestFormat, Version: manifestVersion, State: stateAt(1),
		Files: []File{{"rank_00000.safetensors", 104, 64, s}, {"rank_00001.safetensors", 88, 64, s}},
		Tensors: []Tensor{
			{"a", "F32", []int64{4, 3}, []Piece{{[]int64{0, 0}, []int64{4, 2}, 0, 64, s, ""}, {[]int64{0, 2}, []int64{4, 1}, 1, 64, s, ""}}},
			{"b", "BF16", []int64{8}, []Piece{{[]int64{4}, []int64{4}, 0, 96, s, ""}, {[]int64{0}, []int64{4}, 1, 80, s, ""}}},
		}}
}

// encoded is the text of manifest.json.
func encoded(t testing.TB, m *Manifest) []byte {
	t.Helper()
	var text bytes.Buffer
	if err := m.writeText(&text); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

// decoded reads and checks such a text.
func decoded(text []byte) (*Manifest, error) {
	m, err := readText(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		return nil, err
	}
	return m, m.check()
}

// Each claim of a manifest made false once, with a right checksum: refused.
func TestManifestChecks(t *testing.T) {
	if err := tiny().check(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(m *Manifest)
		says   string
	}{
		"format":            {func(m *Manifest) { m.Format = "x" }, "format"},
		"version":           {func(m *Manifest) { m.Version = 2 }, "version"},
		"iteration":         {func(m *Manifest) { m.State.Iteration = -1 }, "negative"},
		"path up":           {func(m *Manifest) { m.Files[0].Name = "../x" }, "is not a valid name of a file"},
		"absolute path":     {func(m *Manifest) { m.Files[0].Name = "/etc/passwd" }, "is not a valid name of a file"},
		"hidden":            {func(m *Manifest) { m.Files[0].Name = ".." }, "is not a valid name of a file"},
		"file twice":        {func(m *Manifest) { m.Files[1].Name = m.Files[0].Name }, "twice"},
		"header size":       {func(m *Manifest) { m.Files[0].HeaderBytes = 1000 }, "header"},
		"header sum":        {func(m *Manifest) { m.Files[0].HeaderXXH3 = "zz" }, "checksum"},
		"tensor twice":      {func(m *Manifest) { m.Tensors[1].Name = "a" }, "twice"},
		"dtype":             {func(m *Manifest) { m.Tensors[0].DType = "F31" }, "dtype"},
		"rank":              {func(m *Manifest) { m.Tensors[0].Shape = nil }, "shape"},
		"iteration 2^62":    {func(m *Manifest) { m.State.Iteration = 1 << 62 }, "a count above"},
		"samples 2^62":      {func(m *Manifest) { m.State.ConsumedTrain = 1 << 62 }, "a count above"},
		"config null":       {func(m *Manifest) { m.State.Config = []byte("null") }, "must be a JSON object"},
		"config a list":     {func(m *Manifest) { m.State.Config = []byte("[1]") }, "must be a JSON object"},
		"negative shape":    {func(m *Manifest) { m.Tensors[0].Shape = []int64{-4, -3} }, "shape"},
		"huge shape":        {func(m *Manifest) { m.Tensors[0].Shape = []int64{1 << 40, 1 << 40} }, "shape"},
		"box outside":       {func(m *Manifest) { m.Tensors[0].Pieces[0].From[0] = 1 }, "not inside the tensor"},
		"box overflow":      {func(m *Manifest) { m.Tensors[0].Pieces[0].From[0] = 1<<63 - 1 }, "not inside the tensor"},
		"box rank":          {func(m *Manifest) { m.Tensors[0].Pieces[0].From = []int64{0} }, "not inside the tensor"},
		"empty box":         {func(m *Manifest) { m.Tensors[0].Pieces[0].Size[1] = 0 }, "not inside the tensor"},
		"file index":        {func(m *Manifest) { m.Tensors[0].Pieces[0].File = 2 }, "file 2"},
		"negative index":    {func(m *Manifest) { m.Tensors[0].Pieces[0].File = -1 }, "file -1"},
		"piece sum":         {func(m *Manifest) { m.Tensors[0].Pieces[0].XXH3 = "" }, "checksum"},
		"offset in header":  {func(m *Manifest) { m.Tensors[0].Pieces[0].Offset = 0 }, "outside the data"},
		"offset behind":     {func(m *Manifest) { m.Tensors[0].Pieces[0].Offset = 1<<63 - 1 }, "outside the data"},
		"negative offset":   {func(m *Manifest) { m.Tensors[0].Pieces[0].Offset = -8 }, "outside the data"},
		"missing piece":     {func(m *Manifest) { m.Tensors[1].Pieces = m.Tensors[1].Pieces[:1] }, "missing"},
		"no pieces":         {func(m *Manifest) { m.Tensors[1].Pieces = nil }, "missing"},
		"overlapping boxes": {func(m *Manifest) { m.Tensors[1].Pieces[0].From[0] = 2 }, "overlap"},
		"too many":          {func(m *Manifest) { m.Tensors[1].Pieces = append(m.Tensors[1].Pieces, m.Tensors[1].Pieces[0]) }, "more elements than the tensor"},
		"same bytes twice":  {func(m *Manifest) { m.Tensors[1].Pieces[0].Offset = 88 }, "belong to no piece or to two pieces"},
		"unused tail":       {func(m *Manifest) { m.Files[0].Bytes++ }, "belong to no piece"},
	} {
		m := tiny()
		c.change(m)
		if _, err := decoded(encoded(t, m)); err == nil || !contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want it to say %q", name, err, c.says)
		}
	}
}

// Whatever the manifest, with a right checksum: no panic, and what is accepted
// has every piece inside its file and its tensor.
func FuzzManifest(f *testing.F) {
	good, err := json.Marshal(tiny())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(bytes.Replace(good, []byte(`"offset":64`), []byte(`"offset":9223372036854775807`), 1))
	f.Add(bytes.Replace(good, []byte(`[4,3]`), []byte(`[4294967296,4294967296]`), 1))
	f.Fuzz(func(t *testing.T, body []byte) {
		rest := append(append([]byte(bodyOpen), body...), bodyClose...)
		m, err := decoded(append([]byte(headOpen+sum(rest)+headClose), rest...))
		if err != nil {
			return
		}
		for _, tensor := range m.Tensors {
			for _, p := range tensor.Pieces {
				file := m.Files[p.File]
				if !checkpoint.Inside(p.box(), tensor.Shape) || p.Offset < file.HeaderBytes || p.Offset+tensor.Bytes(p) > file.Bytes {
					t.Fatalf("accepted %+v of %+v", p, tensor)
				}
			}
		}
		encoded(t, m)
	})
}
