package gguf

// The k-quants: blocks of 256 elements in groups of 16 or 32, each with a scale
// (and a minimum) of its own, of 4 to 8 bits, times those of the block.

func decodeQ2_K(dst []float32, b []byte) {
	scales, q, d, least := b[:16], b[16:80], half(b[80:]), half(b[82:])
	for i := range dst {
		part, at := i/128, i%128 // 32 bytes hold 128 elements, two bits each
		sc := scales[i/16]
		code := q[part*32+at%32] >> (at / 32 * 2) & 3
		dst[i] = d*float32(sc&15)*float32(code) - least*float32(sc>>4)
	}
}

func decodeQ3_K(dst []float32, b []byte) {
	high, q, packed, d := b[:32], b[32:96], b[96:108], half(b[108:])
	for i := range dst {
		part, at := i/128, i%128
		code := int(q[part*32+at%32] >> (at / 32 * 2) & 3)
		if high[at%32]>>(i/32)&1 == 0 {
			code -= 4
		}
		dst[i] = d * float32(scaleOf3(packed, i/16)-32) * float32(code)
	}
}

// scaleOf3 is scale j of the 16 of a Q3_K block: four bits in the first eight
// bytes, two more in the last four.
func scaleOf3(packed []byte, j int) int {
	low := packed[j%8] >> (j / 8 * 4) & 15
	high := packed[8+j%4] >> (j / 4 * 2) & 3
	return int(low | high<<4)
}

// scaleAndLeast are group j's of the eight of a Q4_K or Q5_K block, six bits each.
func scaleAndLeast(packed []byte, j int) (scale, least float32) {
	if j < 4 {
		return float32(packed[j] & 63), float32(packed[j+4] & 63)
	}
	return float32(packed[j+4]&15 | packed[j-4]>>6<<4), float32(packed[j+4]>>4 | packed[j]>>6<<4)
}

func decodeQ4_K(dst []float32, b []byte) {
	d, least, packed, q := half(b), half(b[2:]), b[4:16], b[16:]
	for j := range 8 {
		scale, m := scaleAndLeast(packed, j)
		for l := range 32 {
			code := q[j/2*32+l] >> (j % 2 * 4) & 15
			dst[j*32+l] = d*scale*float32(code) - least*m
		}
	}
}

func decodeQ5_K(dst []float32, b []byte) {
	d, least, packed, high, q := half(b), half(b[2:]), b[4:16], b[16:48], b[48:]
	for j := range 8 {
		scale, m := scaleAndLeast(packed, j)
		for l := range 32 {
			code := q[j/2*32+l]>>(j%2*4)&15 | high[l]>>j&1<<4
			dst[j*32+l] = d*scale*float32(code) - least*m
		}
	}
}

func decodeQ6_K(dst []float32, b []byte) {
	low, high, scales, d := b[:128], b[128:192], b[192:208], half(b[208:])
	for i := range dst {
		part, at := i/128, i%128
		code := low[part*64+at%64]>>(at/64*4)&15 | high[part*32+at%32]>>(at/32*2)&3<<4
		dst[i] = d * float32(int8(scales[i/16])) * float32(int(code)-32)
	}
}
