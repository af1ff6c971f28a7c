// Package rendezvous brings the ranks of a run together and tells them when one
// is lost. Rank 0 keeps a TCP server at an address that all know; a rank joins
// with its number, and when all are there each gets the list of all. The
// connection then stays: ranks beat once a second and say what they are at, so
// that a death, a silence or an error of one becomes the same verdict on all. What
// else a rank has to say to rank 0, package watch's reports, passes here, too.
//
// Both ends prove that they know the run's secret before anything else is read
// (secret.go); what does not is dropped without a word and disturbs nobody.
// Messages have a largest size and everything has a time limit. The bytes of
// tensors do not pass here.
//
// Reading order: session.go (a rank's view), server.go (rank 0's part), secret.go, unproved.go (connections
// that have proved nothing yet), listener.go (a port that outlives a gathering), retry.go, wire.go, port.go
// (where ranks of one host meet), longwait.go (what a person is told of a wait that is long).
package rendezvous
