package hf

// quantization is what config.json says of weights that are quantised.
type quantization struct {
	Method string `json:"quant_method"`

	In4Bit bool   `json:"load_in_4bit"` // bitsandbytes
	In8Bit bool   `json:"load_in_8bit"`
	Type   string `json:"bnb_4bit_quant_type"`

	BlockSize []int64 `json:"weight_block_size"` // fp8: rows and columns; nil: a scale for the complete weight
	Format    string  `json:"fmt"`
	Experts   string  `json:"expert_dtype"`
}

// kind is NF4, Int8, FP8, MXFP4 or "": none of them.
func (q *quantization) kind() string {
	switch {
	case q == nil:
	case q.Method == FP8, q.Method == MXFP4:
		return q.Method
	case q.Method != "bitsandbytes":
	case q.In4Bit && q.Type == "nf4":
		return NF4
	case q.In8Bit:
		return Int8
	}
	return ""
}

// quantization takes what config.json says of quantised weights.
func (c *reading) quantization(f *fields) {
	q := f.Quantization
	if q == nil {
		return
	}
	if c.Quantization, c.Blocks = q.kind(), q.BlockSize; c.Quantization == "" {
		c.fail("quantization_config: quant_method %q is not supported; the supported methods are fp8, mxfp4, and nf4 and int8 of bitsandbytes; convert the weights to float first (transformers: model.dequantize())", q.Method)
	}
	for ours, theirs := range torchTypes {
		if said := `"` + theirs + `"`; said == string(f.DType) || f.DType == nil && said == string(f.TorchDType) {
			c.DType = ours
		}
	}
	switch c.Quantization {
	case FP8:
		c.fp8(q)
	case MXFP4:
		if c.Family != GPTOSS {
			c.fail("quantization_config: quant_method mxfp4 in a %s model is not supported; it is supported only in gpt_oss models", c.Family)
		}
	}
}

// fp8 checks the settings of 8-bit floats.
func (c *reading) fp8(q *quantization) {
	if b := q.BlockSize; b != nil && (len(b) != 2 || min(b[0], b[1]) < 1 || max(b[0], b[1]) > maxSize) {
		c.fail("quantization_config: weight_block_size is %v; it must be null, or two numbers of at least 1: the rows and columns of a block", b)
	}
	if q.Format != "" && q.Format != "e4m3" {
		c.fail("quantization_config: fmt %q is not supported; it must be e4m3", q.Format)
	}
	if q.Experts != "" && q.Experts != FP8 {
		c.fail("quantization_config: expert_dtype %q is not supported; it must be fp8", q.Experts)
	}
}
