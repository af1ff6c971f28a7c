package health

import (
	"fmt"
	"strconv"
	"sync"

	"monotron/mpu/comm"
)

// loadGroups are a rank's: eight, as one of TP8 x CP2 x DP x PP8 has.
func loadGroups(rank, world int) []Named {
	groups := []Named{{"world", fmt.Sprintf("0-%d", world-1)}}
	for i, width := range []int{8, 16, 64, 128, 256, 512, 1024} {
		from := rank / width * width
		groups = append(groups, Named{"g" + strconv.Itoa(i), fmt.Sprintf("%d-%d", from, min(world, from+width)-1)})
	}
	return groups
}

// loadMessage is what a rank reports with a beat: it computes, or waits in a collective of all ranks, or does nothing.
func loadMessage(rank, world int, waits, idle, hello bool) []byte {
	m := &message{Beat: &Beat{Phase: Forward, Step: 5, Busy: !idle}}
	groups := loadGroups(rank, world)
	for range groups {
		m.Beat.Groups = append(m.Beat.Groups, Count{Entered: 40})
	}
	if waits {
		m.Beat.Waiting = &Call{Group: groups[0].Key(), Seq: 40, Op: comm.AllReduce, Reduce: comm.Sum, Root: -1, Count: 8, DType: "f32", Outer: "model/mlp.go:84"}
		m.Beat.Groups[0].Entered++
	}
	if hello {
		m.Hello = &Hello{PID: rank, Host: "host", Groups: groups}
	}
	sent, _ := m.write() // of this file's making
	return sent
}

// loadReported is a rank's report: a stack and its last calls, of which one rank has made the last of its group with another count.
func loadReported(rank, world int) []byte {
	groups := loadGroups(rank, world)
	r := &Report{Stack: loadPacked()}
	for i := range sentCalls {
		g, at := groups[i%len(groups)], int64(1795943811903535598+i*2345678)
		c := Call{Number: int64(900 + i), Group: g.Key(), Seq: int64(41 - (sentCalls-i+len(groups)-1)/len(groups)), Op: comm.AllReduce, Reduce: comm.Sum, Root: -1, Count: 8, DType: "f32", Phase: "forward", Step: 5,
			Site: fmt.Sprintf("mpu/linear.go:%d", 300+i%16), Outer: fmt.Sprintf("megatron/model/attention.go:%d", 200+i%16), Start: at, End: at + 123456}
		if g.Name == "g0" && c.Seq == 40 && rank == world/3+1 {
			c.Count = 7
		}
		r.Calls = append(r.Calls, c)
	}
	sent, _ := (&message{Report: r}).write() // of this file's making
	return sent
}

// loadPacked is that stack in a report.
var loadPacked = sync.OnceValue(func() packed { return pack(loadStack()) })

// loadStack is a stack of a rank in a layer's forward pass: 40 calls.
func loadStack() string {
	text := "goroutine 32 [runnable]:\n"
	for i := range 40 {
		text += fmt.Sprintf("monotron/megatron/model.(*sublayer%d).forward(0x33ab847b4%03x, 0x33ab84180c08, {0x7f8398166a40, 0x%x, 0x2, {0x80, 0x40, 0x0, 0x0}, ...}, ...)\n\tmonotron/megatron/model/file%d.go:%d +0x%x\n", i%12, 37*i, i, i%12, 100+17*i, 3000+101*i)
	}
	return text
}
