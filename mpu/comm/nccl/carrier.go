package nccl

import (
	"fmt"
	"os"
	"strings"
	"time"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/mpu/comm"
)

// Carry is ByHost for ranks that are processes, but NCCL where they compute on GPUs and
// want it. All ranks call it together and get the same; kinds of devices that differ,
// versions, and ranks that want NCCL and lack it, are an error.
func Carry(h comm.Host, rank int, ranks []int, d *device.Device, useNCCL bool, limit time.Duration) (comm.Carrier, error) {
	// The host's transport serves to agree on another.
	through := comm.ByHost(h, d)
	g, err := through.Group(rank, "carriers", ranks, d)
	if err != nil {
		return comm.Carrier{}, err
	}
	// What this rank has: device, card, libraries, NCCL's version or why there is none.
	mine := seat{device: d.Name, unit: d.Unit, products: d.Products()}
	var over opener
	if useNCCL && !d.OnHost() && d.Streams() != nil {
		if over, mine.nccl, err = openNCCL(); err != nil {
			mine.lack = err.Error()
		}
	}
	// All ranks read the same list and choose alike.
	words, err := comm.Words(g, d, mine.String())
	if err != nil {
		return comm.Carrier{}, err
	}
	lack, err := agree(words)
	switch {
	case err != nil:
		return comm.Carrier{}, err
	case lack != "":
		return comm.Carrier{}, exitcode.Errorf(exitcode.Usage, "%s. With --distributed-backend gloo %s, which is slow", lack, through.Note())
	case over == nil:
		return through, nil
	}
	return over(h, d, limit), nil
}

// Pin keeps NCCL from choosing how it sums: one algorithm, and no sums in switches. What
// somebody has set stays. To be called before NCCL is opened, which reads it once.
func Pin() error {
	for name, value := range map[string]string{"NCCL_ALGO": "Ring", "NCCL_NVLS_ENABLE": "0"} {
		if _, set := os.LookupEnv(name); set {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

// opener makes a rank's world of NCCL.
type opener func(h comm.Host, d *device.Device, limit time.Duration) comm.Carrier

// seat is what a rank sits at.
type seat struct {
	device string
	unit   string // which GPU; "": not known, or ranks may share it
	nccl   string // its version; "": not asked for, or not available
	lack   string // why it is not available

	products string // what makes its matrix products, with its version; "": the device alone says it
}

func (s seat) String() string {
	return strings.Join([]string{s.device, s.unit, s.products, s.nccl, s.lack}, "\n")
}

func seatOf(word string) (s seat) {
	parts := strings.SplitN(word+"\n\n\n\n", "\n", 5)
	return seat{device: parts[0], unit: parts[1], products: parts[2], nccl: parts[3], lack: strings.TrimRight(parts[4], "\n")}
}

// agree returns from all ranks' seats why NCCL is not available, "" where nobody lacks it.
// Ranks on different devices would compute different numbers; NCCL's versions do not
// understand each other, nor can it join two ranks on one GPU.
func agree(words []string) (lack string, err error) {
	first := seatOf(words[0])
	alike, taken := true, map[string]int{}
	for rank, word := range words {
		s := seatOf(word)
		// One GPU, one rank; equal devices and libraries, as results would differ.
		if other, twice := taken[s.unit]; twice && s.unit != "" {
			return "", exitcode.Errorf(exitcode.Usage, "ranks %d and %d compute on the same GPU (%s), but a GPU can run only one rank: start fewer ranks on that host, or let the launcher assign a GPU to each", other, rank, s.unit)
		}
		taken[s.unit] = rank
		if s.device != first.device {
			return "", exitcode.Errorf(exitcode.Usage, "rank 0 computes on %s, but rank %d on %s; give all ranks the same --device, which every host must have", first.device, rank, s.device)
		}
		if s.products != first.products {
			return "", exitcode.Errorf(exitcode.Usage, "rank 0 uses %s for matrix products, but rank %d uses %s, which gives different results; install the same version of cuBLASLt on all hosts, or set MONOTRON_CUBLASLT=off", first.products, rank, s.products)
		}
		if s.nccl != "" && first.nccl != "" && s.nccl != first.nccl {
			return "", exitcode.Errorf(exitcode.Usage, "rank 0 has NCCL %s, but rank %d has %s; install the same version on all hosts, set MONOTRON_NCCL to the path of such a version, or give --distributed-backend gloo", first.nccl, rank, s.nccl)
		}
		// The first rank that lacks NCCL is named, or all share one reason.
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
