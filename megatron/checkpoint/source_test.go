package checkpoint

import "testing"

// Claim (docs/checkpoints.md): formats have the names of Megatron's --ckpt-format, and older names are still read.
func TestFormatOf(t *testing.T) {
	for name, want := range map[string]Format{"torch": MegatronTorch, "torch_dist": MegatronTorchDist, "megatron-torch": MegatronTorch, "megatron-torch_dist": MegatronTorchDist, "hf": HF, "x": "x"} {
		if got := FormatOf(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}
