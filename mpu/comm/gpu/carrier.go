package gpu

import (
	"fmt"
	"strings"
	"time"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/mpu/comm"
)

// Carry is ByHost for ranks that are processes, but NCCL where they compute on GPUs and
// want it. All ranks call it together and get the same; kinds of devices that differ,
// versions, and ranks that want NCCL and lack it, are an error.
func Carry(h comm.Host, rank int, ranks []int, d *device.Device, useNCCL bool, limit time.Duration) (comm.Carrier, error) {
	through := comm.ByHost(h, d)
	g, err := through.Group(rank, "carriers", ranks, d)
	if err != nil {
		return comm.Carrier{}, err
	}
	mine := seat{device: d.Name}
	var over opener
	if useNCCL && !d.OnHost() && d.Streams() != nil {
		if over, mine.nccl, err = openNCCL(); err != nil {
			mine.lack = err.Error()
		}
	}
	words, err := comm.Words(g, d, mine.String())
	if err != nil {
		return comm.Carrier{}, err
	}
	lack, err := agree(words)
	switch {
	case err != nil:
		return comm.Carrier{}, err
	case lack != "":
		return comm.Carrier{}, fault.Errorf(fault.Usage, "%s. With --distributed-backend gloo %s, which is slow", lack, through.Note())
	case over == nil:
		return through, nil
	}
	return over(h, d, limit), nil
}

// opener makes a rank's world of NCCL.
type opener func(h comm.Host, d *device.Device, limit time.Duration) comm.Carrier

// seat is what a rank sits at.
type seat struct {
	device string
	nccl   string // its version; "": not asked for, or not to be had
	lack   string // why it is not to be had
}

func (s seat) String() string { return strings.Join([]string{s.device, s.nccl, s.lack}, "\n") }

func seatOf(word string) (s seat) {
	parts := strings.SplitN(word+"\n\n", "\n", 3)
	return seat{parts[0], parts[1], strings.TrimRight(parts[2], "\n")}
}

// agree tells from all ranks' seats why NCCL is not to be had, "" where nobody lacks it.
// Ranks on different devices would compute different numbers; NCCL's versions do not
// understand each other.
func agree(words []string) (lack string, err error) {
	first := seatOf(words[0])
	alike := true
	for rank, word := range words {
		s := seatOf(word)
		if s.device != first.device {
			return "", fault.Errorf(fault.Usage, "rank 0 computes on %s, rank %d on %s: give all ranks one --device, where each of them has it", first.device, rank, s.device)
		}
		if s.nccl != "" && first.nccl != "" && s.nccl != first.nccl {
			return "", fault.Errorf(fault.Usage, "rank 0 has NCCL %s, rank %d has %s: install one version, name it by MONOTRON_NCCL, or give --distributed-backend gloo", first.nccl, rank, s.nccl)
		}
		if s.lack != "" && lack == "" {
			lack = fmt.Sprintf("rank %d: %s", rank, s.lack)
		}
		alike = alike && s.lack == first.lack
	}
	if alike {
		return first.lack, nil
	}
	return lack, nil
}
