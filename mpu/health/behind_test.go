package health

import (
	"strings"
	"testing"
	"time"

	"monotron/csrc/device"
	"monotron/mpu/comm"
	"monotron/mpu/comm/failure"
)

// gpu is an engine that takes every collective and does none, until the test says so.
type gpu struct{ taken []*done }

type done struct{ begun, over func() }

func (d *done) Wait() error             { return nil } // orders streams
func (d *done) Tell(begun, over func()) { d.begun, d.over = begun, over }
func (g *gpu) Start(*comm.Collective) comm.Work {
	d := &done{}
	g.taken = append(g.taken, d)
	return d
}

// onGPUs are the recorders of two ranks in one group, over engines of their own.
func onGPUs(t *testing.T) (rs [2]*Recorder, groups [2]*comm.Group, engines [2]*gpu) {
	t.Helper()
	for rank := range 2 {
		rs[rank], engines[rank] = recorder(t, rank, 2), &gpu{}
		groups[rank] = rs[rank].Wrap(comm.NewGroup(comm.Membership{Name: "tp", Members: []int{0, 1}, Rank: rank}, engines[rank]), false)
		rs[rank].Enter(Forward, 3)
	}
	return rs, groups, engines
}

// Claim (docs/failures.md): a collective on a GPU is over when the GPU has done it, not when
// Wait has ordered streams; until the GPU comes to it the rank has not entered it.
func TestCollectivesBehind(t *testing.T) {
	rs, groups, engines := onGPUs(t)
	for range 2 {
		if err := groups[0].AllReduce(numbers(8), comm.Sum).Wait(); err != nil {
			t.Fatal(err)
		}
	}
	if b := rs[0].Beat(); b.Groups[0].Entered != 0 || b.Ended != 0 || b.Waiting != nil || b.Calls != 2 {
		t.Errorf("before the GPU has come to it: %+v", b)
	}
	engines[0].taken[0].begun()
	if b := rs[0].Beat(); b.Groups[0].Entered != 1 || b.Ended != 0 || b.Waiting == nil || b.Waiting.Seq != 0 {
		t.Errorf("while the GPU is in it: %+v", b)
	}
	engines[0].taken[0].over()
	if b := rs[0].Beat(); b.Groups[0].Entered != 1 || b.Ended != 1 || b.Waiting != nil || rs[0].Calls()[0].End == 0 || rs[0].Calls()[1].End != 0 {
		t.Errorf("after it: %+v, %+v", b, rs[0].Calls())
	}
}

// Claim: messages count for their receiver once the GPU that sends has come to them.
func TestMessagesBehind(t *testing.T) {
	rs, groups, engines := onGPUs(t)
	groups[0].Exchange([]comm.Transfer{{Peer: 1, Send: true, T: numbers(2)}, {Peer: 1, T: numbers(2)}})
	if c := rs[0].Beat().Groups[0]; c.Sent[1] != 0 || c.Received[1] != 0 {
		t.Errorf("before: %+v", c)
	}
	engines[0].taken[0].begun()
	if c := rs[0].Beat().Groups[0]; c.Sent[1] != 1 || c.Received[1] != 1 {
		t.Errorf("after: %+v", c)
	}
}

// Claim (docs/failures.md): where GPUs stand still the rank to blame is the one whose GPU
// never came to what the others' are in, although all hosts have called it.
func TestStallBehind(t *testing.T) {
	rs, groups, engines := onGPUs(t)
	w := newWatcher(2, Settings{Limit: 15 * time.Second}, nil, nil)
	for rank, g := range groups {
		g.AllReduce(numbers(8), comm.Sum)
		if rank == 0 {
			engines[rank].taken[0].begun()
		}
		w.hear(rank, &message{Hello: rs[rank].hello("here"), Beat: rs[rank].Beat()})
		w.ranks[rank].moved = time.Now().Add(-20 * time.Second)
	}
	v := w.frozen(time.Now()).diagnose()
	if v == nil || v.Rank != 1 || v.Kind != failure.Stall || !strings.Contains(v.Text, "rank 1 never entered all_reduce(sum) of 8 f32 #0 of tp group 0 (ranks 0,1), where rank 0 waits") {
		t.Errorf("%+v", v)
	}
}

// Claim: a rank waits for its device where it has been in one call, or one collective, since
// the last beat, and the device has passed no mark.
func TestStalledDevice(t *testing.T) {
	in := device.Progress{Begun: 7, Over: 6, Passed: 3, Ahead: 1}
	first := &pending{}
	for name, c := range map[string]struct {
		before, now deviceStanding
		want        bool
	}{
		"in one call":                     {deviceStanding{progress: in}, deviceStanding{progress: in}, true},
		"in another call":                 {deviceStanding{progress: device.Progress{Begun: 6, Over: 5, Passed: 3}}, deviceStanding{progress: in}, false},
		"the device goes on":              {deviceStanding{progress: device.Progress{Begun: 7, Over: 6, Passed: 2}}, deviceStanding{progress: in}, false},
		"in none":                         {deviceStanding{progress: device.Progress{Begun: 6, Over: 6}}, deviceStanding{progress: device.Progress{Begun: 6, Over: 6}}, false},
		"in one collective":               {deviceStanding{oldest: first}, deviceStanding{oldest: first}, true},
		"in one collective after another": {deviceStanding{oldest: first}, deviceStanding{oldest: &pending{}}, false},
	} {
		if got := c.now.since(c.before); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
