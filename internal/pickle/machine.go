package pickle

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"monotron/internal/exitcode"
)

// Limits of one pickle.
const (
	maxPickle  = 512 << 20 // bytes
	maxStack   = 1 << 22   // values
	maxObjects = 1 << 24   // containers and instances
	maxDepth   = 500       // containers in containers
	maxMarks   = 1000      // opened and not closed
	maxLong    = 1024      // bytes of one integer
)

// machine interprets one pickle.
type machine struct {
	name string // of the file, for messages
	data []byte
	at   int // next byte
	op   int // byte of the current opcode

	stack   []Value
	marks   []int // heights of the stack
	memo    map[uint64]Value
	objects int

	persistent func(id []Value) (Value, error) // nil: none allowed
}

// Decode reads one pickle from the start of data and returns its length.
// name is the file's, for messages; persistent ids are refused.
// Errors are exitcode.BadData with file, byte and class.
func Decode(name string, data []byte) (v Value, n int, err error) {
	m := &machine{name: name, data: data}
	v, err = m.run()
	return v, m.at, err
}

func (m *machine) errorf(format string, args ...any) error {
	return exitcode.Errorf(exitcode.BadData, "%s: byte %d of the pickle: %s", m.name, m.op, fmt.Sprintf(format, args...))
}

func (m *machine) run() (Value, error) {
	if len(m.data) > maxPickle {
		return nil, m.errorf("the pickle has %d bytes; at most %d are allowed", len(m.data), maxPickle)
	}
	m.memo = map[uint64]Value{}
	for {
		m.op = m.at
		code, err := m.take(1)
		if err != nil {
			return nil, err
		}
		if code[0] == '.' {
			return m.pop()
		}
		act := opcodes[code[0]]
		if act == nil {
			return nil, m.errorf("the opcode 0x%02x is not supported", code[0])
		}
		if err := act(m); err != nil {
			return nil, err
		}
		if len(m.stack) > maxStack || m.objects > maxObjects || len(m.marks) > maxMarks || len(m.memo) > 2*maxObjects {
			return nil, m.errorf("the pickle is larger than that of any checkpoint: %d values on the stack, %d objects, %d marks", len(m.stack), m.objects, len(m.marks))
		}
	}
}

// take gives the next n bytes, which are the pickle's own memory.
func (m *machine) take(n uint64) ([]byte, error) {
	if n > uint64(len(m.data)-m.at) {
		return nil, m.errorf("the pickle ends too early: %d bytes are needed, but only %d are left", n, len(m.data)-m.at)
	}
	b := m.data[m.at : m.at+int(n)]
	m.at += int(n)
	return b, nil
}

// sized takes a little-endian length of width bytes and what it counts.
func (m *machine) sized(width uint64) ([]byte, error) {
	n, err := m.number(width)
	if err != nil {
		return nil, err
	}
	return m.take(n)
}

func (m *machine) number(width uint64) (uint64, error) {
	b, err := m.take(width)
	if err != nil {
		return 0, err
	}
	var wide [8]byte
	copy(wide[:], b)
	return binary.LittleEndian.Uint64(wide[:]), nil
}

func (m *machine) line() (string, error) {
	i := bytes.IndexByte(m.data[m.at:], '\n')
	if i < 0 {
		return "", m.errorf("the pickle ends too early: its last line does not end with a newline")
	}
	s := string(m.data[m.at : m.at+i])
	m.at += i + 1
	return strings.TrimSuffix(s, "\r"), nil
}

func (m *machine) push(v Value) error {
	m.stack = append(m.stack, v)
	return nil
}

// made pushes a container whose contents are known.
func (m *machine) made(v Value, depth int) error {
	m.objects++
	if depth > maxDepth {
		return m.errorf("containers are nested more than %d levels deep", maxDepth)
	}
	return m.push(v)
}

// floor is the height that pops must not go under.
func (m *machine) floor() int {
	if len(m.marks) == 0 {
		return 0
	}
	return m.marks[len(m.marks)-1]
}

func (m *machine) pop() (Value, error) {
	if len(m.stack) <= m.floor() {
		return nil, m.errorf("the opcode needs more values than are on the stack")
	}
	v := m.stack[len(m.stack)-1]
	m.stack = m.stack[:len(m.stack)-1]
	return v, nil
}

func (m *machine) top() (Value, error) {
	if len(m.stack) <= m.floor() {
		return nil, m.errorf("the opcode needs more values than are on the stack")
	}
	return m.stack[len(m.stack)-1], nil
}

// popMark takes everything above the last mark.
func (m *machine) popMark() ([]Value, error) {
	if len(m.marks) == 0 {
		return nil, m.errorf("the opcode needs a mark, but the stack has none")
	}
	from := m.floor()
	m.marks = m.marks[:len(m.marks)-1]
	items := append([]Value(nil), m.stack[from:]...)
	m.stack = m.stack[:from]
	return items, nil
}

func (m *machine) popN(n int) ([]Value, error) {
	if len(m.stack)-n < m.floor() {
		return nil, m.errorf("the opcode needs more values than are on the stack")
	}
	items := append([]Value(nil), m.stack[len(m.stack)-n:]...)
	m.stack = m.stack[:len(m.stack)-n]
	return items, nil
}

func (m *machine) get(key uint64) error {
	v, ok := m.memo[key]
	if !ok {
		return m.errorf("memo entry %d is used but was never stored", key)
	}
	return m.push(v)
}

func (m *machine) put(key uint64) error {
	v, err := m.top()
	if err != nil {
		return err
	}
	m.memo[key] = v
	return nil
}

func depthAbove(items ...Value) int {
	d := 0
	for _, v := range items {
		d = max(d, depthOf(v))
	}
	return d + 1
}

// grow keeps the depth of a container that gets more contents.
func (m *machine) grow(depth *int, items ...Value) error {
	if *depth = max(*depth, depthAbove(items...)); *depth > maxDepth {
		return m.errorf("containers are nested more than %d levels deep", maxDepth)
	}
	return nil
}

// integer reads a decimal line, with Python 2's bools and L.
func (m *machine) integer(text string) error {
	switch text {
	case "00":
		return m.push(false)
	case "01":
		return m.push(true)
	}
	text = strings.TrimSuffix(text, "L")
	if len(text) > maxLong {
		return m.errorf("an integer has %d digits; at most %d are allowed", len(text), maxLong)
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return m.push(n)
	}
	if n, ok := new(big.Int).SetString(text, 10); ok {
		return m.push(n)
	}
	return m.errorf("%.40q is not an integer", text)
}

// long pushes a two's complement integer.
func (m *machine) long(b []byte, err error) error {
	if err != nil {
		return err
	}
	if len(b) > maxLong {
		return m.errorf("an integer has %d bytes; at most %d are allowed", len(b), maxLong)
	}
	if len(b) == 0 {
		return m.push(int64(0))
	}
	back := make([]byte, len(b))
	for i := range b {
		back[len(b)-1-i] = b[i]
	}
	n := new(big.Int).SetBytes(back)
	if b[len(b)-1] >= 0x80 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	if n.IsInt64() {
		return m.push(n.Int64())
	}
	return m.push(n)
}

func (m *machine) float(b []byte, err error) error {
	if err != nil {
		return err
	}
	return m.push(math.Float64frombits(binary.BigEndian.Uint64(b)))
}
