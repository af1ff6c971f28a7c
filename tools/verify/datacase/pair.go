package datacase

import (
	"slices"

	"monotron/dataset"
	"monotron/internal/exitcode"
)

// checkPair reads a pair, compares it with the case, and writes it again, which
// must give the same bytes.
func checkPair(prefix, again string, c datasetCase) (l list) {
	x, err := dataset.Open(prefix)
	if err != nil {
		l.add("%v", err)
		return l
	}
	defer x.Close()
	// What the index says.
	same(&l, "dtype", x.DType().String(), c.DType)
	same(&l, "sequences", x.Len(), c.Sequences)
	same(&l, "documents", x.Documents(), c.Documents)
	same(&l, "tokens", x.Tokens(), c.Tokens)
	b, err := dataset.NewBuilder(again, x.DType())
	if err != nil {
		l.add("%v", err)
		return l
	}
	defer b.Abort()
	// Every document, read and written again.
	var lengths, bounds, ids []int64
	bounds = append(bounds, 0)
	for d := int64(0); d < x.Documents(); d++ {
		first, end := x.Document(d)
		var tokens, sizes []int32
		for i := first; i < end; i++ {
			sequence, err := x.Sequence(i)
			if err != nil {
				l.add("%v", err)
				return l
			}
			tokens, sizes = append(tokens, sequence...), append(sizes, int32(len(sequence)))
		}
		for _, n := range sizes {
			lengths = append(lengths, int64(n))
		}
		for _, t := range tokens {
			ids = append(ids, int64(t))
		}
		bounds = append(bounds, end)
		if err := b.AddDocument(tokens, sizes); err != nil {
			l.add("%v", err)
			return l
		}
	}
	// The beginnings that the case lists; then the bytes of both files.
	for _, part := range []struct {
		name      string
		got, want []int64
	}{{"lengths", lengths, c.Lengths}, {"document boundaries", bounds, c.Bounds}, {"ids", ids, c.IDs}} {
		if n := len(part.want); n > len(part.got) || !slices.Equal(part.got[:n], part.want) {
			l.add("the first %s differ", part.name)
		}
	}
	if err := b.Finalize(); err != nil {
		l.add("%v", err)
	}
	checkFile(&l, again+".bin", c.Bin.SHA256)
	checkFile(&l, again+".idx", c.Idx.SHA256)
	return l
}

func checkFile(l *list, path, sha string) {
	data, err := exitcode.ReadFile(path, maxCase)
	if err != nil {
		l.add("%v", err)
	}
	same(l, path, hashBytes(data), sha)
}
