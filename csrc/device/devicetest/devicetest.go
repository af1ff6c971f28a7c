package devicetest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/drawn"
)

// Case is one call of one op.
type Case struct {
	Op   device.Op
	Name string // dtype, shape and options; unique within its op
	// Setup makes the tensors on e and returns the call, which may be repeated.
	Setup func(e *Env) func()
	Work  Work
}

// Work is what one call moves and computes at least.
type Work struct{ Bytes, FLOPs float64 }

var valueTypes = []device.DType{device.F32, device.BF16, device.F16}

// Cases is the complete table.
func Cases() []Case {
	var all []Case
	for _, family := range []func() []Case{
		matmulCases, lowRankCases, normCases, activationCases, ropeCases, attentionCases, pagedCases, embeddingCases,
		crossEntropyCases, sampleCases, dropoutCases, elementwiseCases, statsCases, exactCases, optimizerCases, muonCases, fp8Cases, routerCases, expertCases, leafCases, partCases, deltaCases,
	} {
		all = append(all, family()...)
	}
	return all
}

// Values compares every case on dev with ref. A subtest is op/case, so that
// -run 'Values/norm' picks one family.
func Values(t *testing.T, dev *device.Device) {
	oracle := ref.Open()
	defer oracle.Close()
	eachOp(t, func(t *testing.T, c Case) { compareWithRef(t, c, dev, oracle) })
}

// shared is the cases that the environment asks for. SHARE=n, for make test and for slow machines, is
// of every op a case of each kind and about one in n of the others, which SEED picks; else it is all.
func shared(t *testing.T) []Case {
	return sharedOf(t, Cases())
}

func sharedOf(t *testing.T, all []Case) []Case {
	kept := share(all, drawn.Share(), drawn.Seed(1))
	if len(kept) < len(all) {
		t.Logf("%d of %d cases, SHARE %d, SEED %d", len(kept), len(all), drawn.Share(), drawn.Seed(1))
	}
	return kept
}

// share is the first case of every op with each word of its name, such as a dtype or an option, and
// about one in n of the others; all for n below 2.
func share(cases []Case, n, seed uint64) []Case {
	if n < 2 {
		return cases
	}
	var kept []Case
	seen := map[string]bool{}
	for _, c := range cases {
		h := sha256.Sum256(fmt.Appendf(nil, "%d/%s/%s", seed, c.Op, c.Name))
		keep := binary.LittleEndian.Uint64(h[:])%n == 0
		for _, word := range append(kindsOf(c.Name), "") {
			if word = c.Op.String() + " " + word; !seen[word] {
				seen[word], keep = true, true
			}
		}
		if keep {
			kept = append(kept, c)
		}
	}
	return kept
}

// kindsOf are the words of a case's name but sizes: of "bf16 64x768 bias gelu" bf16, bias and gelu.
func kindsOf(name string) []string {
	return slices.DeleteFunc(strings.Fields(name), func(word string) bool { return word[0] >= '0' && word[0] <= '9' })
}

// Smallest compares one case of every op, as Values does: the first of its table.
func Smallest(t *testing.T, dev *device.Device) {
	oracle := ref.Open()
	defer oracle.Close()
	eachOpOnce(t, func(t *testing.T, cases []Case) { compareWithRef(t, cases[0], dev, oracle) })
}

// needsHost reports whether the case has a part that no kernel of a GPU has: a cap of scores, or a
// table of biases by key.
func (c *Case) needsHost(dev *device.Device) bool {
	return dev.IsGPU() && (strings.Contains(c.Name, " capped") || strings.Contains(c.Name, " biased"))
}

func compareWithRef(t *testing.T, c Case, dev, oracle *device.Device) {
	t.Helper()
	got, want := run(t, c, dev, oracle), run(t, c, oracle, oracle)
	for i, b := range want {
		if err := b.compare(got[i]); err != nil {
			t.Errorf("%s: %v", b.name, err)
		}
	}
}

// SameBits runs every case on pools of 1, 2 and 3 threads and compares all bytes.
func SameBits(t *testing.T, open func(pool *device.Pool) *device.Device) {
	oracle := ref.Open()
	defer oracle.Close()
	var devices []*device.Device
	for threads := 1; threads <= 3; threads++ {
		devices = append(devices, open(device.NewPool(threads)))
	}
	eachOp(t, func(t *testing.T, c Case) {
		one := run(t, c, devices[0], oracle)
		for threads, dev := range devices[1:] {
			for i, b := range run(t, c, dev, oracle) {
				if !bytes.Equal(b.after, one[i].after) {
					t.Errorf("%s differs between 1 and %d threads", b.name, threads+2)
				}
			}
		}
	})
}

func eachOp(t *testing.T, body func(t *testing.T, c Case)) { eachOf(t, shared(t), body) }

func eachOf(t *testing.T, cases []Case, body func(t *testing.T, c Case)) {
	byOp(t, cases, func(t *testing.T, cases []Case) {
		for _, c := range cases {
			t.Run(strings.ReplaceAll(c.Name, " ", "_"), func(t *testing.T) { body(t, c) })
		}
	})
}

func eachOpOnce(t *testing.T, body func(t *testing.T, cases []Case)) { byOp(t, Cases(), body) }

// byOp has a subtest an op, given its cases.
func byOp(t *testing.T, cases []Case, body func(t *testing.T, cases []Case)) {
	of := map[device.Op][]Case{}
	for _, c := range cases {
		of[c.Op] = append(of[c.Op], c)
	}
	for op := range device.Ops {
		t.Run(op.String(), func(t *testing.T) { body(t, of[op]) })
	}
}

// run does the case once on dev and returns its buffers, in the order made; it skips a case that dev refuses.
func run(t *testing.T, c Case, dev, oracle *device.Device) []buffer {
	t.Helper()
	if c.needsHost(dev) {
		t.Skip("a GPU refuses this by name")
	}
	e := newEnv(dev, oracle, fmt.Sprint(c.Op, c.Name))
	defer e.scope.Release()
	c.Setup(e)()
	e.collect()
	if err := dev.Sync(); err != nil {
		t.Fatalf("%s: %v", dev.Name, err)
	}
	return e.buffers
}
