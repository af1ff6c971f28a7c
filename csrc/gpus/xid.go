package gpus

// xids are the errors that end training runs most, by NVIDIA's catalogue of Xid
// messages.
var xids = map[uint64]string{
	13:  "a kernel made an illegal access or instruction",
	31:  "a kernel accessed memory that is not mapped",
	43:  "a kernel was stopped by the driver",
	45:  "work was discarded after an earlier fault",
	48:  "a memory error that could not be corrected: reset the GPU",
	61:  "the GPU's own controller stopped: reset the GPU",
	62:  "the GPU's own controller stopped: reset the GPU",
	63:  "a memory row was marked for replacement, which takes effect at the next reset",
	64:  "a bad memory row could not be replaced: replace the GPU",
	74:  "NVLink failed: check the bridge or switch",
	79:  "the GPU fell off the bus: check its power supply, temperature and seating",
	92:  "many corrected memory errors",
	94:  "a memory error that was contained: only this process is affected",
	95:  "a memory error that affected other processes: reset the GPU",
	119: "the GPU's system processor does not answer: reset the GPU",
	120: "the GPU's system processor failed: reset the GPU",
}

func meaning(xid uint64) string {
	if text := xids[xid]; text != "" {
		return text
	}
	return "see NVIDIA's catalogue of Xid messages"
}
