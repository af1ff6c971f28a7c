package safetensors

import (
	"io"
	"os"

	"monotron/internal/exitcode"
)

// File is an open safetensors file with a checked header.
type File struct {
	Path        string
	Metadata    map[string]string // of __metadata__; nil without it
	HeaderBytes int64             // where the data starts

	file  *os.File
	infos []Info
	index map[string]int
}

// Open reads and checks the header of path. A malformed file is exitcode.BadData,
// a missing one exitcode.NoInput.
func Open(path string) (*File, error) {
	f, err := exitcode.Open(path)
	if err != nil {
		return nil, err
	}
	s := &File{Path: path, file: f}
	st, err := f.Stat()
	if err == nil {
		err = s.readHeader(st.Size())
	}
	if err != nil {
		_ = f.Close() // opened for reading: nothing to lose
		return nil, err
	}
	return s, nil
}

func (s *File) readHeader(size int64) error {
	// The length of the header, bounded by the file and by the format.
	var head [lengthBytes]byte
	if size < lengthBytes {
		return exitcode.Errorf(exitcode.BadData, "%s: %d bytes are too few for a safetensors file", s.Path, size)
	}
	if _, err := s.file.ReadAt(head[:], 0); err != nil {
		return exitcode.Errorf(exitcode.IO, "%s: %w", s.Path, err)
	}
	n := le.Uint64(head[:])
	if n > maxHeader {
		return exitcode.Errorf(exitcode.BadData, "%s: byte 0: the header size is %d bytes, but the format allows at most %d: the file is not in safetensors format", s.Path, n, maxHeader)
	}
	if int64(n) > size-lengthBytes {
		return exitcode.Errorf(exitcode.BadData, "%s: byte 0: the header size is %d bytes, but only %d bytes follow: the file is truncated, or not in safetensors format", s.Path, n, size-lengthBytes)
	}
	raw := make([]byte, n)
	if _, err := s.file.ReadAt(raw, lengthBytes); err != nil {
		return exitcode.Errorf(exitcode.IO, "%s: %w", s.Path, err)
	}
	s.HeaderBytes = lengthBytes + int64(n)
	// Descriptions, which must cover the data without gaps.
	infos, metadata, err := parse(s.Path, raw, size-s.HeaderBytes)
	if err != nil {
		return err
	}
	s.infos, s.Metadata = infos, metadata
	s.index = make(map[string]int, len(infos))
	for i, info := range infos {
		s.index[info.Name] = i
	}
	return nil
}

// Close closes the file.
func (s *File) Close() error { return s.file.Close() }

// Names lists the tensors in the header's order.
func (s *File) Names() []string {
	names := make([]string, len(s.infos))
	for i, info := range s.infos {
		names[i] = info.Name
	}
	return names
}

// Info returns where and what a tensor is; ok is false for an unknown name.
func (s *File) Info(name string) (info Info, ok bool) {
	i, ok := s.index[name]
	if !ok {
		return Info{}, false
	}
	return s.infos[i], true
}

func (s *File) need(name string) (Info, error) {
	info, ok := s.Info(name)
	if !ok {
		return info, exitcode.Errorf(exitcode.BadData, "%s has no tensor %q", s.Path, name)
	}
	return info, nil
}

// Read returns a tensor's bytes.
func (s *File) Read(name string) ([]byte, error) {
	info, err := s.need(name)
	if err != nil {
		return nil, err
	}
	raw := make([]byte, info.Bytes)
	return raw, s.readAt(info, raw, 0)
}

func (s *File) readAt(info Info, dst []byte, at int64) error {
	if len(dst) == 0 {
		return nil
	}
	if _, err := s.file.ReadAt(dst, info.Offset+at); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return exitcode.Errorf(exitcode.IO, "%s: tensor %q: byte %d: %w", s.Path, info.Name, info.Offset+at, err)
	}
	return nil
}

// ReadAt fills dst with a tensor's bytes from at. Several goroutines may call it.
func (s *File) ReadAt(name string, dst []byte, at int64) error {
	info, err := s.need(name)
	if err != nil {
		return err
	}
	if at < 0 || at+int64(len(dst)) > info.Bytes {
		return exitcode.Errorf(exitcode.Internal, "%s: internal error: bytes %d to %d of tensor %q were requested, but it has %d bytes; report this, and include the command line", s.Path, at, at+int64(len(dst)), name, info.Bytes)
	}
	return s.readAt(info, dst, at)
}

// Stream hands a tensor's bytes to each in chunks of complete elements, so that no
// second copy of a large tensor is needed. The chunk is valid during the call.
func (s *File) Stream(name string, each func(chunk []byte) error) error {
	const chunkBytes = 1 << 20
	info, err := s.need(name)
	if err != nil {
		return err
	}
	buf := make([]byte, min(chunkBytes, info.Bytes))
	for at := int64(0); at < info.Bytes; at += chunkBytes {
		part := buf[:min(chunkBytes, info.Bytes-at)]
		if err := s.readAt(info, part, at); err != nil {
			return err
		}
		if err := each(part); err != nil {
			return err
		}
	}
	return nil
}

// Float32 returns a numeric tensor's values rounded to float32.
func (s *File) Float32(name string) ([]float32, error) { return values[float32](s, name) }

// Float64 returns a numeric tensor's values.
func (s *File) Float64(name string) ([]float64, error) { return values[float64](s, name) }

func values[T float32 | float64](s *File, name string) ([]T, error) {
	info, err := s.need(name)
	if err != nil {
		return nil, err
	}
	read, ok := readers[info.DType]
	if !ok {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: tensor %q: values of dtype %s cannot be read as numbers", s.Path, name, info.DType)
	}
	width := int(dtypeBits[info.DType] / 8)
	out := make([]T, 0, info.Len())
	err = s.Stream(name, func(chunk []byte) error {
		for i := range len(chunk) / width {
			out = append(out, T(read(chunk, i)))
		}
		return nil
	})
	return out, err
}

// Int64 returns an integer tensor's values; U64 and floats are refused.
func (s *File) Int64(name string) ([]int64, error) {
	info, err := s.need(name)
	if err != nil {
		return nil, err
	}
	read, ok := integers[info.DType]
	if !ok {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: tensor %q: values of dtype %s cannot be read as signed 64-bit integers", s.Path, name, info.DType)
	}
	width := int(dtypeBits[info.DType] / 8)
	out := make([]int64, 0, info.Len())
	err = s.Stream(name, func(chunk []byte) error {
		for i := range len(chunk) / width {
			out = append(out, read(chunk, i))
		}
		return nil
	})
	return out, err
}
