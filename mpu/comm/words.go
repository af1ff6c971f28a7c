package comm

import (
	"bytes"
	"strings"

	"monotron/csrc/device"
)

// wordBytes is a rank's text as it travels, filled up with zeros; longer ones are cut.
const wordBytes = 256

// Words gives everybody the text of each rank of g, by rank. All call it together. Who
// is alone asks nobody.
func Words(g *Group, d *device.Device, mine string) ([]string, error) {
	if g.Size() == 1 {
		return []string{mine}, nil
	}
	s := d.Arena.Scope(device.Communication)
	defer s.Release()
	in, out := s.Alloc(device.I32, wordBytes/4), s.Alloc(device.I32, int64(g.Size()), wordBytes/4)
	raw := make([]byte, out.Bytes())
	copy(raw[:wordBytes-1], mine)
	d.Write(in, raw[:wordBytes])
	if err := g.AllGather(out, in).Wait(); err != nil {
		return nil, err
	}
	d.Read(raw, out)
	if err := d.Sync(); err != nil {
		return nil, err
	}
	all := make([]string, g.Size())
	for rank := range all {
		if all[rank] = mine; d.Counts() { // nothing has travelled: the others are taken to say the same
			continue
		}
		text, _, _ := bytes.Cut(raw[rank*wordBytes:][:wordBytes], []byte{0})
		all[rank] = strings.ToValidUTF8(string(text), "")
	}
	return all, nil
}
