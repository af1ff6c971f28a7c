package records

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	mostSamples  = 1 << 24 // of a shard
	mostSettings = 1 << 20 // bytes of a shard's settings
	mostColumns  = 1 << 12
)

// MDS is the rows of a shard of MosaicML's streaming, unpacked. The shard is, all numbers u32 in little-endian order:
//
//	number of samples | where each begins, and where the last ends | settings as JSON | samples
//
// A sample has the sizes of its columns without a fixed one, then the columns' bytes. Columns of text,
// numbers and JSON are fields; others, as images, are left out. most is the longest sample that is read.
func MDS(from io.Reader, most func() int64) io.Reader {
	s := &shard{from: from, most: most}
	return &lines{next: s.next}
}

type shard struct {
	from     io.Reader
	most     func() int64
	starts   []uint32 // nil: not yet read
	at       int      // the next sample
	settings mdsSettings
}

// mdsSettings are what a shard says of its columns.
type mdsSettings struct {
	Format    string   `json:"format"`
	Names     []string `json:"column_names"`
	Encodings []string `json:"column_encodings"`
	Sizes     []*int64 `json:"column_sizes"` // nil: a sample says it
}

func (s *shard) next() ([]byte, error) {
	if s.starts == nil {
		if err := s.open(); err != nil {
			return nil, fmt.Errorf("the MDS shard is damaged: %w", err)
		}
	}
	if s.at == len(s.starts)-1 {
		if n, err := s.from.Read(make([]byte, 1)); n > 0 || err != io.EOF {
			return nil, fmt.Errorf("the MDS shard is damaged: bytes follow the last of its %d samples", s.at)
		}
		return nil, io.EOF
	}
	size := int64(s.starts[s.at+1] - s.starts[s.at])
	if size > s.most() {
		return nil, fmt.Errorf("sample %d, with %d bytes: %w", s.at, size, errTooLong)
	}
	sample := make([]byte, size)
	if _, err := io.ReadFull(s.from, sample); err != nil {
		return nil, fmt.Errorf("the shard ends within sample %d", s.at)
	}
	row, err := s.settings.row(sample)
	if err != nil {
		return nil, fmt.Errorf("sample %d: %w", s.at, err)
	}
	s.at++
	return row, nil
}

// open reads what stands before the samples.
func (s *shard) open() error {
	var count uint32
	if err := binary.Read(s.from, binary.LittleEndian, &count); err != nil {
		return errors.New("the shard ends within its header")
	}
	if count > mostSamples {
		return fmt.Errorf("the header declares %d samples; the limit is %d", count, mostSamples)
	}
	starts := make([]uint32, count+1)
	if err := binary.Read(s.from, binary.LittleEndian, starts); err != nil {
		return errors.New("the shard ends within its header")
	}
	header := 4 * int64(count+2)
	if !slices.IsSorted(starts) {
		return errors.New("the offsets of the samples are not in ascending order")
	}
	length := int64(starts[0]) - header
	if length < 2 || length > mostSettings {
		return fmt.Errorf("the first sample begins at byte %d, which leaves %d bytes for the settings; they must have 2 to %d bytes", starts[0], length, mostSettings)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(s.from, text); err != nil {
		return errors.New("the shard ends within its settings")
	}
	if err := json.Unmarshal(text, &s.settings); err != nil {
		return fmt.Errorf("the settings: %w", err)
	}
	s.starts = starts
	return s.settings.check()
}

func (m *mdsSettings) check() error {
	if m.Format != "mds" {
		return fmt.Errorf("the settings name the format %.20q; it must be mds", m.Format)
	}
	if n := len(m.Names); n == 0 || n > mostColumns || len(m.Encodings) != n || len(m.Sizes) != n {
		return fmt.Errorf("the settings have %d names, %d encodings and %d sizes of columns; there must be equally many of each, from 1 to %d", len(m.Names), len(m.Encodings), len(m.Sizes), mostColumns)
	}
	for i, size := range m.Sizes {
		if size != nil && (*size < 0 || *size > math.MaxUint32) {
			return fmt.Errorf("column %.40q has the size %d; a size must be 0 to %d", m.Names[i], *size, uint32(math.MaxUint32))
		}
	}
	return nil
}

// row is a sample as an object.
func (m *mdsSettings) row(sample []byte) ([]byte, error) {
	// The size of each column.
	sizes := make([]int64, len(m.Names))
	for i, fixed := range m.Sizes {
		if fixed != nil && *fixed > 0 {
			sizes[i] = *fixed
			continue
		}
		if len(sample) < 4 {
			return nil, errors.New("the sample ends within the sizes of its columns")
		}
		sizes[i], sample = int64(binary.LittleEndian.Uint32(sample)), sample[4:]
	}
	// Their bytes.
	var r row
	for i, name := range m.Names {
		if sizes[i] > int64(len(sample)) {
			return nil, fmt.Errorf("column %q has %d bytes, but only %d bytes of the sample are left", name, sizes[i], len(sample))
		}
		if err := r.column(name, m.Encodings[i], sample[:sizes[i]]); err != nil {
			return nil, fmt.Errorf("column %q: %w", name, err)
		}
		sample = sample[sizes[i]:]
	}
	if len(sample) > 0 {
		return nil, fmt.Errorf("%d bytes follow the last column of the sample", len(sample))
	}
	return r.done(), nil
}

// column adds one, if it is of a kind that JSON has.
func (r *row) column(name, encoding string, value []byte) error {
	switch encoding {
	case "str":
		return r.text(name, value)
	case "json":
		r.raw(name, value)
		return nil
	case "str_int", "str_float", "str_decimal":
		if !isNumber(string(value)) {
			return fmt.Errorf("%.20q is not a number", value)
		}
		r.raw(name, value)
		return nil
	}
	text, known := number(encoding, value)
	if !known {
		return nil
	}
	if text == "" {
		return fmt.Errorf("%d bytes are not a valid %s", len(value), encoding)
	}
	r.raw(name, []byte(text))
	return nil
}

// number is a binary one as text, "" for another size than the encoding's; known is false for anything but a number.
func number(encoding string, b []byte) (text string, known bool) {
	le := binary.LittleEndian
	kinds := map[string]struct {
		size int
		text func() string
	}{
		"int": {8, func() string { return strconv.FormatInt(int64(le.Uint64(b)), 10) }}, "int64": {8, func() string { return strconv.FormatInt(int64(le.Uint64(b)), 10) }},
		"int32": {4, func() string { return strconv.Itoa(int(int32(le.Uint32(b)))) }}, "int16": {2, func() string { return strconv.Itoa(int(int16(le.Uint16(b)))) }},
		"int8": {1, func() string { return strconv.Itoa(int(int8(b[0]))) }}, "uint64": {8, func() string { return strconv.FormatUint(le.Uint64(b), 10) }},
		"uint32": {4, func() string { return strconv.FormatUint(uint64(le.Uint32(b)), 10) }}, "uint16": {2, func() string { return strconv.Itoa(int(le.Uint16(b))) }},
		"uint8": {1, func() string { return strconv.Itoa(int(b[0])) }}, "float64": {8, func() string { return float(math.Float64frombits(le.Uint64(b)), 64) }},
		"float32": {4, func() string { return float(float64(math.Float32frombits(le.Uint32(b))), 32) }},
	}
	k, known := kinds[encoding]
	if !known || len(b) != k.size {
		return "", known
	}
	return k.text(), true
}

// float is a number as Python's json writes it.
func float(x float64, bits int) string {
	switch {
	case math.IsNaN(x):
		return "NaN"
	case math.IsInf(x, 0):
		return strings.TrimPrefix(strconv.FormatFloat(x, 'g', -1, 64), "+") + "inity"
	}
	return strconv.FormatFloat(x, 'g', -1, bits)
}

// isNumber reports whether a text is a number of JSON.
func isNumber(text string) bool {
	var n json.Number
	return json.Unmarshal([]byte(text), &n) == nil && text != "" && text[0] != '"'
}
