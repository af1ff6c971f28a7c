package tests

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// manifests are the ready jobs of examples/kubernetes that can run here: the name that pod 0 has, and the variables that
// the controller sets in each of the two pods, and the variable with the number of the pod.
var manifests = []struct{ file, pod0, variables, number string }{
	{"job.yaml", "gpt-0.gpt", "", "JOB_COMPLETION_INDEX"},
	{"jobset.yaml", "gpt-ranks-0-0.gpt", "JOBSET_NAME=gpt", "JOB_COMPLETION_INDEX"},
	{"trainjob.yaml", "", "PET_NNODES=2 PET_NPROC_PER_NODE=4 PET_MASTER_ADDR=127.0.0.1 PET_MASTER_PORT=29400 JOB_COMPLETION_INDEX=0", "PET_NODE_RANK"},
	{"pytorchjob.yaml", "", "PET_NNODES=2 PET_NPROC_PER_NODE=4 PET_MASTER_ADDR=127.0.0.1 PET_MASTER_PORT=23456 MASTER_ADDR=127.0.0.1 MASTER_PORT=23456 WORLD_SIZE=8 RANK=0", "PET_NODE_RANK"},
}

// Claim (docs/hosts.md): the ready manifests give the numbers of one process, with their two pods side by side here.
func onKubernetes(t *testing.T, l *launching) {
	for _, m := range manifests {
		t.Run(m.file, func(t *testing.T) {
			command := podCommands(t, m.file)[0]
			for i, word := range command {
				if m.pod0 != "" {
					command[i] = strings.ReplaceAll(word, m.pod0, "127.0.0.1")
				}
			}
			pods := fmt.Sprintf(`export MONOTRON_SECRET=0123456789abcdef0123456789abcdef %s
%[2]s=1 "$@" & %[2]s=0 "$@"; code=$?; wait $! || code=$?; exit $code`, m.variables, m.number)
			compareJob(t, l, exec.Command("bash", slices.Concat([]string{"-c", pods, "pods"}, command)...), "PATH="+tools(t, l, nil))
		})
	}
}

// TestManifestsAreAlike: every manifest mounts what its flags read, has each of the three settings to adapt once, and
// trains by the same flags.
func TestManifestsAreAlike(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(repository, "examples", "kubernetes", "*.yaml"))
	if err != nil || len(files) != len(manifests)+2 {
		t.Fatalf("%d manifests, %v", len(files), err)
	}
	want := podFlags(podCommands(t, "job.yaml")[0])
	for _, path := range files {
		file := filepath.Base(path)
		text := read(t, "examples/kubernetes/"+file)
		for _, setting := range []string{"# 1. the image", "# 2. the claim", "# 3. ranks"} {
			if n := strings.Count(text, setting); n == 0 || n > 1 && file != "mpijob.yaml" {
				t.Errorf("%s: %d settings %q", file, n, setting)
			}
		}
		for _, command := range podCommands(t, file) {
			if flags := podFlags(command); flags == "" || flags != want {
				t.Errorf("%s trains by %q, job.yaml by %q", file, flags, want)
			}
		}
	}
}

// podFlags are the flags of training in a container's command.
func podFlags(command []string) string {
	_, flags, _ := strings.Cut(command[len(command)-1], " pretrain_gpt ")
	return flags
}

// podCommands are the commands of a manifest's containers that have one.
func podCommands(t *testing.T, file string) (commands [][]string) {
	t.Helper()
	decoder := yaml.NewDecoder(strings.NewReader(read(t, "examples/kubernetes/"+file)))
	for {
		var document any
		if err := decoder.Decode(&document); err != nil {
			break // the end, or a fault: then no command is found
		}
		commands = append(commands, containerCommands(document)...)
	}
	if len(commands) == 0 {
		t.Fatalf("%s: no container has a command", file)
	}
	return commands
}

// containerCommands finds command and args of all containers below a node.
func containerCommands(node any) (commands [][]string) {
	switch node := node.(type) {
	case map[string]any:
		if args, is := node["args"].([]any); is {
			command, _ := node["command"].([]any)
			var words []string
			for _, word := range slices.Concat(command, args) {
				words = append(words, fmt.Sprint(word))
			}
			return append(commands, words)
		}
		for _, below := range node {
			commands = append(commands, containerCommands(below)...)
		}
	case []any:
		for _, below := range node {
			commands = append(commands, containerCommands(below)...)
		}
	}
	return commands
}
