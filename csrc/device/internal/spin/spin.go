package spin

// Reads is how many looks there are between two at whether another program wants the core.
const Reads = 64

// Wait is what a loop does between its i-th look and the next: it leaves the core to the other
// hardware thread for a moment, now and then to a thread of another process that is ready.
func Wait(i int) {
	if i%Reads == Reads-1 {
		yield()
		return
	}
	Pause()
}
