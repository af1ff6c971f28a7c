package rendezvous

import (
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// Claim (docs/failures.md): a process of this host that runs, or waits for a processor, is not
// lost when it is silent; one that sleeps or is stopped is, and one of another host.
func TestStarvedIsNotLost(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux says what other processes wait for")
	}
	start := func(words ...string) *Member {
		cmd := exec.Command(words[0], words[1:]...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
		return &Member{Host: "here", PID: cmd.Process.Pid}
	}
	c := &Config{Silence: time.Second}
	busy, asleep, me := start("sh", "-c", "while :; do :; done"), start("sleep", "600"), &Member{Host: "here"}
	for end := time.Now().Add(time.Minute); (!starved(busy.PID) || starved(asleep.PID)) && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond) // until one runs and the other sleeps
	}
	other := *busy
	other.Host = "there"
	for name, is := range map[string]bool{
		"busy":              c.lost(2*time.Second, busy, me) == false,
		"busy for too long": c.lost(starvedTimes*time.Second+1, busy, me),
		"asleep":            c.lost(2*time.Second, asleep, me),
		"on another host":   c.lost(2*time.Second, &other, me),
		"not silent":        c.lost(time.Second, asleep, me) == false,
	} {
		if !is {
			t.Errorf("%s: wrong", name)
		}
	}
}
