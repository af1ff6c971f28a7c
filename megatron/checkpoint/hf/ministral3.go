package hf

import (
	"encoding/json"

	"monotron/megatron/spec"
)

// Ministral 3: Llama whose queries grow with the position.

func ministral3Absent(f *fields) {
	f.KVHeads, f.HeadDim, f.MaxPositions, f.RMSNormEps = number(8), number(128), number(262144), decimal(1e-5)
}

// ministral3Rope is what its class has where rope_parameters are absent.
const ministral3Rope = `{"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16384, "beta_fast": 32.0, "beta_slow": 1.0,
	"mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1}`

// ropeOfClass sets the rotary parameters of a class, as JSON, where a config.json has none.
func (c *reading) ropeOfClass(f *fields, parameters string) {
	if f.RopeParameters != nil || f.RopeScaling != nil {
		return
	}
	f.RopeParameters = &rope{}
	if err := json.Unmarshal([]byte(parameters), f.RopeParameters); err != nil {
		c.fail("%v", err)
	}
}

func (c *reading) ministral3(f *fields) {
	m := c.Model
	c.ropeOfClass(f, ministral3Rope)
	r := f.RopeParameters
	if r == nil || r.byType != nil || r.Growth == nil || r.OriginalMax < 1 {
		c.fail("rope_parameters must have llama_4_scaling_beta and original_max_position_embeddings, by which this family scales queries")
		return
	}
	c.decoder(f, false)
	if f.SlidingWindow != nil {
		c.windows("sliding_window", f.SlidingWindow, repeated(m.NumLayers, true))
	}
	if beta := *r.Growth; beta != 0 {
		m.QueryGrowth, m.QueryGrowthFrom, m.QueryGrowthAll = c.positive("llama_4_scaling_beta", &beta, 0.1), r.OriginalMax, true
	}
}

func ministral3Config(c map[string]any, m *spec.Model, positions int) {
	decoderConfig(c, m, positions)
	c["sliding_window"] = nil
	if m.WindowLeft >= 0 {
		c["sliding_window"] = m.WindowLeft + 1
	}
	parameters, ok := c["rope_parameters"].(map[string]any)
	if !ok {
		return
	}
	parameters["llama_4_scaling_beta"] = real(m.QueryGrowth)
	if parameters["original_max_position_embeddings"] == nil {
		parameters["original_max_position_embeddings"] = max(1, m.QueryGrowthFrom)
	}
	delete(c, "rope_scaling") // without the growth: transformers 4 has no such class
	delete(c, "rope_theta")
}
