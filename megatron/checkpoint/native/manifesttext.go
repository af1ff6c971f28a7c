package native

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/zeebo/xxh3"

	"monotron/internal/exitcode"
)

// The manifest file is {"xxh3":"<sum of all that follows the comma>","manifest":..}.
const (
	headOpen  = `{"xxh3":"`
	headClose = `",`
	bodyOpen  = "\n\"manifest\":"
	bodyClose = "}\n"

	headBytes = len(headOpen) + sumDigits + len(headClose)
)

// A manifest may have manifestFloor bytes, and beyond that manifestRatio bytes for each
// byte of the other files in its folder. A run's own manifest has 61 bytes for each MB of
// long pieces; a short piece takes at most twice its entry in the header of its file.
// Tests set them.
var (
	manifestFloor int64 = 1 << 28
	manifestRatio int64 = 4
)

// writeText writes manifest.json. It encodes the manifest twice, the first time for the
// checksum, and holds one tensor's entry in memory.
func (m *Manifest) writeText(w io.Writer) error {
	hash := xxh3.New()
	if err := m.writeBody(hash); err != nil {
		return err
	}
	if _, err := io.WriteString(w, headOpen+hexSum(hash.Sum128())+headClose); err != nil {
		return err
	}
	return m.writeBody(w)
}

// writeBody writes everything behind the checksum.
func (m *Manifest) writeBody(w io.Writer) error {
	head, err := json.Marshal(struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
		State   State  `json:"state"`
		Files   []File `json:"files"`
	}{m.Format, m.Version, m.State, m.Files})
	if err != nil {
		return exitcode.Errorf(exitcode.Internal, "checkpoint: internal error: the state of the run cannot be written as JSON: %w; report this, and include the command line", err)
	}
	out := bufio.NewWriterSize(w, 1<<20) // keeps its first error
	out.WriteString(bodyOpen)
	out.Write(head[:len(head)-1])
	out.WriteString(`,"tensors":[`)
	for i := range m.Tensors {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := writeJSON(out, &m.Tensors[i]); err != nil {
			return err
		}
	}
	out.WriteByte(']')
	if len(m.Tokenizer) > 0 {
		out.WriteString(`,"tokenizer":`)
		if err := writeJSON(out, m.Tokenizer); err != nil {
			return err
		}
	}
	out.WriteString("}" + bodyClose)
	return out.Flush()
}

func writeJSON(w io.Writer, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return exitcode.With(exitcode.Internal, err)
	}
	_, err = w.Write(text)
	return err
}

// readText reads a manifest of size bytes, a tensor at a time, and compares its checksum.
// Its contents are checked by Manifest.check.
func readText(r io.Reader, size int64) (*Manifest, error) {
	head := make([]byte, headBytes)
	n, err := io.ReadFull(r, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	said := string(head[len(headOpen) : len(headOpen)+sumDigits])
	if string(head) != headOpen+said+headClose {
		return nil, fmt.Errorf("the first %d bytes are not the start of a manifest", n)
	}
	hash := xxh3.New()
	rest := io.TeeReader(bufio.NewReaderSize(r, 1<<20), hash)
	m, wrong := readBody(rest)
	// A wrong checksum explains every other error, so it is checked first.
	if _, err := io.Copy(io.Discard, rest); err != nil {
		return nil, err
	}
	if is := hexSum(hash.Sum128()); is != said {
		return nil, fmt.Errorf("bytes %d to %d have the checksum %s, but the checksum that is stored at byte %d is %s", headBytes, size-1, is, len(headOpen), said)
	}
	if wrong != nil {
		return nil, wrong
	}
	if m.Format != manifestFormat || m.Version != manifestVersion {
		return nil, fmt.Errorf("the format is %q version %d, but this program reads %q version %d", m.Format, m.Version, manifestFormat, manifestVersion)
	}
	return m, nil
}

// readBody reads what writeBody writes, and nothing behind it.
func readBody(r io.Reader) (*Manifest, error) {
	open := make([]byte, len(bodyOpen))
	if _, err := io.ReadFull(r, open); err != nil || string(open) != bodyOpen {
		return nil, fmt.Errorf("byte %d: no manifest follows the checksum", headBytes)
	}
	// Keys as they come; tensors are read one by one, since a large run has hundreds of thousands.
	d, m := json.NewDecoder(r), &Manifest{}
	err := eachKey(d, func(key string) error {
		switch key {
		case "format":
			return d.Decode(&m.Format)
		case "version":
			return d.Decode(&m.Version)
		case "state":
			return d.Decode(&m.State)
		case "files":
			return d.Decode(&m.Files)
		case "tensors":
			return m.readTensors(d)
		case "tokenizer":
			return d.Decode(&m.Tokenizer)
		}
		return d.Decode(new(json.RawMessage))
	})
	if err != nil {
		return nil, err
	}
	// Nothing but the end follows.
	end, err := io.ReadAll(io.LimitReader(io.MultiReader(d.Buffered(), r), int64(len(bodyClose))+1))
	if err == nil && string(end) != bodyClose {
		err = fmt.Errorf("byte %d: the manifest must end at this byte, but does not", int64(headBytes+len(bodyOpen))+d.InputOffset())
	}
	return m, err
}

// eachKey calls value for every key of an object; value reads what belongs to it.
func eachKey(d *json.Decoder, value func(key string) error) error {
	open, err := d.Token()
	if err == nil && open != json.Delim('{') {
		err = fmt.Errorf("the manifest must be a JSON object")
	}
	for err == nil && d.More() {
		var key json.Token
		if key, err = d.Token(); err == nil {
			err = value(key.(string)) // of an object, where anything else is an error of Token
		}
	}
	if err == nil {
		_, err = d.Token()
	}
	return err
}

func (m *Manifest) readTensors(d *json.Decoder) error {
	m.Tensors = nil
	open, err := d.Token()
	if err != nil || open == nil { // null
		return err
	}
	if open != json.Delim('[') {
		return fmt.Errorf("the manifest's tensors must be a list")
	}
	for d.More() {
		var t Tensor
		if err := d.Decode(&t); err != nil {
			return err
		}
		m.Tensors = append(m.Tensors, t)
	}
	_, err = d.Token()
	return err
}

// readTextFile reads the manifest, or a rank's part of one, at path.
func readTextFile(path string) (*Manifest, error) {
	f, err := exitcode.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, exitcode.With(exitcode.IO, err)
	}
	if err := checkTextSize(path, st.Size()); err != nil {
		return nil, err
	}
	return readText(io.LimitReader(f, st.Size()), st.Size())
}

// checkTextSize refuses a manifest too large for the files that it lists.
func checkTextSize(path string, size int64) error {
	if size <= manifestFloor {
		return nil
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	data := int64(0)
	for _, e := range entries {
		st, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
		case err != nil:
			return exitcode.With(exitcode.IO, err)
		case st.Mode().IsRegular() && filepath.Ext(e.Name()) == ".safetensors":
			data += st.Size()
		}
	}
	if (size-manifestFloor)/max(manifestRatio, 1) > data || manifestRatio == 0 {
		return exitcode.Errorf(exitcode.BadData, "%s has %d bytes, but a manifest for %d bytes of data may have at most %d", path, size, data, manifestFloor+manifestRatio*data)
	}
	return nil
}
