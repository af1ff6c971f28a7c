package golden

import "testing"

// Models are the cases of golden/model whose config.json the program does not
// read yet, each with what it lacks. Who adds a family takes its cases out.
var Models = Later{
	"lfm2":       "convolutions",
	"qwen3-next": "linear attention",
}

// Lines are the cases of golden/model whose command lines do not parse yet.
var Lines = Later{
	"megatron-mla-moe-mtp-1-ep2":             "latent attention, multi-token prediction",
	"megatron-mla-moe-mtp-1-pp2":             "latent attention, multi-token prediction",
	"megatron-mla-moe-mtp-1-tp2-sp-ep2-etp1": "latent attention, multi-token prediction",
	"megatron-mtp-1-cp2":                     "multi-token prediction",
	"megatron-mtp-1-dp2-zero1":               "multi-token prediction",
	"megatron-mtp-1-pp2":                     "multi-token prediction",
	"megatron-mtp-1-tied-pp2":                "multi-token prediction",
	"megatron-mtp-1-tp2":                     "multi-token prediction",
	"megatron-mtp-1-tp2-sp":                  "multi-token prediction",
	"megatron-mtp-2-cp2":                     "multi-token prediction",
	"megatron-mtp-2-detach-tp2-sp":           "multi-token prediction",
	"megatron-mtp-2-pp2":                     "multi-token prediction",
	"megatron-mtp-2-repeated-pp2":            "multi-token prediction",
	"megatron-mtp-2-tp2":                     "multi-token prediction",
	"megatron-mtp-2-tp2-sp":                  "multi-token prediction",
	"mla-moe-mtp-1":                          "latent attention, multi-token prediction",
	"mtp-1":                                  "multi-token prediction",
	"mtp-1-tied":                             "multi-token prediction",
	"mtp-2":                                  "multi-token prediction",
	"mtp-2-detach":                           "multi-token prediction",
	"mtp-2-per-token":                        "multi-token prediction",
	"mtp-2-repeated":                         "multi-token prediction",
}

// Later is cases by name, each with what the program lacks for it.
type Later map[string]string

// Failed tells whether a case ended in err, as one of the list must and no other
// may: a case that is ahead of the list is a failure too.
func (l Later) Failed(t testing.TB, name string, err error) bool {
	t.Helper()
	switch lacks, listed := l[name]; {
	case err != nil && !listed:
		t.Errorf("%s: %v", name, err)
	case err == nil && listed:
		t.Errorf("%s works now: take it (%q) out of the list in package golden", name, lacks)
	}
	return err != nil
}

// Seen fails on a case of the list that is none of those found.
func (l Later) Seen(t testing.TB, found map[string]bool) {
	t.Helper()
	for name := range l {
		if !found[name] {
			t.Errorf("the list in package golden names %s, which is not a case", name)
		}
	}
}
