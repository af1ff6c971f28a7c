package device

import (
	"errors"
	"fmt"
	"unsafe"
)

// fuser is a backend that finds a vendor's attention at run time.
type fuser interface {
	// fuseAttention makes calls like `like` run there, and says how large a workspace they need.
	fuseAttention(like *AttentionBackwardArgs) (bytes int64, err error)
	// ownAttention goes back to the backend's own kernels.
	ownAttention()
	// setWorkspace hands the workspace over; one that is not given takes it back.
	setWorkspace(t Tensor)
}

// FuseAttention makes attention of like's shapes and strides run in the vendor's library
// (cuDNN) from now on, in a workspace of `most` bytes at most; where DQ is not given, forward
// alone. Values are not read. The error says why it cannot be; then such calls continue
// running in the device's own kernels.
func (d *Device) FuseAttention(like AttentionBackwardArgs, most int64) error {
	b, ok := d.backend.(fuser)
	if !ok {
		return errors.New("the device " + d.Name + " has no attention kernels from its vendor")
	}
	OpAttentionForward.need(unsafe.Pointer(&like.Forward))
	bytes, err := b.fuseAttention(&like)
	if err != nil {
		return err
	}
	if bytes > most {
		return fmt.Errorf("the kernel needs a workspace of %s, which is more than the limit of %s", Size(bytes), Size(most))
	}
	if bytes > d.FusedWorkspace() { // the last one stays: ops that are under way use it
		d.fused = d.Arena.Alloc(Workspace, I32, (bytes+3)/4)
		b.setWorkspace(d.fused)
	}
	return nil
}

// FusedWorkspace is what the vendor's attention works in, in bytes.
func (d *Device) FusedWorkspace() int64 {
	if !d.fused.Given() {
		return 0
	}
	return d.fused.Bytes()
}

// OwnAttention makes all attention run in the device's own kernels again, and frees the
// vendor's workspace.
func (d *Device) OwnAttention() {
	b, ok := d.backend.(fuser)
	if !ok {
		return
	}
	b.ownAttention()
	if d.fused.Given() {
		d.keep(d.backend.Sync()) // what is under way works in it
		b.setWorkspace(Tensor{})
		d.Arena.Free(d.fused)
		d.fused = Tensor{}
	}
}
