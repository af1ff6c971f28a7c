package native

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/mpu"
)

// Claim: the text that is written a tensor at a time is encoding/json's of the struct,
// which earlier versions wrote, and what is read is what was written.
func TestManifestTextIsJSON(t *testing.T) {
	kept := tiny()
	kept.Tokenizer = []Kept{{Name: "a<b.json", Bytes: 3, XXH3: strings.Repeat("0", sumDigits)}}
	for _, m := range []*Manifest{tiny(), kept, {Format: manifestFormat, Version: manifestVersion, Files: []File{}, Tensors: []Tensor{}}} {
		text := encoded(t, m)
		body, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		rest := bodyOpen + string(body) + bodyClose
		if want := headOpen + sum([]byte(rest)) + headClose + rest; string(text) != want {
			t.Errorf("wrote\n%s\nwant\n%s", text, want)
		}
		back, err := readText(bytes.NewReader(text), int64(len(text)))
		if err != nil || !bytes.Equal(encoded(t, back), text) {
			t.Errorf("read %+v, %v", back, err)
		}
	}
}

// Claim: invalid text in or after a manifest is refused, with a right checksum.
func TestManifestTextIsHostile(t *testing.T) {
	good, err := json.Marshal(tiny())
	if err != nil {
		t.Fatal(err)
	}
	for _, rest := range []string{"", bodyOpen, bodyOpen + "[]" + bodyClose, bodyOpen + "{" + bodyClose, bodyOpen + `{"tensors":{}}` + bodyClose, bodyOpen + `{"tensors":[1]}` + bodyClose,
		bodyOpen + string(good) + bodyClose + " ", bodyOpen + string(good) + "}", bodyOpen + string(good) + string(good) + bodyClose, bodyOpen + `{"tensors":[` + strings.Repeat("[", 20000) + bodyClose} {
		if m, err := decoded([]byte(headOpen + sum([]byte(rest)) + headClose + rest)); err == nil {
			t.Errorf("%.60q is accepted: %+v", rest, m)
		}
	}
}

// limited makes the next manifests too large to be loaded.
func limited(t *testing.T, floor, ratio int64) {
	f, r := manifestFloor, manifestRatio
	t.Cleanup(func() { manifestFloor, manifestRatio = f, r })
	manifestFloor, manifestRatio = floor, ratio
}

// Claim: a save whose manifest could never be loaded is an error that changes nothing: the
// earlier checkpoints stay, also the one of the same iteration and with --keep-last 1.
func TestSaveThatCannotBeLoaded(t *testing.T) {
	for _, step := range []int64{5, 10} {
		dir := fastDir(t)
		mustSave(t, dir, 5, SaveOptions{})
		limited(t, 100, 0)
		_, err := save(t, dir, step, SaveOptions{KeepLast: 1})
		if exitcode.CodeOf(err) != exitcode.IO || !contains(err.Error(), "cannot read back") || !contains(err.Error(), "was not saved") {
			t.Errorf("got %v", err)
		}
		limited(t, 1<<28, 4)
		if got, report, err := load(t, dir, -1); got != 5 || err != nil || len(report.Notes) > 0 || len(leftovers(t, dir)) > 0 {
			t.Errorf("saving %d: loaded %d, %v, %v; left %v", step, got, report.Notes, err, leftovers(t, dir))
		}
	}
}

// Claim: a manifest's limit grows with the data next to it, and not without it.
func TestManifestLimit(t *testing.T) {
	dir := fastDir(t)
	mustSave(t, dir, 5, SaveOptions{})
	path := filepath.Join(iterPath(dir, 5), manifestName)
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	limited(t, 100, 4)
	if err := checkTextSize(path, st.Size()); err != nil {
		t.Error(err)
	}
	if err := checkTextSize(path, 1<<20); exitcode.CodeOf(err) != exitcode.BadData {
		t.Errorf("1 MiB: %v", err)
	}
	if err := checkTextSize(path, 1<<62); exitcode.CodeOf(err) != exitcode.BadData {
		t.Errorf("2^62 bytes: %v", err)
	}
}

// Claim: a manifest of over 256 MiB, as runs of 310 billion parameters and more write, is
// saved by four ranks, which prunes, and can be loaded.
func TestManifestOver256MiB(t *testing.T) {
	if os.Getenv("MONOTRON_LARGE") == "" {
		t.Skip("MONOTRON_LARGE=1: minutes and 6 GB of memory")
	}
	const world, pieces = 4, 700_000 // a header may have 100 MB
	dir, d := fastDir(t), newDevice(t)
	list := []mpu.Stored{{Name: "many", Global: []int64{world * pieces}, Write: true}}
	mustSaveAll := func(step int64) error {
		return together(t, world, func(rank int, meet func() error) error {
			own := newDevice(t)
			x := list[0]
			x.Tensor = own.Arena.Alloc(device.Parameters, device.F32, pieces)
			own.Write(x.Tensor, bytes.Repeat([]byte{byte(rank)}, 4*pieces))
			for i := range int64(pieces) {
				x.Pieces = append(x.Pieces, mpu.Piece{From: []int64{world*i + int64(rank)}, Size: []int64{1}, Local: i})
			}
			_, err := Save(t.Context(), dir, stateAt(step), []mpu.Stored{x}, own, SaveOptions{Rank: rank, World: world, Meet: meet, KeepLast: 1})
			return err
		})
	}
	for _, step := range []int64{1, 2} {
		if err := mustSaveAll(step); err != nil {
			t.Fatal(err)
		}
	}
	st, err := os.Stat(filepath.Join(iterPath(dir, 2), manifestName))
	if err != nil || st.Size() <= manifestFloor {
		t.Fatalf("a manifest of %d bytes, %v", st.Size(), err)
	}
	list[0].Tensor = d.Arena.Alloc(device.Parameters, device.F32, world*pieces)
	list[0].Pieces = []mpu.Piece{{From: []int64{0}, Size: []int64{world * pieces}}}
	if _, _, err := Load(dir, -1, list, d, LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, list[0].Tensor.Bytes())
	d.Read(raw, list[0].Tensor)
	for i, b := range raw {
		if b != byte(i/4%world) {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
	t.Logf("a manifest of %d bytes", st.Size())
}
