// Package rendezvous brings the ranks of a run together and notifies them when one
// is lost. Rank 0 keeps a TCP server at an address that all know; a rank joins
// with its number, and when all are there each gets the list of all. The
// connection then stays open: once a second each rank sends a heartbeat that says
// what it is doing. If a rank dies, is silent or fails, rank 0 sends the same verdict
// to all. The reports of mpu/health to rank 0 travel on these connections too.
//
// Both ends prove that they know the run's secret before anything else is read
// (secret.go); a caller that does not is dropped without an answer.
// Messages have a largest size and everything has a time limit. The bytes of
// tensors do not pass here.
//
// The ranks of a host share a connection with rank 0: that of one of them, which relays for
// the others (relay.go). Rank 0 hears, asks and blames each by itself all the same.
//
// Reading order: session.go and join.go (a rank's view), server.go with admit.go, hear.go and watch.go (rank 0's
// part), relay.go and host_linux.go (the ranks of a host), queue.go (what is on its way), secret.go, unproved.go (connections
// that have proved nothing yet), listener.go (a port that outlives a gathering), retry.go, wire.go, port.go
// (where ranks of one host meet), longwait.go (notes on a long wait).
package rendezvous
