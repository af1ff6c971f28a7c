package arguments

import (
	"strings"
	"testing"
)

// Claim: multi-token prediction is refused by name where it cannot be, and in a layout stands
// with the output layer.
func TestMTPWithOtherFlags(t *testing.T) {
	const rope = "--position-embedding-type rope --num-experts 4 --moe-router-topk 2 --mtp-num-layers 2 "
	for add, want := range map[string]string{
		"--mtp-num-layers 1":                  "cannot be combined with learned positions",
		rope + "--embed-layernorm":            "cannot be combined with --embed-layernorm",
		rope + "--moe-use-upcycling --load x": "cannot be combined with --moe-use-upcycling",
		rope + "--lora-rank 4":                "cannot be combined with an adapter",
		rope + "--mtp-hsm":                    "like the decoder's last",
		rope + "--mtp-use-repeated-layer --moe-router-load-balancing-type global_aux_loss --moe-aux-loss-coeff 0.01": "which counts tokens once per micro-batch",
		rope + "--world-size 2 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Ett|ttL":            "has 0 layers of multi-token prediction (m), but --mtp-num-layers is 2",
		rope + "--world-size 2 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Ettmm|ttL":          "end the layout with mmL",
	} {
		_, _, err := ParseWith(everything, append(baseline(), strings.Fields(add)...))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", add, err, want)
		}
	}
	line := strings.Fields(rope + "--mtp-use-repeated-layer --world-size 2 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Ettt|tm*2L --mtp-loss-scaling-factor 0.3")
	c, _, err := ParseWith(everything, append(baseline(), line...))
	if err != nil || c.Model.MTP == nil || c.Model.MTP.LossScale != 0.3 || c.Model.AllLayers() != c.Model.NumLayers+1 {
		t.Errorf("%+v, %v", c.Model.MTP, err)
	}
	c, report, err := ParseWith(Options{Layouts: true, Experts: true}, append(baseline(), "--mtp-detach-heads"))
	if err != nil || c.Model.MTP != nil || len(report.Notices) == 0 || !strings.Contains(strings.Join(report.Notices, " "), "--mtp-detach-heads: the flag has no effect without --mtp-num-layers") {
		t.Errorf("%+v, %q, %v", c.Model.MTP, report.Notices, err)
	}
}
