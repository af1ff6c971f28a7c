package torchdist

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
)

const iteration = "iter_0000002"

// copied is the good checkpoint in a folder that a test may damage.
func copied(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "good"))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// readAll opens a checkpoint and reads every tensor.
func readAll(dir string) (int, error) {
	src, err := Open(dir, checkpoint.OpenOptions{Step: -1})
	if err != nil {
		return 0, err
	}
	defer src.Close()
	if err := checkpoint.Check(src); err != nil {
		return 0, err
	}
	for _, t := range src.Tensors() {
		if _, err := checkpoint.ReadAll(src, t); err != nil {
			return 0, err
		}
	}
	return len(src.Tensors()), nil
}

// A save of Megatron-LM's own is read completely, from each of its folders.
func TestGood(t *testing.T) {
	dir := copied(t)
	for _, path := range []string{dir, filepath.Join(dir, iteration)} {
		if n, err := readAll(path); err != nil || n != 16 {
			t.Errorf("%s: %d tensors, %v", path, n, err)
		}
	}
}

// What is missing or damaged is refused, with its name.
func TestDamage(t *testing.T) {
	file := func(name string) func(string) string {
		return func(dir string) string { return filepath.Join(dir, iteration, name) }
	}
	tracker := func(dir string) string { return filepath.Join(dir, checkpoint.TrackerName) }
	remove := func([]byte) []byte { return nil }
	for name, c := range map[string]struct {
		path   func(dir string) string
		change func([]byte) []byte
		says   string
	}{
		"no marker":         {file("metadata.json"), remove, "metadata.json"},
		"another backend":   {file("metadata.json"), func([]byte) []byte { return []byte(`{"sharded_backend":"zarr"}`) }, "zarr"},
		"marker no JSON":    {file("metadata.json"), func([]byte) []byte { return []byte("{") }, "metadata.json"},
		"no metadata":       {file(".metadata"), remove, ".metadata"},
		"cut metadata":      {file(".metadata"), func(b []byte) []byte { return b[:len(b)/2] }, ".metadata"},
		"no data":           {file("__1_0.distcp"), remove, "__1_0.distcp"},
		"cut data":          {file("__1_0.distcp"), func(b []byte) []byte { return b[:len(b)-1] }, "__1_0.distcp"},
		"path up":           {file(".metadata"), func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("__1_0.distcp"), []byte("../__0.distc")) }, "../__0.distc"},
		"tracker":           {tracker, func([]byte) []byte { return []byte("5") }, "iter_0000005"},
		"tracker no number": {tracker, func([]byte) []byte { return []byte("last") }, checkpoint.TrackerName},
		"no tracker":        {tracker, remove, checkpoint.TrackerName},
	} {
		dir := copied(t)
		path := c.path(dir)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if bad := c.change(good); bad == nil {
			err = os.Remove(path)
		} else {
			err = os.WriteFile(path, bad, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = readAll(dir)
		if code := exitcode.CodeOf(err); code != exitcode.BadData && code != exitcode.NoInput || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want it to say %s", name, err, c.says)
		}
	}
}

// A flipped bit in any tensor's bytes is found by its CRC.
func TestFlippedBits(t *testing.T) {
	dir := copied(t)
	path := filepath.Join(dir, iteration, "__0_0.distcp")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	x, err := readIndex(filepath.Join(dir, iteration))
	if err != nil {
		t.Fatal(err)
	}
	flipped := 0
	for _, s := range x.tensors {
		for _, c := range s.chunks {
			if c.file != "__0_0.distcp" {
				continue
			}
			b := &bytesOf{dir: filepath.Join(dir, iteration), files: map[string]*os.File{}, opened: map[location]*pickle.Tensor{}}
			want, err := b.tensor(s, c)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := want.Read()
			if err != nil {
				t.Fatal(err)
			}
			at := bytes.Index(good[c.offset:c.offset+c.length], raw)
			if at < 0 {
				t.Fatalf("%s: its bytes are not in its place", s.key)
			}
			bad := bytes.Clone(good)
			bad[int(c.offset)+at+len(raw)/2] ^= 4
			if err := os.WriteFile(path, bad, 0o666); err != nil {
				t.Fatal(err)
			}
			if _, err := readAll(dir); exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), s.key) {
				t.Errorf("%s: %v", s.key, err)
			}
			flipped++
			_ = b.close()
		}
	}
	if flipped < 5 {
		t.Errorf("only %d chunks were damaged", flipped)
	}
}

// Whatever .metadata says: no crash, and every chunk that is accepted lies in a
// file of the folder and tiles its tensor.
func FuzzMetadata(f *testing.F) {
	good, err := os.ReadFile(filepath.Join("testdata", "good", iteration, checkpoint.DistMetadata))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	d := newDescription()
	d.object("common_state/shard_0_1", location{"__0_0.distcp", 0, 10})
	d.chunk("a", "F32", []int64{2}, chunk{location: location{"__0_0.distcp", 10, 20}})
	d.tensors["a"].chunks[0].box.From, d.tensors["a"].chunks[0].box.Size = []int64{0}, []int64{2}
	small, err := pickle.Encode(d.metadata("x"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(small)
	dir := filepath.Join("testdata", "good", iteration)
	f.Fuzz(func(t *testing.T, data []byte) {
		root, _, err := pickle.Decode("fuzz", data)
		if err != nil {
			return
		}
		x := &index{byKey: map[string]*stored{}, objects: map[string]location{}}
		if x.fill(dir, root) != nil {
			return
		}
		for _, s := range x.tensors {
			for _, c := range s.chunks {
				st, err := os.Stat(filepath.Join(dir, c.file))
				if err != nil || c.offset < 0 || c.length < 0 || c.offset+c.length > st.Size() || !checkpoint.Inside(c.box, s.shape) {
					t.Fatalf("%s: chunk %+v was accepted", s.key, c)
				}
			}
		}
	})
}

// Our metadata.json is one that Megatron's readers take.
func TestMarkerIsTheirs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "good", iteration, checkpoint.DistMarker))
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil || m["sharded_backend"] != "torch_dist" {
		t.Errorf("%s, %v", text, err)
	}
	if err := readMarker(filepath.Join("testdata", "good", iteration)); err != nil {
		t.Error(err)
	}
}
