// Encode times GPT-2's BPE alone on one thread: the texts of a JSON lines file,
// already in memory, to ids. It prints {"first": s, "warm": s, "bytes": n, "ids": n,
// "md5": ...}: the least seconds of several rounds, each with a new encoder, then
// with the one that has seen the texts; the MD5 is that of the ids as u16.
//
//	encode FILE ROUNDS [cpu]
//
// With cpu it counts processor time.
package main

import (
	"crypto/md5"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"monotron/dataset"
	"monotron/dataset/jsonl"
	"monotron/tokenizer"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "encode:", err)
		os.Exit(1)
	}
}

type result struct {
	First float64 `json:"first"`
	Warm  float64 `json:"warm"`
	Bytes int     `json:"bytes"`
	IDs   int     `json:"ids"`
	MD5   string  `json:"md5"`
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: encode FILE ROUNDS [cpu]")
	}
	rounds, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	now := clock(len(args) > 2)
	texts, bytes, err := read(args[0])
	if err != nil {
		return err
	}
	// One thread, and no collection of garbage while a round is timed.
	runtime.GOMAXPROCS(1)
	r := result{Bytes: bytes}
	ids := make([]int32, 0, bytes)
	for round := range rounds {
		t, err := tokenizer.EmbeddedGPT2()
		if err != nil {
			return err
		}
		runtime.GC()
		debug.SetGCPercent(-1)
		// The first pass meets every word for the first time, the second finds them cached.
		for _, least := range []*float64{&r.First, &r.Warm} {
			start := now()
			ids = ids[:0]
			for _, text := range texts {
				if ids, err = t.Append(ids, text); err != nil {
					return err
				}
			}
			if took := (now() - start).Seconds(); round == 0 || took < *least {
				*least = took
			}
		}
		debug.SetGCPercent(100)
	}
	raw, err := dataset.U16.Append(nil, ids)
	if err != nil {
		return err
	}
	r.IDs, r.MD5 = len(ids), fmt.Sprintf("%x", md5.Sum(raw))
	return json.NewEncoder(os.Stdout).Encode(r)
}

// clock is the time since some moment, or this process's processor time.
func clock(processor bool) func() time.Duration {
	began := time.Now()
	if !processor {
		return func() time.Duration { return time.Since(began) }
	}
	return func() time.Duration {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
}

// read gives the text of every line.
func read(path string) (texts []string, bytes int, err error) {
	r, err := jsonl.Open(path, 1<<20)
	if err != nil {
		return nil, 0, err
	}
	defer r.Close()
	p := jsonl.NewParser("text")
	for {
		block, err := r.Next(nil)
		if err == io.EOF {
			return texts, bytes, nil
		}
		if err != nil {
			return nil, 0, err
		}
		for n, line := range block.Each() {
			if err := p.Parse(line); err != nil {
				return nil, 0, fmt.Errorf("line %d: %w", n, err)
			}
			text, err := p.String(0)
			if err != nil {
				return nil, 0, fmt.Errorf("line %d: %w", n, err)
			}
			texts, bytes = append(texts, strings.Clone(text)), bytes+len(text)
		}
	}
}
