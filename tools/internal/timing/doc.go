// Package timing is what the commands bench and measure share: training steps on random tokens (step.go),
// all-reduces between processes (processes.go), the distance of two cores (cores.go), and the processes that
// they start (children.go).
package timing
