package native

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"monotron/internal/exitcode"
)

// Claim: a checkpoint that this process may not read, or cannot for want of file
// descriptors or memory, is not damaged: a run that took an older one instead
// would repeat the training since, and save over it.
func TestUnreadableIsNotDamaged(t *testing.T) {
	dir := twoSaved(t)
	list, err := List(dir)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(list[len(list)-1].Path, "*.safetensors"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	if err := errors.Join(os.Chmod(files[0], 0), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 { // whom no mode stops
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if _, err := unix.SetfsuidRetUid(65534); err != nil {
			t.Skipf("another user's rights are not to be had here: %v", err)
		}
		defer unix.SetfsuidRetUid(0)
		if f, err := os.Open(files[0]); err == nil {
			f.Close()
			t.Skip("another user's rights are not to be had here")
		}
	}
	step, report, err := load(t, dir, -1)
	var damage *Damage
	if err == nil || errors.As(err, &damage) || exitcode.CodeOf(err) != exitcode.IO || !contains(err.Error(), files[0]+" cannot be read: permission denied") {
		t.Errorf("loaded %d, %v; %v", step, err, report.Notes)
	}
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM} {
		if err := (&Damage{Path: "x"}).because(&os.PathError{Op: "open", Path: "x", Err: e}); errors.As(err, &damage) {
			t.Errorf("%v is taken for damage", e)
		}
	}
}
