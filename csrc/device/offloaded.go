package device

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Store is a stretch of bytes outside of a device's memory: a file, or the memory
// of a GPU's host. Several goroutines may call it at once, for bytes that none of them share.
type Store interface {
	ReadAt(dst []byte, at int64) error
	WriteAt(src []byte, at int64) error
}

// shelf is a store and the addresses under which tensors name its bytes.
type shelf struct {
	from, bytes int64 // the first is offloadedAddress or more
	store       Store // nil on a device that counts
}

// offloadedAddress is where the addresses of bytes in stores begin: above all memory, and
// above what is counted.
const offloadedAddress = 1 << 53

// Offloaded makes a tensor [n] in a store that open makes for that many bytes. No op can
// take it: Read, Write and Move can, and views of it are as those of any tensor. A store
// that cannot be had is the device's first trouble.
func (d *Device) Offloaded(dtype DType, n int64, open func(bytes int64) (Store, error)) Tensor {
	s, bytes := &shelf{from: offloadedAddress}, (n*dtype.Size()+PageSize-1)&^(PageSize-1)
	if k := len(d.shelves); k > 0 {
		s.from = d.shelves[k-1].from + d.shelves[k-1].bytes + PageSize
	}
	s.bytes = bytes
	if !d.Counts() {
		var err error
		if s.store, err = open(bytes); err != nil {
			s.store = nil
			d.keep(err)
		}
	}
	d.shelves = append(d.shelves, s)
	return View(unsafe.Add(unsafe.Pointer(nil), s.from), dtype, n)
}

// PageSize is what stores want offsets, lengths and addresses to be multiples of, where
// they can be.
const PageSize = 4096

// Offloaded reports whether the tensor lies in a store.
func (t Tensor) Offloaded() bool { return uintptr(t.Data) >= offloadedAddress }

// Addressable reports whether the host may read and write t where it lies, between ops.
func (d *Device) Addressable(t Tensor) bool { return d.OnHost() && !t.Offloaded() }

// Stored is the bytes that lie in stores.
func (d *Device) Stored() (bytes int64) {
	for _, s := range d.shelves {
		bytes += s.bytes
	}
	return bytes
}

// shelf is the store of a tensor that lies in one, and where in it.
func (d *Device) shelf(t Tensor) (Store, int64) {
	at := int64(uintptr(t.Data))
	for _, s := range d.shelves {
		if at >= s.from && at < s.from+s.bytes {
			return s.store, at - s.from
		}
	}
	panic(fmt.Sprintf("device: %v is not in a store of this device", t))
}

// Fetch reads t, which lies in a store, into dst; Put writes it. Any goroutine may call them.
func (d *Device) Fetch(dst []byte, t Tensor) error {
	s, at := d.shelf(t)
	if s == nil {
		return nil
	}
	return s.ReadAt(dst, at)
}

// Put is Fetch's other way.
func (d *Device) Put(t Tensor, src []byte) error {
	s, at := d.shelf(t)
	if s == nil {
		return nil
	}
	return s.WriteAt(src, at)
}

// fetched bytes of a box are one task of a thread, about.
const fetched = 64 << 10

// FetchBox reads rows and columns {first, number} of t [any, any], which lies in a store, into dst [rows, columns],
// which is Addressable. The threads of the shared pool read it together.
func (d *Device) FetchBox(dst, t Tensor, rows, columns [2]int64) error {
	if d.Counts() || dst.Len() == 0 {
		return nil
	}
	store, at := d.shelf(t)
	if store == nil {
		return d.err
	}
	// Rows of the full width are read at once.
	to, size := d.Bytes(dst), t.DType.Size()
	width, line := t.Shape[1]*size, columns[1]*size
	each, once := max(1, fetched/line), int64(1)
	if line == width {
		once = each
	}
	var failed atomic.Pointer[error]
	SharedPool().Run((rows[1]+each-1)/each, func(_ int, tile int64) {
		for row := tile * each; row < min(rows[1], (tile+1)*each); row += once {
			n := min(once, rows[1]-row)
			if err := store.ReadAt(to[row*line:][:n*line], at+(rows[0]+row)*width+columns[0]*size); err != nil {
				failed.Store(&err)
			}
		}
	})
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// moved bytes pass through the host at a time, where the device's memory is not the host's.
const moved = 4 << 20

// Move copies src to dst, of the same dtype and length and both contiguous, wherever they lie.
func (d *Device) Move(dst, src Tensor) {
	if dst.Len() != src.Len() || dst.DType != src.DType || !dst.Contiguous() || !src.Contiguous() {
		panic(fmt.Sprintf("device: %v cannot be moved to %v", src, dst))
	}
	dst, src = dst.Reshape(dst.Len()), src.Reshape(src.Len())
	switch {
	case !dst.Offloaded() && !src.Offloaded():
		d.Copy(dst, src)
	case d.Counts():
	case d.Addressable(dst):
		d.keep(d.Fetch(d.Bytes(dst), src))
	case d.Addressable(src):
		d.keep(d.Put(dst, d.Bytes(src)))
	default:
		buf, width := make([]byte, min(moved, dst.Bytes())), dst.DType.Size()
		for at := int64(0); at < dst.Bytes() && d.err == nil; at += int64(len(buf)) {
			part := buf[:min(int64(len(buf)), dst.Bytes()-at)]
			from, n := at/width, int64(len(part))/width
			d.Read(part, src.Slice(0, from, n))
			d.Write(dst.Slice(0, from, n), part)
		}
	}
}

// Bytes is the memory of a contiguous tensor that is Addressable.
func (d *Device) Bytes(t Tensor) []byte {
	if !d.Addressable(t) || !t.Contiguous() {
		panic(fmt.Sprintf("device: the host cannot read %v", t))
	}
	return unsafe.Slice((*byte)(t.Data), t.Bytes())
}

// Paged is Alloc of a vector whose element `at` is the first of a page, as stores like it;
// block is what Free takes.
func (a *Arena) Paged(p Purpose, dtype DType, n, at int64) (t, block Tensor) {
	block = a.Alloc(p, dtype, n+PageSize/dtype.Size())
	skip := int64(-(uintptr(block.Data)+uintptr(at*dtype.Size()))&(PageSize-1)) / dtype.Size()
	return block.Slice(0, skip, n), block
}

// Pages is memory of the host, n bytes that begin at a page.
func Pages(n int64) []byte {
	b := make([]byte, n+PageSize)
	skip := -uintptr(unsafe.Pointer(&b[0])) & (PageSize - 1)
	return b[skip:][:n:n]
}
