// Package blocks writes files whose parts have known places: several are made
// and written at a time, within a bound on memory.
package blocks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"monotron/fault"
	"monotron/megatron/checkpoint/formats/bulk"
)

// inFlight bounds the blocks that are held at a time, in bytes; a larger one is
// held alone.
const inFlight = 96 << 20

// Block is a part of a file.
type Block struct {
	Offset, Bytes int64
	Fill          func(dst []byte) error // may run beside others'
}

// Head is a block of bytes that are there already.
func Head(offset int64, raw []byte) Block {
	return Block{offset, int64(len(raw)), func(dst []byte) error { copy(dst, raw); return nil }}
}

// Write makes the file path, which has its name only when it is whole and on
// disk; after an error nothing of it is left. Gaps between blocks read as zeros.
func Write(ctx context.Context, path string, list []Block) (size int64, err error) {
	tmp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".tmp-%s-%d", filepath.Base(path), os.Getpid()))
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return 0, fault.With(fault.IO, err)
	}
	list = slices.SortedFunc(slices.Values(list), func(a, b Block) int { return cmp.Compare(a.Offset, b.Offset) })
	p := &pool{file: bulk.NewFile(f), list: list}
	err = p.run(ctx)
	if err == nil {
		err = p.file.Sync()
	}
	if closed := p.file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp) // the error before it is the one to tell
		return 0, diskFault(err)
	}
	return p.at, nil
}

// diskFault marks errors of the file system; others have their code.
func diskFault(err error) error {
	var path *os.PathError
	var link *os.LinkError
	if errors.As(err, &path) || errors.As(err, &link) {
		return fault.With(fault.IO, err)
	}
	return err
}

// pool hands blocks to goroutines in the order of the list, and writes them in
// that order: a file goes to disk from its start to its end.
type pool struct {
	file *bulk.File
	list []Block
	at   int64 // bytes written

	mu     sync.Mutex
	freed  sync.Cond
	next   int // block to fill
	turn   int // block to write
	held   int64
	spare  [][]byte
	failed error
}

func (p *pool) run(ctx context.Context) error {
	p.freed.L = &p.mu
	var all sync.WaitGroup
	for range min(len(p.list), max(2, runtime.GOMAXPROCS(0))) {
		all.Go(func() { p.work(ctx) })
	}
	all.Wait()
	return p.failed
}

func (p *pool) work(ctx context.Context) {
	for {
		i, buf := p.take(ctx)
		if i < 0 {
			return
		}
		err := p.list[i].Fill(buf)
		if err == nil && p.wait(i) {
			err = p.write(p.list[i].Offset, buf)
		}
		p.give(buf, err)
	}
}

// wait returns true when the blocks before i are written, or false after an error.
func (p *pool) wait(i int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.failed == nil && p.turn < i {
		p.freed.Wait()
	}
	return p.failed == nil
}

// write puts a block to its place, behind zeros where the one before ends earlier.
func (p *pool) write(offset int64, raw []byte) error {
	if offset < p.at {
		return fault.Errorf(fault.Internal, "blocks at %d and before it share bytes of a file", offset)
	}
	for _, part := range [][]byte{make([]byte, offset-p.at), raw} {
		n, err := p.file.Write(part)
		if p.at += int64(n); err != nil {
			return err
		}
	}
	return nil
}

// take waits for room for the next block and names it; -1: there is no more to do.
func (p *pool) take(ctx context.Context) (int, []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.failed == nil && p.next < len(p.list) && p.held > 0 && p.held+p.list[p.next].Bytes > inFlight {
		p.freed.Wait()
	}
	if p.failed == nil && ctx.Err() != nil {
		p.failed = fault.With(fault.Again, context.Cause(ctx))
	}
	if p.failed != nil || p.next == len(p.list) {
		p.freed.Broadcast()
		return -1, nil
	}
	i, b := p.next, &p.list[p.next]
	p.next++
	p.held += b.Bytes
	for k, s := range p.spare { // touching new memory costs as much as filling it
		if int64(cap(s)) >= b.Bytes {
			p.spare = append(p.spare[:k], p.spare[k+1:]...)
			return i, s[:b.Bytes]
		}
	}
	p.spare = nil
	return i, make([]byte, b.Bytes)
}

func (p *pool) give(buf []byte, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn++
	p.held -= int64(len(buf))
	if cap(buf) <= inFlight && len(p.spare) < 2 {
		p.spare = append(p.spare, buf)
	}
	if p.failed == nil {
		p.failed = err
	}
	p.freed.Broadcast()
}
