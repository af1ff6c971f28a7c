package tests

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Claim (docs/exit-codes.md): SIGQUIT ends a run with one line and 131; with GOTRACEBACK it prints stacks.
func TestQuit(t *testing.T) {
	for _, traceback := range []string{"", "all"} {
		cmd := exec.Command(filepath.Join(program(t), "monotron"), strings.Fields("pretrain_gpt --num-layers 1 --hidden-size 8 --num-attention-heads 1 --seq-length 8 --max-position-embeddings 8 "+
			"--micro-batch-size 1 --train-iters 100000 --lr 1e-3 --log-interval 1 --eval-iters 0 --mock-data --tokenizer-type NullTokenizer --vocab-size 10")...)
		cmd.Env = append(os.Environ(), "GOTRACEBACK="+traceback)
		var notes bytes.Buffer
		cmd.Stderr = &notes
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		sent := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if !sent && strings.Contains(lines.Text(), "iteration        2/") {
				sent = cmd.Process.Signal(syscall.SIGQUIT) == nil
			}
		}
		_ = cmd.Wait() // its code says it
		code, stacks, line := cmd.ProcessState.ExitCode(), strings.Contains(notes.String(), "\ngoroutine "), strings.Contains(notes.String(), "monotron: ended by SIGQUIT; nothing was saved")
		if traceback == "" && (code != 131 || stacks || !line) || traceback != "" && (code != 2 || !stacks) {
			t.Errorf("GOTRACEBACK=%q: code %d, %.2000s", traceback, code, notes.String())
		}
	}
}
