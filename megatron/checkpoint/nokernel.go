//go:build !cgo || !amd64

package checkpoint

// finiteBytes is how many bytes, from the first on, surely hold no element whose
// exponent is all ones.
func finiteBytes(raw []byte, e exponent) int {
	const stride = 32
	at := 0
	for ; at+stride <= len(raw); at += stride {
		p := raw[at : at+stride : at+stride]
		found := (le.Uint64(p)&e.word + e.low) | (le.Uint64(p[8:])&e.word + e.low) | (le.Uint64(p[16:])&e.word + e.low) | (le.Uint64(p[24:])&e.word + e.low)
		if found&e.sign != 0 {
			break
		}
	}
	return at
}
