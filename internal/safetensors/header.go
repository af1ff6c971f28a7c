package safetensors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"strconv"
	"unicode/utf8"

	"monotron/internal/exitcode"
)

const (
	lengthBytes = 8
	maxHeader   = 100_000_000 // the format's own limit
	maxRank     = 64          // far above any tensor; a bound for hostile headers
	metadataKey = "__metadata__"
)

// Info is one tensor's entry.
type Info struct {
	Name   string
	DType  string  // F32, BF16, I64, ..
	Shape  []int64 // empty: a scalar
	Offset int64   // of the first byte in the file
	Bytes  int64
}

// Len is the number of elements.
func (i Info) Len() int64 {
	n := int64(1)
	for _, d := range i.Shape {
		n *= d
	}
	return n
}

// parser walks the header's JSON, whose shape is known, so that neither depth
// nor duplicates can surprise.
type parser struct {
	path string
	base int64 // of the JSON in the file
	dec  *json.Decoder
}

func newParser(path string, raw []byte, base int64) *parser {
	p := &parser{path: path, base: base, dec: json.NewDecoder(bytes.NewReader(raw))}
	p.dec.UseNumber()
	return p
}

func (p *parser) bad(format string, args ...any) error {
	return exitcode.Errorf(exitcode.BadData, "%s: byte %d: %s", p.path, p.base+p.dec.InputOffset(), fmt.Sprintf(format, args...))
}

func (p *parser) token() (json.Token, error) {
	t, err := p.dec.Token()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, p.bad("the header is not JSON: %v", err)
	}
	return t, nil
}

func (p *parser) delim(want json.Delim) error {
	t, err := p.token()
	if err == nil && t != want {
		err = p.bad("found %v, expected %v", t, want)
	}
	return err
}

func (p *parser) text() (string, error) {
	t, err := p.token()
	if err != nil {
		return "", err
	}
	s, ok := t.(string)
	if !ok {
		return "", p.bad("found %v, expected a string", t)
	}
	return s, nil
}

// numbers reads a list of at most limit integers from 0 to 2^63-1.
func (p *parser) numbers(limit int) ([]int64, error) {
	if err := p.delim('['); err != nil {
		return nil, err
	}
	list := []int64{}
	for p.dec.More() {
		t, err := p.token()
		if err != nil {
			return nil, err
		}
		n, _ := t.(json.Number)
		v, err := strconv.ParseUint(n.String(), 10, 63)
		if err != nil {
			return nil, p.bad("found %v, expected an integer from 0 to 2^63-1", t)
		}
		if len(list) == limit {
			return nil, p.bad("a list has more than %d numbers", limit)
		}
		list = append(list, int64(v))
	}
	return list, p.delim(']')
}

// object calls field for each key; a key may come once.
func (p *parser) object(what string, field func(key string) error) error {
	if err := p.delim('{'); err != nil {
		return err
	}
	seen := map[string]bool{}
	for p.dec.More() {
		key, err := p.text()
		if err != nil {
			return err
		}
		if seen[key] {
			return p.bad("%s has %q twice", what, key)
		}
		seen[key] = true
		if err := field(key); err != nil {
			return err
		}
	}
	return p.delim('}')
}

func (p *parser) strings(what string) (map[string]string, error) {
	m := map[string]string{}
	err := p.object(what, func(key string) error {
		v, err := p.text()
		m[key] = v
		return err
	})
	return m, err
}

// parse checks a header against the length of the data behind it. The order of
// the result is the header's.
func parse(path string, raw []byte, dataBytes int64) (infos []Info, metadata map[string]string, err error) {
	p := newParser(path, raw, lengthBytes)
	if len(raw) == 0 || raw[0] != '{' {
		return nil, nil, p.bad("the header does not start with {, so this is not a safetensors file")
	}
	if !utf8.Valid(raw) {
		return nil, nil, p.bad("the header is not UTF-8")
	}
	// A tensor's entry, or the metadata.
	err = p.object("the header", func(name string) error {
		if name == metadataKey {
			metadata, err = p.strings(metadataKey)
			return err
		}
		info, err := p.entry(name)
		if err == nil {
			err = p.locate(&info, int64(len(raw)), dataBytes)
		}
		infos = append(infos, info)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	// Spaces may pad the header; nothing else follows.
	if rest := bytes.TrimLeft(raw[p.dec.InputOffset():], " "); len(rest) > 0 {
		return nil, nil, p.bad("%d bytes follow the JSON of the header; only spaces may follow it", len(rest))
	}
	return infos, metadata, tiles(path, infos, lengthBytes+int64(len(raw)), dataBytes)
}

// entry reads one tensor's description; Offset and Bytes hold data_offsets as
// they stand: begin and end.
func (p *parser) entry(name string) (Info, error) {
	info := Info{Name: name}
	var offsets []int64
	what := fmt.Sprintf("tensor %q", name)
	// The three fields, in any order, and no other.
	err := p.object(what, func(key string) (err error) {
		switch key {
		case "dtype":
			info.DType, err = p.text()
		case "shape":
			info.Shape, err = p.numbers(maxRank)
		case "data_offsets":
			offsets, err = p.numbers(2)
		default:
			err = p.bad("%s has an unknown field %q", what, key)
		}
		if err != nil {
			err = fmt.Errorf("%w (in %s)", err, what)
		}
		return err
	})
	if err != nil {
		return info, err
	}
	if info.DType == "" || info.Shape == nil || len(offsets) != 2 {
		return info, p.bad("%s needs dtype, shape and two data_offsets", what)
	}
	info.Offset, info.Bytes = offsets[0], offsets[1]
	return info, nil
}

// locate turns begin and end into a checked range of the file.
func (p *parser) locate(info *Info, headerBytes, dataBytes int64) error {
	begin, end := info.Offset, info.Bytes
	if dtypeBits[info.DType] == 0 {
		return p.bad("tensor %q has the unknown dtype %q", info.Name, info.DType)
	}
	size, ok := byteSize(info.DType, info.Shape)
	switch {
	case !ok:
		return p.bad("tensor %q: the size of shape %v with dtype %s is too large, or is not a multiple of 8 bits", info.Name, info.Shape, info.DType)
	case begin > end:
		return p.bad("tensor %q: data_offsets [%d, %d] are not in order", info.Name, begin, end)
	case end > dataBytes:
		return p.bad("tensor %q: data_offsets [%d, %d] end beyond the %d bytes of data in the file: the file is truncated or damaged", info.Name, begin, end, dataBytes)
	case end-begin != size:
		return p.bad("tensor %q: shape %v of %s needs %d bytes, but data_offsets [%d, %d] span %d", info.Name, info.Shape, info.DType, size, begin, end, end-begin)
	}
	info.Offset, info.Bytes = lengthBytes+headerBytes+begin, size
	return nil
}

// tiles checks that the tensors cover the data exactly once.
func tiles(path string, infos []Info, at, dataBytes int64) error {
	order := make([]int, len(infos))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool {
		x, y := infos[order[a]], infos[order[b]]
		return x.Offset < y.Offset || x.Offset == y.Offset && x.Bytes < y.Bytes
	})
	end, last := at, ""
	for _, i := range order {
		info := infos[i]
		if info.Offset < end {
			return exitcode.Errorf(exitcode.BadData, "%s: byte %d: tensors %q and %q overlap", path, info.Offset, last, info.Name)
		}
		if info.Offset > end {
			return exitcode.Errorf(exitcode.BadData, "%s: bytes %d to %d, before tensor %q, belong to no tensor", path, end, info.Offset, info.Name)
		}
		end, last = info.Offset+info.Bytes, info.Name
	}
	if end != at+dataBytes {
		return exitcode.Errorf(exitcode.BadData, "%s: bytes %d to %d, at the end of the file, belong to no tensor", path, end, at+dataBytes)
	}
	return nil
}
