package device

import (
	"strings"
	"testing"
	"unsafe"
)

// Claim (known.go): tensors have the dtypes that their tags allow, those of the value
// dtype all the same one; the refusal says which.
func TestRefusalsOfDTypes(t *testing.T) {
	cpu := &Known{DTypes: 1<<DTypes - 1, Values: SetOf(F32, BF16, F16), NormKind: SetOf(LayerNormKind, RMSNormKind), Epilogue: SetOf(NoEpilogue)}
	oracle := *cpu
	oracle.Values |= SetOf(F64)
	of := func(d DType) Tensor { return View(nil, d, 2, 2) }
	product := func(c, a, b DType) (Op, unsafe.Pointer) {
		return OpMatmul, unsafe.Pointer(&MatmulArgs{C: of(c), A: of(a), B: of(b)})
	}
	norm := func(x, gamma, rstd DType) (Op, unsafe.Pointer) {
		return OpNormForward, unsafe.Pointer(&NormForwardArgs{Y: of(x), X: of(x), Gamma: of(gamma), Rstd: of(rstd), Kind: RMSNormKind})
	}
	stats := func(out, x, _ DType) (Op, unsafe.Pointer) {
		return OpGradStats, unsafe.Pointer(&GradStatsArgs{Out: of(out), X: of(x)})
	}
	add := func(out, a, b DType) (Op, unsafe.Pointer) {
		return OpAdd, unsafe.Pointer(&AddArgs{Out: of(out), A: of(a), B: of(b)})
	}
	copied := func(dst, src, _ DType) (Op, unsafe.Pointer) {
		return OpCopy, unsafe.Pointer(&CopyArgs{Dst: of(dst), Src: of(src)})
	}
	for _, c := range []struct {
		by   *Known
		call func(x, y, z DType) (Op, unsafe.Pointer)
		with [3]DType
		want string // "": it is done
	}{
		{cpu, product, [3]DType{BF16, BF16, BF16}, ""},
		{cpu, product, [3]DType{F32, BF16, BF16}, ""},
		{cpu, product, [3]DType{BF16, F32, F32}, "matmul: C is bf16[2 2]; this device accepts f32, f64"},
		{cpu, product, [3]DType{F32, BF16, F16}, "matmul: B is f16[2 2]; this device accepts bf16"},
		{cpu, product, [3]DType{F64, F64, F64}, "matmul: A is f64[2 2]; this device accepts f32, bf16, f16"},
		{&oracle, product, [3]DType{F64, F64, F64}, ""},
		{cpu, norm, [3]DType{F16, F16, F32}, ""},
		{cpu, norm, [3]DType{F16, F32, F32}, "Gamma is f32[2 2]; this device accepts f16"},
		{cpu, norm, [3]DType{F16, F16, F64}, "Rstd is f64[2 2]; this device accepts f32"},
		{&oracle, norm, [3]DType{F64, F64, F64}, ""},
		{cpu, stats, [3]DType{F64, F64, 0}, ""},
		{cpu, stats, [3]DType{F64, I32, 0}, "X is i32[2 2]; this device accepts f32, bf16, f16, f64"},
		{cpu, stats, [3]DType{F32, F32, 0}, "Out is f32[2 2]; this device accepts f64"},
		{cpu, add, [3]DType{F32, BF16, F16}, ""},
		{cpu, add, [3]DType{F32, I32, F32}, "add: A is i32[2 2]; this device accepts f32, bf16, f16"},
		{cpu, copied, [3]DType{F64, U16, 0}, ""},
		{cpu, copied, [3]DType{F64, DTypes, 0}, "copy: Src is dtype(8)[2 2]"},
	} {
		op, args := c.call(c.with[0], c.with[1], c.with[2])
		err := c.by.Refusal(op, args)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %v: %v; want %q", op, c.with, err, c.want)
		}
	}
	if err := cpu.Refusal(Ops, nil); err == nil {
		t.Error("an op that there is not was taken")
	}
}
