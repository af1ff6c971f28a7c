package safetensors

import (
	"encoding/json"
	"fmt"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
)

// dataAlign is where the data starts, so that a mapped file has aligned elements.
const dataAlign = 64

// Header makes the first bytes of a file with these tensors, one behind the
// other in the order given, and sets their Offset and Bytes.
func Header(infos []Info, metadata map[string]string) ([]byte, error) {
	type entry struct {
		DType   string   `json:"dtype"`
		Shape   []int64  `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	// JSON object after 8 bytes of length; keys in the order of the tensors, which a map would not keep.
	seen := map[string]bool{metadataKey: true}
	out := append(make([]byte, lengthBytes), '{')
	add := func(key string, value any) error {
		k, err := json.Marshal(key)
		if err != nil {
			return err
		}
		v, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if len(out) > lengthBytes+1 {
			out = append(out, ',')
		}
		out = append(append(append(out, k...), ':'), v...)
		return nil
	}
	if metadata != nil {
		if err := add(metadataKey, metadata); err != nil {
			return nil, err
		}
	}
	// Offsets in the header count from its end.
	at := int64(0)
	for i := range infos {
		info := &infos[i]
		size, ok := byteSize(info.DType, info.Shape)
		if !ok || dtypeBits[info.DType] == 0 || seen[info.Name] {
			return nil, fmt.Errorf("safetensors: internal error: tensor %q (dtype %s, shape %v) cannot be written: the dtype is unknown, the size is invalid, or the name is used twice; report this, and include the command line", info.Name, info.DType, info.Shape)
		}
		seen[info.Name] = true
		info.Offset, info.Bytes = at, size
		shape := append([]int64{}, info.Shape...) // a scalar's is [], not null
		if err := add(info.Name, entry{info.DType, shape, [2]int64{at, at + size}}); err != nil {
			return nil, err
		}
		at += size
	}
	out = append(out, '}')
	// Blanks so that the data is aligned.
	for len(out)%dataAlign != 0 {
		out = append(out, ' ')
	}
	if len(out)-lengthBytes > maxHeader {
		return nil, fmt.Errorf("safetensors: the header would have %d bytes; the format allows at most %d", len(out)-lengthBytes, maxHeader)
	}
	le.PutUint64(out, uint64(len(out)-lengthBytes))
	for i := range infos {
		infos[i].Offset += int64(len(out))
	}
	return out, nil
}

// Writer writes a file whose tensors are known beforehand and whose bytes come
// in their order, in pieces of any size. The file has its name only after Commit.
type Writer struct {
	path string
	file *atomicfile.File
	left int64 // bytes of data still to come
	err  error
}

// Create starts the file path.
func Create(path string, infos []Info, metadata map[string]string) (*Writer, error) {
	header, err := Header(infos, metadata)
	if err != nil {
		return nil, exitcode.With(exitcode.Internal, err)
	}
	f, err := atomicfile.Create(path, 0o666)
	if err != nil {
		return nil, err
	}
	w := &Writer{path: path, file: f, left: int64(len(header))}
	for _, info := range infos {
		w.left += info.Bytes
	}
	if _, err := w.Write(header); err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// Write appends data. The first error stays.
func (w *Writer) Write(data []byte) (int, error) {
	if w.err == nil && int64(len(data)) > w.left {
		w.err = exitcode.Errorf(exitcode.Internal, "%s: internal error: more bytes were written than the tensors have; report this, and include the command line", w.path)
	}
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.file.Write(data)
	w.left -= int64(n)
	if err != nil {
		w.err = exitcode.Errorf(exitcode.IO, "cannot write %s: %w", w.path, err)
	}
	return n, w.err
}

// Commit makes the file durable and gives it its name; on an error nothing of it is left.
func (w *Writer) Commit() error {
	if w.err == nil && w.left > 0 {
		w.err = exitcode.Errorf(exitcode.Internal, "%s: internal error: %d bytes of the tensors were not written; report this, and include the command line", w.path, w.left)
	}
	if w.err != nil {
		w.Abort()
		return w.err
	}
	return w.file.Commit()
}

// Abort removes what was written.
func (w *Writer) Abort() { w.file.Abort() }
