package convert

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
)

// saved is a source that says which iteration it is.
type saved struct {
	checkpoint.Source
	iteration int64
}

func (s saved) State() checkpoint.State { return checkpoint.State{Iteration: s.iteration} }

// saveFolder has checkpoints of tiny, the last of which its tracker names.
func saveFolder(t *testing.T, dir string, f checkpoint.Format, iterations ...int64) string {
	t.Helper()
	src, err := all.Open(tiny, checkpoint.OpenOptions{Step: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	for _, n := range iterations {
		if _, err := all.Write(t.Context(), f, dir, saved{src, n}, checkpoint.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// files is everything in a folder, by path.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	list := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			list[path] = "no regular file"
			return err
		}
		text, err := os.ReadFile(path)
		list[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Claim (docs/checkpoints.md): whatever exists at --output stays as it is, byte for byte: the iteration of a
// save folder, also if it is the input, a single checkpoint, a model's folder, a file.
func TestNothingIsWrittenOver(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"run", "other", "killed"} {
		saveFolder(t, at(name), checkpoint.Native, 4)
	}
	convert(t, "--input", tiny, "--to", "hf", "--output", at("model"))
	convert(t, "--input", tiny, "--to", "nanogpt", "--output", at("nano"))
	for _, err := range []error{
		os.Rename(at("killed/iter_0000004"), at("killed/.old-iter_0000004")),
		os.WriteFile(at("file"), []byte("mine"), 0o666), os.Symlink(at("run"), at("link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	before := files(t, dir)
	for _, to := range []string{"native", "torch", "torch_dist", "hf", "nanogpt", "llmc", "gguf"} {
		for output, input := range map[string]string{"run": "run", "run/iter_0000004": "run", "killed": "other", "model": "other", "nano": "other", "file": "other", "link": "other"} {
			_, _, err := call("--input", at(input), "--output", at(output), "--to", to)
			if exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), "already exists") || !strings.Contains(err.Error(), at(output)) {
				t.Errorf("%s to %s: %v (code %d)", to, output, err, exitcode.CodeOf(err))
			}
		}
		if after := files(t, dir); !maps.Equal(before, after) {
			t.Fatalf("%s has changed files", to)
		}
	}
}

// Claim (docs/checkpoints.md): an iteration that is added to a save folder is named by its tracker only if the
// folder has no later one; a release counts as earlier than all.
func TestTrackerIsNotMovedBack(t *testing.T) {
	from := saveFolder(t, filepath.Join(t.TempDir(), "from"), checkpoint.Native, 4)
	for _, to := range []string{"native", "torch", "torch_dist"} {
		for _, c := range []struct {
			has     []int64
			tracker string // instead of the folder's own; "-": it has none
			release bool
			want    string
		}{
			{[]int64{9}, "", false, "9"},
			{[]int64{3}, "", false, "4"},
			{[]int64{3, 9}, "3", false, "4"}, // the folder was rewound
			{[]int64{9}, "-", false, "-"},    // the newest folder counts
			{[]int64{3}, "-", false, "4"},
			{[]int64{3}, "9", false, "4"}, // it names what does not exist
			{[]int64{3}, "", true, "3"},
		} {
			if c.release && to == "native" {
				continue
			}
			dir := saveFolder(t, filepath.Join(t.TempDir(), "run"), checkpoint.Native, c.has...)
			tracker := filepath.Join(dir, checkpoint.TrackerName)
			var err error
			switch c.tracker {
			case "":
			case "-":
				err = os.Remove(tracker)
			default:
				err = os.WriteFile(tracker, []byte(c.tracker), 0o666)
			}
			if err != nil {
				t.Fatal(err)
			}
			args := []string{"--input", from, "--output", dir, "--to", to}
			if c.release {
				args = append(args, "--release")
			}
			_, notes, err := call(args...)
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(tracker)
			if err != nil {
				text = []byte("-")
			}
			if string(text) != c.want {
				t.Errorf("%s, folder with %v: the tracker names %s, want %s", to, c.has, text, c.want)
			}
			if kept := c.want != "4"; strings.Contains(notes, "still loads iteration") != kept {
				t.Errorf("%s, folder with %v: notes %q", to, c.has, notes)
			}
			if !sameWeights(t, tiny, filepath.Join(dir, map[bool]string{false: "iter_0000004", true: "release"}[c.release])) {
				t.Errorf("%s, folder with %v: other weights", to, c.has)
			}
		}
	}
}

// Claim (docs/checkpoints.md): while a run saves to a folder, a conversion to it is refused.
func TestFolderOfARunIsLeftAlone(t *testing.T) {
	dir := saveFolder(t, filepath.Join(t.TempDir(), "run"), checkpoint.Native, 9)
	from := saveFolder(t, filepath.Join(t.TempDir(), "from"), checkpoint.Native, 4)
	lock, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if locked, err := atomicfile.Lock(lock); locked || err != nil {
		t.Skipf("this file system has no locks: %v", err)
	}
	before := files(t, dir)
	for _, to := range []string{"native", "torch_dist"} {
		_, _, err := call("--input", from, "--output", dir, "--to", to)
		if exitcode.CodeOf(err) != exitcode.IO || !strings.Contains(err.Error(), "is saving to this folder") {
			t.Errorf("%s: %v (code %d)", to, err, exitcode.CodeOf(err))
		}
	}
	if !maps.Equal(before, files(t, dir)) {
		t.Error("files have changed")
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	convert(t, "--input", from, "--output", dir, "--to", "native")
}

// Claim (docs/checkpoints.md): --split-adapter does not write over a folder, nor where the output goes.
func TestSplitAdapterIsNew(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	for split, says := range map[string]string{dir: "already exists", out: "are both"} {
		_, _, err := call("--input", tiny, "--to", "hf", "--output", out, "--split-adapter", split)
		if exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", split, err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
