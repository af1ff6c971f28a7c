// Package process is the engine of ranks that are processes, on one host or several.
// Each rank sends its part to those that need it and sums what comes, in rank order: the
// bits are those of package inproc.
//
// Reading order: world.go (this process's rank among the others), group.go (what goes and
// comes for each op), operation.go (a call under way), links.go (connections), transport.go
// (what carries bytes once a connection stands), then the transports: ring_linux.go and
// shared_linux.go (shared memory), gloo.go; fast.go (sums that Gloo makes itself).
//
// Who sees a failure: a receive, to which a message is addressed, sees that the ranks differ;
// links see a connection that breaks; an operation sees that nothing comes within the limit.
// All tell the rendezvous (World.Abort), whose word ends the World on every rank.
package process
