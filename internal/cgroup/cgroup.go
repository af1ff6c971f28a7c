// Package cgroup finds the control groups that this process is in, of either version: what
// holds its memory and its processors back in a container or under a batch system (the
// kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1). Where the system has none,
// there are none.
package cgroup

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Group is the folder of a group. Version 2 has files by other names than version 1.
type Group struct {
	Folder  string
	Version int
}

// Of is the process's group for a controller, "memory" or "cpu", and all above it, nearest
// first. In a container only the tree's root may be there. root is "/", but in tests.
func Of(root, controller string) (all []Group) {
	text, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil // no Linux
	}
	tree := filepath.Join(root, "sys/fs/cgroup")
	for line := range strings.Lines(string(text)) {
		number, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, found := strings.Cut(rest, ":")
		switch {
		case !found:
		case number == "0" && controllers == "":
			all = append(all, upFrom(tree, path, 2)...)
			all = append(all, upFrom(filepath.Join(tree, "unified"), path, 2)...)
		case slices.Contains(strings.Split(controllers, ","), controller):
			all = append(all, upFrom(filepath.Join(tree, controller), path, 1)...)
		}
	}
	return all
}

// upFrom are the groups from a path up to the tree's root.
func upFrom(tree, path string, version int) (all []Group) {
	for path = filepath.Join("/", path); ; path = filepath.Dir(path) {
		all = append(all, Group{filepath.Join(tree, path), version})
		if path == "/" {
			return all
		}
	}
}

// Read is a file of the group, by its name in version 2 or in version 1; "" where it cannot be read.
func (g Group) Read(second, first string) string {
	name := second
	if g.Version == 1 {
		name = first
	}
	text, _ := os.ReadFile(filepath.Join(g.Folder, name))
	return string(text)
}

// Number is the one that such a file holds; "max" is none.
func (g Group) Number(second, first string) (n int64, is bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(g.Read(second, first)), 10, 64)
	return n, err == nil
}

// Processors is how many processors' time the process may use at most; +Inf without a limit.
func Processors(root string) float64 {
	least := math.Inf(1)
	for _, g := range Of(root, "cpu") {
		quota := g.Read("cpu.max", "cpu.cfs_quota_us")
		if g.Version == 1 {
			quota += " " + g.Read("", "cpu.cfs_period_us")
		}
		words := strings.Fields(quota)
		if len(words) != 2 {
			continue
		}
		time, err := strconv.ParseFloat(words[0], 64) // "max" and -1 mean no limit
		period, bad := strconv.ParseFloat(words[1], 64)
		if err == nil && bad == nil && time > 0 && period > 0 {
			least = min(least, time/period)
		}
	}
	return least
}
