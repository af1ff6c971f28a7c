package spin

// Reads is the number of reads from one yield of the core to other programs to the next.
const Reads = 64

// Wait is what a loop does between its i-th read and the next: it leaves the core to the other
// hardware thread for a moment, now and then to a thread of another process that is ready.
func Wait(i int) {
	if i%Reads == Reads-1 {
		yield()
		return
	}
	Pause()
}
