package devicetest

import (
	"bytes"
	"strings"
	"testing"
	"unsafe"

	"monotron/csrc/device"
	"monotron/csrc/ref"
)

// Refusals gives every op values that its enumerations do not have: each must be refused
// by name, with nothing done. It closes dev.
func Refusals(t *testing.T, dev *device.Device) {
	oracle := ref.Open()
	defer oracle.Close()
	s := &spoiler{t: t}
	spoiled := dev.Through(func(b device.Backend) device.Backend {
		s.Backend = b
		return s
	})
	defer spoiled.Close()
	eachOpOnce(t, func(t *testing.T, cases []Case) {
		s.t, s.tried = t, 0
		for _, c := range cases[:min(len(cases), 40)] {
			if c.needsHost(dev) { // it is refused for another reason than what is spoiled
				continue
			}
			s.op = c.Op
			for _, b := range run(t, c, spoiled, oracle) {
				if s.tried > 0 && !bytes.Equal(b.before, b.after) {
					t.Fatalf("%s: a refused call has written %s", c.Name, b.name)
				}
			}
		}
		if s.tried == 0 {
			t.Error("no case has called it")
		}
	})
}

// spoiler puts unknown values into the calls of one op, one at a time, and never the
// call as it was.
type spoiler struct {
	device.Backend
	t     *testing.T
	op    device.Op
	tried int
}

// Values that no enumeration has: the next one of the longest, and what lies outside.
var unknown = []int32{int32(device.DTypes), 31, 32, 1 << 20, -1}

func (s *spoiler) Run(op device.Op, args unsafe.Pointer) error {
	if op != s.op {
		return s.Backend.Run(op, args)
	}
	for _, e := range op.Enumerations(args) {
		known := *e.Value
		for _, *e.Value = range unknown {
			err := s.Backend.Run(op, args)
			if err == nil || !strings.Contains(err.Error(), op.String()) || !strings.Contains(err.Error(), e.Name) {
				s.t.Errorf("%s %d: %v; want a refusal that names both", e.Name, *e.Value, err)
			}
			s.tried++
		}
		*e.Value = known
	}
	return nil
}
