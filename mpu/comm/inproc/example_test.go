package inproc_test

import (
	"fmt"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/mpu/comm"
	"monotron/mpu/comm/inproc"
)

// show runs f on three ranks of a group and prints what each holds afterwards.
func show(f func(g *comm.Group, d *device.Device) (device.Tensor, error)) {
	w := inproc.NewWorld(3)
	kept := make([][]float32, 3)
	err := w.Run(func(rank int) error {
		d := ref.Open()
		defer d.Arena.Close()
		g, err := w.Group(rank, "world", []int{0, 1, 2}, d)
		if err != nil {
			return err
		}
		t, err := f(g, d)
		if t.Given() {
			kept[rank] = device.ReadSlice[float32](d, t)
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for rank, values := range kept {
		fmt.Println("rank", rank, values)
	}
}

// put makes a tensor of the given values.
func put(d *device.Device, values ...float32) device.Tensor {
	t := d.Arena.Alloc(device.Communication, device.F32, int64(len(values)))
	device.WriteSlice(d, t, values)
	return t
}

func ExampleGroup_allReduce() {
	show(func(g *comm.Group, d *device.Device) (device.Tensor, error) {
		t := put(d, float32(g.Rank()), 1)
		return t, g.AllReduce(t, comm.Sum).Wait()
	})
	// Output:
	// rank 0 [3 3]
	// rank 1 [3 3]
	// rank 2 [3 3]
}

func ExampleGroup_allReduce_max() {
	show(func(g *comm.Group, d *device.Device) (device.Tensor, error) {
		t := put(d, float32(g.Rank()), 1-float32(g.Rank()))
		return t, g.AllReduce(t, comm.Max).Wait()
	})
	// Output:
	// rank 0 [2 1]
	// rank 1 [2 1]
	// rank 2 [2 1]
}

func ExampleGroup_reduce() {
	show(func(g *comm.Group, d *device.Device) (device.Tensor, error) {
		t := put(d, float32(g.Rank()), 1)
		return t, g.Reduce(t, comm.Sum, 1).Wait()
	})
	// Output:
	// rank 0 [0 1]
	// rank 1 [3 3]
	// rank 2 [2 1]
}

func ExampleGroup_broadcast() {
	show(func(g *comm.Group, d *device.Device) (device.Tensor, error) {
		t := put(d, float32(g.Rank()), float32(10*g.Rank()))
		return t, g.Broadcast(t, 2).Wait()
	})
	// Output:
	// rank 0 [2 20]
	// rank 1 [2 20]
	// rank 2 [2 20]
}

func ExampleGroup_allGather() {
	show(func(g *comm.Group, d *device.Device) (device.Tensor, error) {
		out := put(d, make([]float32, 6)...)
		return out, g.AllGather(out, put(d, float32(g.Rank()), float32(10*g.Rank()))).Wait()
	})
	// Output:
	// rank 0 [0 0 1 10 2 20]
	// rank 1 [0 0 1 10 2 20]
	// rank 2 [0 0 1 10 2 20]
}

func ExampleGroup_gather() {
	show(func(g *comm.Group, d *device.Device) (device.Tensor, error) {
		var out device.Tensor
		if g.Rank() == 0 {
			out = put(d, 0, 0, 0)
		}
		return out, g.Gather(out, put(d, float32(10*g.Rank())), 0).Wait()
	})
	// Output:
	// rank 0 [0 10 20]
	// rank 1 []
	// rank 2 []
}

func ExampleGroup_scatter() {
	show(func(g *comm.Group, d *device.Device) (device.Tensor, error) {
		var in device.Tensor
		if g.Rank() == 0 {
			in = put(d, 1, 2, 3, 4, 5, 6)
		}
		out := put(d, 0, 0)
		return out, g.Scatter(out, in, 0).Wait()
	})
	// Output:
	// rank 0 [1 2]
	// rank 1 [3 4]
	// rank 2 [5 6]
}

func ExampleGroup_reduceScatter() {
	show(func(g *comm.Group, d *device.Device) (device.Tensor, error) {
		r := float32(g.Rank())
		out := put(d, 0)
		return out, g.ReduceScatter(out, put(d, r, 10*r, 100*r)).Wait()
	})
	// Output:
	// rank 0 [3]
	// rank 1 [30]
	// rank 2 [300]
}

func ExampleGroup_allToAllV() {
	show(func(g *comm.Group, d *device.Device) (device.Tensor, error) {
		// Rank r sends r+1 numbers to each.
		var send, recv []device.Tensor
		all := put(d, make([]float32, 1+2+3)...)
		for peer, at := range []int64{0, 1, 3} {
			values := make([]float32, g.Rank()+1)
			for i := range values {
				values[i] = float32(10*g.Rank() + peer)
			}
			send, recv = append(send, put(d, values...)), append(recv, all.Slice(0, at, int64(peer)+1))
		}
		return all, g.AllToAllV(recv, send).Wait()
	})
	// Output:
	// rank 0 [0 10 10 20 20 20]
	// rank 1 [1 11 11 21 21 21]
	// rank 2 [2 12 12 22 22 22]
}

// A ring: every rank sends right and receives from the left, as one.
func ExampleGroup_exchange() {
	show(func(g *comm.Group, d *device.Device) (device.Tensor, error) {
		in := put(d, 0)
		right, left := (g.Rank()+1)%3, (g.Rank()+2)%3
		return in, g.Exchange([]comm.Transfer{{Peer: right, Send: true, T: put(d, float32(g.Rank()))}, {Peer: left, T: in}}).Wait()
	})
	// Output:
	// rank 0 [2]
	// rank 1 [0]
	// rank 2 [1]
}
