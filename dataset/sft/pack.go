package sft

import (
	"slices"
)

// pack makes samples of documents; each is the numbers of documents, in order. Documents that
// are longer than a sample are cut into more of them for PackBFDSplit.
func pack(docs []Document, c Config) ([]Document, [][]int32) {
	switch c.Packing {
	case PackBFD, PackBFDSplit:
		if c.Packing == PackBFDSplit {
			docs = split(docs, c.Length)
		}
		return docs, bestFit(docs, c.Length)
	case PackInOrder:
		return docs, inOrder(docs, c.Length)
	}
	packs := make([][]int32, len(docs))
	for i := range packs {
		packs[i] = []int32{int32(i)}
	}
	return docs, packs
}

// split cuts documents into pieces of n tokens; a piece without learned tokens is dropped.
func split(docs []Document, n int) (out []Document) {
	for _, d := range docs {
		for from := 0; from < len(d.IDs); from += n {
			to := min(from+n, len(d.IDs))
			piece := Document{IDs: d.IDs[from:to:to], Learn: within(d.Learn, from, to), Line: d.Line, Length: d.Length}
			if piece.Learned() > 0 {
				out = append(out, piece)
			}
		}
	}
	return out
}

// horizon is how many documents are packed together; TRL packs the rows of one batch of its
// data library's map.
const horizon = 1000

// bestFit goes through the documents by length, the longest first, and puts each in the open
// sample with the least space that suffices, of equal ones the first opened.
func bestFit(docs []Document, length int) (packs [][]int32) {
	for from := 0; from < len(docs); from += horizon {
		to := min(from+horizon, len(docs))
		order := make([]int32, to-from)
		for i := range order {
			order[i] = int32(from + i)
		}
		slices.SortStableFunc(order, func(a, b int32) int { return len(docs[b].IDs) - len(docs[a].IDs) })
		packs = append(packs, fill(docs, order, length)...)
	}
	return packs
}

// fill is bestFit for documents in that order. open has the samples by the space they have left,
// each in the order in which they came to it.
func fill(docs []Document, order []int32, length int) (packs [][]int32) {
	open := make([][]int, length+1)
	for _, doc := range order {
		n := len(docs[doc].IDs)
		space := n
		for space <= length && len(open[space]) == 0 {
			space++
		}
		if space > length {
			packs = append(packs, []int32{doc})
			open[length-n] = append(open[length-n], len(packs)-1)
			continue
		}
		bin := open[space][0]
		open[space] = open[space][1:]
		packs[bin] = append(packs[bin], doc)
		open[space-n] = append(open[space-n], bin)
	}
	return packs
}

// inOrder keeps the order of the file.
func inOrder(docs []Document, length int) (packs [][]int32) {
	left := 0
	for i, d := range docs {
		if n := len(d.IDs); n <= left {
			packs[len(packs)-1] = append(packs[len(packs)-1], int32(i))
			left -= n
		} else {
			packs, left = append(packs, []int32{int32(i)}), length-n
		}
	}
	return packs
}
