package dataset

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
)

// The arrays of a blend, those of its members among them, are one file of the cache folder: Megatron's form has a dozen
// for each member. The file is a header (blendHeader), then each array at a multiple of blendAlign. The header
// follows from the descriptions and lengths of the data, so that a file of other data, or of another size, is none.

const (
	blendMagic = "MTBLEND\x01"
	blendAlign = 64
)

// arrays are those of the members, then the blend's own, in the order of the file.
func (b *Blended) arrays() (list []*Array) {
	for _, m := range b.Members {
		list = append(list, &m.DocumentIndex, &m.SampleIndex, &m.ShuffleIndex)
	}
	return append(list, &b.DatasetIndex, &b.DatasetSampleIndex)
}

// shapes are the arrays without their content, from the plans.
func (b *Blended) shapes() (list []Array) {
	for _, m := range b.Members {
		p := m.plan
		list = append(list,
			Array{DType: "<i4", Shape: []int64{p.epochs * (m.End - m.First)}},
			Array{DType: m.sampleType(), Shape: []int64{p.samples + 1, 2}},
			Array{DType: shuffleType(p.samples), Shape: []int64{p.samples}})
	}
	n := b.length()
	list = append(list, Array{DType: "<i2", Shape: []int64{n}}, Array{DType: "<i8", Shape: []int64{n}})
	for i := range list {
		list[i].width = int(width(list[i].DType))
	}
	return list
}

// blendHeader is the file's header: magic, the description's MD5, the number of arrays, then of each its type, shape and
// position. at are the positions, with the file's end.
func (b *Blended) blendHeader(shapes []Array) (header []byte, at []int64) {
	const perArray = 4 + 3*8
	header = append(append([]byte(blendMagic), b.Hash...), binary.LittleEndian.AppendUint64(nil, uint64(len(shapes)))...)
	end := aligned(int64(len(header) + perArray*len(shapes)))
	for _, a := range shapes {
		at = append(at, end)
		second := int64(0)
		if len(a.Shape) > 1 {
			second = a.Shape[1]
		}
		header = append(append(header, a.DType...), 0)
		for _, v := range []int64{a.Shape[0], second, end} {
			header = binary.LittleEndian.AppendUint64(header, uint64(v))
		}
		end += a.bytes()
		if len(at) < len(shapes) {
			end = aligned(end)
		}
	}
	return header, append(at, end)
}

func aligned(n int64) int64 { return (n + blendAlign - 1) / blendAlign * blendAlign }

// blendPath is the file of b's arrays, "" for none: only a folder of its own has files of blends.
func (c *cache) blendPath(b *Blended) string {
	if c.path == "" || c.none {
		return ""
	}
	return cacheFile(c.path, b.Hash, "BlendedDataset", b.Split, "arrays.bin")
}

// loadArrays takes all arrays of b from its file: true when it is there and fits the data.
func (c *cache) loadArrays(b *Blended, say func(string)) bool {
	path := c.blendPath(b)
	if !c.mapArrays(b, path) {
		return false
	}
	fits := false
	err := Guard("the cached blend "+path, func() error {
		fits = b.fitsMembers(b.length())
		for _, m := range b.Members {
			fits = fits && m.fitsData(m.plan, c.older(m, path))
		}
		return nil
	})
	switch {
	case err != nil:
		say(err.Error() + "; the cached files are rebuilt")
	case !fits:
		say("the cached blend " + path + " does not match the current data; the cached files are rebuilt")
	}
	return err == nil && fits
}

// mapArrays maps a file as the arrays of b; false: it is not there, or not that of b. The mapping lives as long as the process.
func (c *cache) mapArrays(b *Blended, path string) bool {
	file, err := openBlob(path, true)
	if err != nil {
		return false
	}
	shapes := b.shapes()
	header, at := b.blendHeader(shapes)
	same := file.size == at[len(at)-1] && Guard(path, func() error {
		if !bytes.Equal(file.data[:len(header)], header) {
			return io.ErrUnexpectedEOF
		}
		return nil
	}) == nil
	if !same {
		_ = file.close() // nothing was written
		return false
	}
	for i, a := range b.arrays() {
		*a = shapes[i]
		a.Data = file.data[at[i] : at[i]+shapes[i].bytes()]
	}
	return true
}

// buildArrays builds all arrays of b into its file, one member after the other, so that no more than a member's are in
// memory, and maps it.
func (c *cache) buildArrays(b *Blended, path string) error {
	if err := os.MkdirAll(c.path, 0o755); err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	if err := atomicfile.Write(path, 0o666, func(f *os.File) error { return c.fillArrays(b, f) }); err != nil {
		return err
	}
	if !c.mapArrays(b, path) {
		return exitcode.Errorf(exitcode.IO, "%s was written but cannot be read; choose another --data-cache-path", path)
	}
	return nil
}

// WriteMegatron writes the arrays of b and its members into a folder as Megatron-LM keeps them.
func (b *Blended) WriteMegatron(dir string) error {
	c := &cache{path: dir}
	for _, m := range b.Members {
		if err := c.store(m); err != nil {
			return err
		}
	}
	return writeArrays(dir, b.Hash, "BlendedDataset", b.Split, b.DescriptionJSON(), map[string]Array{
		"dataset_index.npy":        b.DatasetIndex,
		"dataset_sample_index.npy": b.DatasetSampleIndex,
	})
}

// fillArrays builds the arrays of b into a file.
func (c *cache) fillArrays(b *Blended, f *os.File) error {
	header, at := b.blendHeader(b.shapes())
	if _, err := f.Write(header); err != nil {
		return err
	}
	list := b.arrays()
	write := func(first int) error {
		for i := first; i < min(first+3, len(list)); i++ {
			if _, err := f.WriteAt(list[i].Data, at[i]); err != nil {
				return err
			}
			*list[i] = Array{}
		}
		return nil
	}
	for i, m := range b.Members {
		if err := m.fill(c); err != nil {
			return err
		}
		if err := write(3 * i); err != nil {
			return err
		}
	}
	if err := b.build(c); err != nil {
		return err
	}
	return write(3 * len(b.Members))
}
