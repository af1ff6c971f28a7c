package hf

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// earlier says what families without a row have, for docs/models.md.
var earlier = map[string]string{
	GPT2: "learned positions", GPTNeo: "learned positions, a window in every other layer, scores without a factor", GPTNeoX: "attention and MLP in parallel, partial RoPE",
	Bloom: "ALiBi, a norm of embeddings", Llama: "RMSNorm, RoPE, SwiGLU, grouped queries", Mistral: "a window", Mixtral: "experts", Qwen2: "biases of QKV, windows by layer",
	Qwen3: "norms of each query and key head", Olmo2: "norms of outputs, norms of all heads of queries and of keys together", Phi3: "fused rows, partial RoPE, LongRoPE", SmolLM3: "layers without RoPE",
	Starcoder2: "LayerNorm, biases, plain MLP", Qwen2MoE: "experts, a gated shared expert", Qwen3MoE: "experts, norms of each query and key head", OLMoE: "experts, norms of all heads of queries and of keys together",
	GLM4MoE: "experts chosen by sigmoid scores with a bias, shared experts, partial RoPE",
}

// Markdown is the table of families for docs/models.md.
func Markdown() string {
	var b strings.Builder
	fmt.Fprintln(&b, "| `model_type` | transformers' class | parts | refused |\n|---|---|---|---|")
	lines := map[string]string{}
	for family, about := range earlier {
		lines[family] = fmt.Sprintf("| `%s` | %s | %s | |\n", family, architectures[family], about)
	}
	for family, r := range rows {
		lines[family] = fmt.Sprintf("| `%s` | %s | %s | %s |\n", family, r.architecture, r.about, r.refused)
	}
	for _, family := range slices.Sorted(maps.Keys(lines)) {
		b.WriteString(lines[family])
	}
	return b.String()
}
