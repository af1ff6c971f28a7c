package pickle

import (
	"encoding/binary"
	"hash/crc32"
	"io"

	"monotron/internal/parallelio"
)

// A zip archive of stored members, as torch.save writes it. All offsets follow from
// names and sizes before a byte is made, so that bytes can be made where they will
// be written from. CRCs follow their members in descriptors.

const (
	localHeader = 30 // bytes before the name
	wideSize    = 1<<32 - 1
	wideCount   = 1<<16 - 1
)

// packed is a member of an archive.
type packed struct {
	name   string
	size   int64
	header int64 // where it begins
	data   int64 // where its bytes begin; a storage's at a multiple of alignment
	crc    uint32
}

func (p *packed) wide() bool { return p.size >= wideSize }

// descriptor is the size of the record after the bytes.
func (p *packed) descriptor() int64 {
	if p.wide() {
		return 24
	}
	return 16
}

func (p *packed) end() int64 { return p.data + p.size + p.descriptor() }

// layout puts members one behind the other and returns where their directory
// begins. The last one is put so that the archive ends at a multiple of alignment:
// in a file of several, bytes of the next one are aligned too.
func layout(members []packed) (start int64) {
	at := int64(0)
	for i := range members {
		p := &members[i]
		p.header = at
		p.data = aligned(at + localHeader + int64(len(p.name)) + 4)
		at = p.end()
	}
	size := at + int64(len(directory(members, at)))
	last := &members[len(members)-1]
	last.data += aligned(size) - size
	return last.end()
}

func aligned(at int64) int64 { return (at + alignment - 1) / alignment * alignment }

var le = binary.LittleEndian

const (
	version     = 20
	wideVersion = 45 // with sizes of 64 bits
	described   = 8  // flag: CRC and sizes follow the bytes
)

// local is the header of a member, filled up to where its bytes begin by an extra
// field such as torch's.
func (p *packed) local() []byte {
	b := le.AppendUint32(nil, 0x04034b50)
	b = p.common(b)
	b = append(b, make([]byte, 12)...) // CRC and sizes come later
	extra := p.data - p.header - localHeader - int64(len(p.name))
	b = le.AppendUint16(b, uint16(len(p.name)))
	b = le.AppendUint16(b, uint16(extra))
	b = append(append(b, p.name...), 'F', 'B')
	b = le.AppendUint16(b, uint16(extra-4))
	for range extra - 4 {
		b = append(b, 'Z')
	}
	return b
}

// common is the version that a reader needs, flags, method 0 and no time.
func (p *packed) common(b []byte) []byte {
	v := uint16(version)
	if p.wide() {
		v = wideVersion
	}
	return append(le.AppendUint16(le.AppendUint16(b, v), described), make([]byte, 6)...)
}

func (p *packed) describe() []byte {
	b := le.AppendUint32(nil, 0x08074b50)
	b = le.AppendUint32(b, p.crc)
	if p.wide() {
		return le.AppendUint64(le.AppendUint64(b, uint64(p.size)), uint64(p.size))
	}
	return le.AppendUint32(le.AppendUint32(b, uint32(p.size)), uint32(p.size))
}

// entry is the member's line in the directory.
func (p *packed) entry(b []byte) []byte {
	wide := p.wide() || p.header >= wideSize
	size, header, extra := p.size, p.header, 0
	if wide {
		size, header, extra = wideSize, wideSize, 28
	}
	b = le.AppendUint32(b, 0x02014b50)
	b = le.AppendUint16(b, wideVersion)
	b = p.common(b)
	for _, n := range []uint32{p.crc, uint32(size), uint32(size)} {
		b = le.AppendUint32(b, n)
	}
	b = le.AppendUint16(b, uint16(len(p.name)))
	b = le.AppendUint16(b, uint16(extra))
	b = append(b, make([]byte, 10)...) // no comment, first disk, no attributes
	b = le.AppendUint32(b, uint32(header))
	b = append(b, p.name...)
	if wide {
		b = le.AppendUint16(le.AppendUint16(b, 1), 24)
		for _, n := range []int64{p.size, p.size, p.header} {
			b = le.AppendUint64(b, uint64(n))
		}
	}
	return b
}

// directory lists the members and ends the archive; at is where it begins.
func directory(members []packed, at int64) []byte {
	var b []byte
	for i := range members {
		b = members[i].entry(b)
	}
	n, size := uint64(len(members)), uint64(len(b))
	start := uint64(at)
	if n >= wideCount || size >= wideSize || start >= wideSize {
		b = le.AppendUint32(b, 0x06064b50)
		b = le.AppendUint64(b, 44)
		b = le.AppendUint16(le.AppendUint16(b, wideVersion), wideVersion)
		b = append(b, make([]byte, 8)...) // first disk
		for _, v := range []uint64{n, n, size, start} {
			b = le.AppendUint64(b, v)
		}
		b = le.AppendUint32(b, 0x07064b50)
		b = le.AppendUint32(b, 0)
		b = le.AppendUint64(b, start+size)
		b = le.AppendUint32(b, 1)
		n, size, start = wideCount, wideSize, wideSize
	}
	b = le.AppendUint32(b, 0x06054b50)
	b = append(b, make([]byte, 4)...) // first disk
	b = le.AppendUint16(le.AppendUint16(b, uint16(n)), uint16(n))
	b = le.AppendUint32(le.AppendUint32(b, uint32(size)), uint32(start))
	return le.AppendUint16(b, 0) // no comment
}

// write writes a member whose bytes come from parts.
func (p *packed) write(w io.Writer, parts func(take func(raw []byte, back func()) error) error) error {
	if _, err := w.Write(p.local()); err != nil {
		return err
	}
	err := parts(func(raw []byte, back func()) error {
		p.crc = crc32.Update(p.crc, crc32.IEEETable, raw)
		return parallelio.Take(w, raw, back)
	})
	if err != nil {
		return err
	}
	_, err = w.Write(p.describe())
	return err
}
