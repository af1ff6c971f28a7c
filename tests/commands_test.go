package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// shown is a command line that a page shows, its continued lines joined.
type shown struct {
	page  string // from the root
	block int    // number of its block on the page
	text  string
}

var (
	fenced   = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```")
	ours     = regexp.MustCompile(`^\s*(?:bin/)?(monotron|pretrain_gpt|preprocess_data(?:_fast)?) +[^ :]`)
	comment  = regexp.MustCompile(`\s+#.*$`)
	flagWord = regexp.MustCompile(`(?:^|\s)(--[a-z][\w-]*)`)
	document = regexp.MustCompile(`<<'(\w+)'`)
	shell    = regexp.MustCompile(`^(for|seq|echo|cat|export|mkdir) `)
)

// shownCommands are the command lines of all pages, and the lines of a shell that prepare them.
func shownCommands(t *testing.T) (list []shown) {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, filepath.Join(repository, "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range fenced.FindAllStringSubmatch(string(text), -1) {
			if !slices.Contains([]string{"sh", ""}, m[1]) {
				continue
			}
			for line := range slices.Values(commandLines(m[2])) {
				if ours.MatchString(line) || m[1] == "sh" && shell.MatchString(line) {
					name, _ := filepath.Rel(repository, page)
					list = append(list, shown{name, i, line})
				}
			}
		}
	}
	return list
}

// commandLines are the lines of a block: continued ones joined, those that a command reads from the block (<<'EOF') with
// it, comments left out.
func commandLines(block string) (list []string) {
	end := ""
	for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
		if end != "" {
			list[len(list)-1] += "\n" + strings.TrimSuffix(line, "\n")
			if strings.TrimSpace(line) == end {
				end = ""
			}
			continue
		}
		list = append(list, strings.TrimSpace(comment.ReplaceAllString(strings.TrimSpace(line), "")))
		if m := document.FindStringSubmatch(line); m != nil {
			end = m[1]
		}
	}
	return list
}

// unrun are commands that the test does not run, and why.
var unrun = []struct {
	pattern *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`\.\.\.|FLAGS|MODEL|OTHER|CORPUS| DIR`), "has a placeholder"},
	{regexp.MustCompile(`(?i)llama-|smollm2|glm-|mixtral|--input model |--load model|bloom\.csv`), "needs files that are not in the repository"},
	{regexp.MustCompile(`golden/`), "needs recorded cases; tests of the command run them"},
	{regexp.MustCompile(`s3://|AWS_`), "needs a bucket"},
	{regexp.MustCompile(`hostfile|--nnodes|launch `), "needs other hosts, or as many processes as a page has room for"},
	{regexp.MustCompile(`^monotron (serve|chat)|monotron watch FOLDER|dashboard-addr`), "runs until it is ended"},
	{regexp.MustCompile(`monotron (bench|measure|plan search)|verify (--bits )?(--optimizer \S+ )?--world-size [48]`), "takes minutes"},
	{regexp.MustCompile(`cuda`), "needs a GPU"},
	{regexp.MustCompile(`input\.txt|my\.jsonl|--load out `), "continues another program's files"},
	{regexp.MustCompile(`postmortem|replay`), "needs a run that failed; examples/ have one"},
}

func whyNot(c shown) string {
	for _, u := range unrun {
		if u.pattern.MatchString(c.text) {
			return u.why
		}
	}
	return ""
}

// codes are the exit codes of commands that are shown to fail.
var codes = map[string]int{"--inject exit:": 1}

// knownFlags are the flags of pretrain_gpt that it takes, and of each command those in its help.
func knownFlags(t *testing.T, bin, command string) string {
	t.Helper()
	if command == "pretrain_gpt" {
		out, err := exec.Command(filepath.Join(bin, "monotron"), "flags", "--json").Output()
		if err != nil {
			t.Fatal(err)
		}
		var all []struct {
			Name, Class string
			Aliases     []string
		}
		if err := json.Unmarshal(out, &all); err != nil {
			t.Fatal(err)
		}
		known := ""
		for _, f := range all {
			if f.Class == "works" || f.Class == "accepted" {
				known += f.Name + " " + strings.Join(f.Aliases, " ") + " "
			}
		}
		return known
	}
	out, err := exec.Command(filepath.Join(bin, "monotron"), append(strings.Fields(command), "--help-all")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s --help-all: %v\n%s", command, err, out)
	}
	return string(out)
}

// commandsOf are the commands that a line names, whose flags it may have: `launch .. -- pretrain_gpt` are two.
func commandsOf(line string) (names []string) {
	words := strings.Fields(strings.TrimPrefix(line, "bin/"))
	if words[0] != "monotron" {
		return []string{words[0]}
	}
	names = []string{words[1]}
	if len(words) > 2 && slices.Contains([]string{"plan", "inspect", "bench", "verify"}, words[1]) && regexp.MustCompile(`^[a-z]+$`).MatchString(words[2]) {
		names[0] += " " + words[2]
	}
	for _, w := range words[2:] {
		if w = strings.TrimPrefix(w, "bin/"); w == "pretrain_gpt" || w == "serve" || w == "doctor" {
			names = append(names, w)
		}
	}
	if names[0] == "plan search" || strings.HasPrefix(names[0], "plan run") || names[0] == "verify" || names[0] == "plan schedule" || names[0] == "finetune" {
		names = append(names, "pretrain_gpt")
	}
	return names
}

// TestShownFlagsExist: a flag that a page shows with a command is one of that command.
func TestShownFlagsExist(t *testing.T) {
	bin, known, seen := program(t), map[string]string{}, 0
	for _, c := range shownCommands(t) {
		if !ours.MatchString(c.text) {
			continue
		}
		all := ""
		for _, name := range commandsOf(c.text) {
			if known[name] == "" {
				known[name] = knownFlags(t, bin, name)
			}
			all += known[name] + " "
		}
		for _, m := range flagWord.FindAllStringSubmatch(c.text, -1) {
			seen++
			if !regexp.MustCompile(regexp.QuoteMeta(m[1]) + `([\s,=\[]|$)`).MatchString(all) {
				t.Errorf("%s: %s is no flag of %v: %s", c.page, m[1], commandsOf(c.text), c.text)
			}
		}
	}
	if seen < 300 {
		t.Errorf("%d flags on all pages; the reader is broken", seen)
	}
}

// TestShownCommandsRun runs the commands of a page in a folder of its own, in their order: a share of the pages that the seed
// DOCS_SEED chooses, all with DOCS_SHARE=1. What is not run is listed with its reason (-v).
func TestShownCommandsRun(t *testing.T) {
	share, err := strconv.ParseFloat(orElse("DOCS_SHARE", "0.3"), 64)
	if err != nil {
		t.Fatal(err)
	}
	bin, pages, reasons := program(t), map[string][]shown{}, map[string]int{}
	all := 0
	for _, c := range shownCommands(t) {
		if why := whyNot(c); why != "" {
			reasons[why]++
			t.Logf("not run, %s: %s: %s", why, c.page, c.text)
			continue
		}
		pages[c.page] = append(pages[c.page], c)
		if ours.MatchString(c.text) {
			all++
		}
	}
	ran := 0
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		h := fnv.New32a()
		fmt.Fprint(h, page, orElse("DOCS_SEED", "1"))
		if float64(h.Sum32()%1000) >= 1000*share {
			continue
		}
		for _, c := range pages[page] {
			if ours.MatchString(c.text) {
				ran++
			}
		}
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) { runShown(t, bin, pages[page]) })
	}
	t.Logf("%d of the %d commands that run here were run; not run: %v", ran, all, reasons)
}

func orElse(variable, otherwise string) string {
	if v := os.Getenv(variable); v != "" {
		return v
	}
	return otherwise
}

// runShown runs a page's commands with what their names stand for.
func runShown(t *testing.T, bin string, list []shown) {
	folder := t.TempDir()
	if err := os.Symlink(bin, filepath.Join(folder, "bin")); err != nil {
		t.Fatal(err)
	}
	prepare := ""
	for _, c := range list {
		prepare += c.text + "\n"
	}
	run := func(line string) (int, string) {
		ctx, cancel := context.WithTimeout(t.Context(), slow)
		defer cancel()
		cmd := exec.CommandContext(ctx, "bash", "-eu", "-c", line)
		cmd.Dir, cmd.Env = folder, append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "TERM=dumb")
		out, _ := cmd.CombinedOutput()
		return cmd.ProcessState.ExitCode(), string(out)
	}
	if code, out := run(standIns(prepare)); code != 0 {
		t.Fatalf("what the page's commands need: %s", out)
	}
	for _, c := range list {
		want := 0
		for part, code := range codes {
			if strings.Contains(c.text, part) {
				want = code
			}
		}
		if code, out := run(strings.NewReplacer("FOLDER", "run", "/tmp/", "").Replace(c.text)); code != want {
			t.Errorf("%s ends with %d, want %d:\n%s", c.text, code, want, out)
		}
	}
}

// standIns makes the files that commands name: a corpus, texts, and where no command makes them a run and its checkpoint.
func standIns(commands string) string {
	script := `echo '{"text": "Once upon a time there was a run."}' >corpus.jsonl; echo Once >start.txt; echo "The quick" >x.txt` + "\n"
	if strings.Contains(commands, "ckpt") && !strings.Contains(commands, "--save ckpt") || strings.Contains(commands, "FOLDER") {
		script += `for i in $(seq 200); do cat corpus.jsonl; done >many.jsonl
bin/preprocess_data --input many.jsonl --output-prefix many --tokenizer-type GPT2BPETokenizer --append-eod >out 2>&1
bin/pretrain_gpt --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 2 --train-iters 3 --lr 1e-2 \
  --tokenizer-type GPT2BPETokenizer --data-path many_text_document --split 100,0,0 --eval-iters 0 --save ckpt --log-jsonl run/steps.jsonl >out 2>&1 || { cat out; exit 1; }
`
	}
	return script
}
