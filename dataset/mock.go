package dataset

import "fmt"

// mockSequences is the size of Megatron's mock dataset (--mock-data).
const mockSequences = 100000

// mock is a source without files: sequences of random lengths holding 1, 2, 3, ...
// modulo the vocabulary, with an EOD at the end.
type mock struct {
	lengths []int32
	vocab   int64
	eod     int32
}

func newMock(vocab int, eod int32) *mock {
	return &mock{lengths: MockLengths(), vocab: int64(vocab), eod: eod}
}

// MockLengths is the number of tokens of each mock sequence.
func MockLengths() []int32 {
	lengths, rng := make([]int32, mockSequences), newPCG64Zero()
	for i := range lengths {
		lengths[i] = 1 + int32(rng.below(4095))
	}
	return lengths
}

func (m *mock) Len() int64         { return mockSequences }
func (m *mock) Size(i int64) int64 { return int64(m.lengths[i]) }
func (m *mock) Longest() int64     { return 4095 }

func (m *mock) Slice(i, off, n int64, dst []int32) ([]int32, error) {
	for j := off; j < off+n; j++ {
		if j == m.Size(i)-1 {
			dst = append(dst, m.eod)
		} else {
			dst = append(dst, int32((j+1)%m.vocab))
		}
	}
	return dst, nil
}

func (m *mock) Where(i, off int64) string {
	return fmt.Sprintf("mock data, sequence %d, token %d", i, off)
}
