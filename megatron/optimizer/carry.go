package optimizer

import "monotron/csrc/device"

// fetching is a bucket's offloaded values on their way to the device.
type fetching struct {
	o    *Optimizer
	b    *bucket
	host []byte
	done chan error
}

// fetch starts to read this rank's shard of b into the complete values and, when it is there,
// gathers the others'.
func (o *Optimizer) fetch(b *bucket) *fetching {
	w := &fetching{o: o, b: b, done: make(chan error, 1)}
	ours := b.ours(b.values)
	if o.device.OnHost() {
		w.host = o.device.Bytes(ours)
	} else {
		w.host = o.away.stage(ours.Bytes())
	}
	go func() { w.done <- o.device.Fetch(w.host, b.ownValues) }()
	return w
}

// Wait returns when the values are complete.
func (w *fetching) Wait() error {
	err := <-w.done
	b, d := w.b, w.o.device
	if !d.OnHost() {
		d.Write(b.ours(b.values), w.host)
		w.o.away.staging = append(w.o.away.staging, w.host)
	}
	if err == nil && b.family.sharded() {
		err = b.family.sharers().AllGather(b.values, b.ours(b.values)).Wait()
	}
	return err
}

// putting is a tensor on its way to offloaded memory.
type putting struct {
	a    *away
	host []byte // it passes through; nil: it is read where it lies
	done chan error
}

// put starts to write src to dst, which is offloaded; src is read until the work is over.
func (o *Optimizer) put(dst, src device.Tensor) *putting {
	w := &putting{a: o.away, done: make(chan error, 1)}
	from := []byte(nil)
	if o.device.OnHost() {
		from = o.device.Bytes(src)
	} else {
		w.host = o.away.stage(src.Bytes())
		o.device.Read(w.host, src)
		from = w.host
	}
	go func() { w.done <- o.device.Put(dst, from) }()
	return w
}

// Wait returns when it is written.
func (w *putting) Wait() error {
	err := <-w.done
	if w.host != nil {
		w.a.staging = append(w.a.staging, w.host)
	}
	return err
}

// stage is memory that bytes pass through where the host cannot read the device's.
func (a *away) stage(bytes int64) []byte {
	for i, b := range a.staging {
		if int64(len(b)) == bytes {
			a.staging = append(a.staging[:i], a.staging[i+1:]...)
			return b
		}
	}
	return device.Pages(bytes)
}
