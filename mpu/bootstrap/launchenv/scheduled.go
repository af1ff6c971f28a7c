package launchenv

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"monotron/internal/exitcode"
)

// Scheduled is what a scheduler says of a process that it starts once a host: the values
// that monotron launch takes where its flags do not say them.
type Scheduled struct {
	By            string // the scheduler, and the variable that names it
	Hosts, Number int    // how many, and this one's
	Least         int    // hosts that the run may continue with; 0: not said
	Ranks         int    // on this host; 0: not said
	Addr          string // of host 0; "": not said
	Port          int    // 0: not said
}

// scheduler has one row a system: the variables of the number of hosts, this host's number,
// the ranks on it, the address and the port.
type scheduler struct {
	name                             string
	hosts, number, ranks, addr, port string
}

var schedulers = []scheduler{
	{"Kubeflow", "PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE", "PET_MASTER_ADDR", "PET_MASTER_PORT"},
	{"SkyPilot", "SKYPILOT_NUM_NODES", "SKYPILOT_NODE_RANK", "SKYPILOT_NUM_GPUS_PER_NODE", "SKYPILOT_NODE_IPS", ""},
	{"dstack", "DSTACK_NODES_NUM", "DSTACK_NODE_RANK", "DSTACK_GPUS_PER_NODE", "DSTACK_MASTER_NODE_IP", ""},
}

// Schedule reads the variables of Kubeflow (PET_*), SkyPilot, dstack and Volcano; nil where
// none has set any. host is this host's name, by which Volcano's lists know it; gpus how many
// GPUs are visible, for Kubeflow's "auto".
func Schedule(environment []string, host string, gpus func() int) (*Scheduled, error) {
	values := map[string]string{}
	for _, entry := range environment {
		name, value, _ := strings.Cut(entry, "=")
		values[name] = strings.TrimSpace(value)
	}
	for _, s := range schedulers {
		if values[s.hosts] != "" {
			return s.read(values, gpus)
		}
	}
	return volcano(values, host)
}

func (s scheduler) read(values map[string]string, gpus func() int) (*Scheduled, error) {
	p := &Scheduled{By: fmt.Sprintf("%s (%s=%s)", s.name, s.hosts, values[s.hosts])}
	var problems []error
	number := func(name, text string, least int) int {
		n, err := strconv.Atoi(text)
		if err != nil || n < least {
			problems = append(problems, fmt.Errorf("%s=%q in the environment is not an integer of at least %d", name, values[name], least))
		}
		return n
	}
	// The number of hosts may be a range of an elastic run, "2:4".
	least, most, elastic := strings.Cut(values[s.hosts], ":")
	if !elastic {
		most = least
	}
	p.Hosts = number(s.hosts, most, 1)
	if elastic {
		p.Least = number(s.hosts, least, 1)
	}
	if text := values[s.number]; text != "" || p.Hosts > 1 {
		p.Number = number(s.number, text, 0)
	}
	switch text := values[s.ranks]; text {
	case "", "0": // not said, or a host without GPUs
	case "auto", "gpu", "cpu":
		p.Ranks = 1 // a rank of the CPU device uses all cores
		if text != "cpu" {
			p.Ranks = max(1, gpus())
		}
	default:
		p.Ranks = number(s.ranks, text, 1)
	}
	if text := values[s.port]; s.port != "" && text != "" {
		p.Port = number(s.port, text, 1)
	}
	p.Addr, _, _ = strings.Cut(values[s.addr], "\n") // SkyPilot lists all hosts, a line each
	switch {
	case len(problems) > 0:
	case p.Number >= p.Hosts:
		problems = append(problems, fmt.Errorf("%s=%d in the environment is not possible: there are %d hosts according to %s, and they are numbered from 0", s.number, p.Number, p.Hosts, s.hosts))
	case p.Hosts > 1 && p.Addr == "":
		problems = append(problems, fmt.Errorf("%s=%s is in the environment, but %s, the address of host 0, is not set; export it", s.hosts, values[s.hosts], s.addr))
	}
	if len(problems) > 0 {
		return nil, exitcode.With(exitcode.Usage, problems[0])
	}
	return p, nil
}

// volcano reads VC_TASK_HOSTS, which lists the hosts of each task of a job: those of its
// master first, then the others by name. A job of one host of one task may be any program.
func volcano(values map[string]string, host string) (*Scheduled, error) {
	// The tasks, the master's first.
	var tasks []string
	for name := range values {
		if strings.HasPrefix(name, "VC_") && strings.HasSuffix(name, "_HOSTS") {
			tasks = append(tasks, name)
		}
	}
	slices.SortFunc(tasks, func(a, b string) int {
		if m, n := a == "VC_MASTER_HOSTS", b == "VC_MASTER_HOSTS"; m != n {
			if m {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	// The hosts in that order; the first is rank 0's.
	var hosts []string
	for _, name := range tasks {
		hosts = append(hosts, strings.FieldsFunc(values[name], func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	if len(hosts) == 0 {
		return nil, nil
	}
	// A pod knows its host name with or without its domain.
	short := func(name string) string { s, _, _ := strings.Cut(name, "."); return s }
	at := slices.IndexFunc(hosts, func(h string) bool { return short(h) == short(host) })
	if at < 0 {
		return nil, exitcode.Errorf(exitcode.Usage, "%s in the environment lists the hosts of a Volcano job, but this host (%s) is not among them; give --nnodes, --node-rank and --master-addr", tasks[0], host)
	}
	return &Scheduled{By: fmt.Sprintf("Volcano (%s)", strings.Join(tasks, ", ")), Hosts: len(hosts), Number: at, Addr: hosts[0]}, nil
}
