package checkpoint

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"monotron/internal/exitcode"
)

// Names that tell formats apart.
const (
	TrackerName  = "latest_checkpointed_iteration.txt"
	ManifestName = "manifest.json" // native
	DistMetadata = ".metadata"     // torch_dist
	DistMarker   = "metadata.json" // torch_dist, complete
	RankPrefix   = "mp_rank_"      // torch
	RankFile     = "model_optim_rng.pt"
	ReleaseName  = "release"
	IterPrefix   = "iter_"
	AsidePrefix  = ".old-" // before the name of a checkpoint whose successor is taking it

	llmcMagic = 20240326
	ggufMagic = "GGUF"
)

// Detect finds the format of a checkpoint from its content.
// exitcode.NoInput where path is missing or holds no checkpoint.
func Detect(path string) (Format, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", exitcode.Errorf(exitcode.NoInput, "%s does not exist", path)
	}
	if err != nil {
		return "", exitcode.With(exitcode.IO, err)
	}
	if !st.IsDir() {
		return detectFile(path)
	}
	// The folder itself, or the iterations in it, the newest first.
	if f, ok := detectFolder(path); ok {
		return f, nil
	}
	for _, inner := range iterations(path) {
		if f, ok := detectFolder(filepath.Join(path, inner)); ok {
			return f, nil
		}
	}
	// Formats of a single file with a fixed name.
	for _, name := range []string{"ckpt.pt", "model.bin"} {
		if inner := filepath.Join(path, name); regular(inner) {
			return detectFile(inner)
		}
	}
	if found := filesLike(path, "model_*.bin"); len(found) > 0 {
		return LLMC, nil
	}
	// Weights without a description.
	for _, name := range filesLike(path, "*.safetensors") {
		return "", exitcode.Errorf(exitcode.NoInput, "%s has %s but no config.json, without which the shape of the model is not known", path, name)
	}
	if below := Below(path); len(below) > 0 {
		return "", exitcode.Errorf(exitcode.NoInput, "%s contains no checkpoint, but folders in it do; give %s", path, strings.Join(below, " or "))
	}
	return "", exitcode.Errorf(exitcode.NoInput, "%s contains no checkpoint: neither it nor its %[6]s folders have %[2]s, %[3]s*, %[4]s, %[5]s, config.json, ckpt.pt or model_*.bin",
		path, ManifestName, RankPrefix, DistMetadata, TrackerName, IterPrefix)
}

// mostBelow is how many folders Below names.
const mostBelow = 8

// Below lists the folders in path that hold a checkpoint, as those of a tuning's output or of several runs: path was
// meant to be one of them.
func Below(path string) (list []string) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		inner := filepath.Join(path, e.Name())
		_, is := detectFolder(inner)
		is = is || slices.ContainsFunc(iterations(inner), func(name string) bool {
			_, is := detectFolder(filepath.Join(inner, name))
			return is
		})
		if is && len(list) < mostBelow {
			list = append(list, inner)
		}
	}
	return list
}

// DetectAt is Detect for one iteration of a save folder, step -1 for the latest:
// a run whose --ckpt-format was changed has several formats in one folder.
func DetectAt(path string, step int64) (Format, error) {
	if step >= 0 {
		if f, ok := detectFolder(filepath.Join(path, IterName(step))); ok {
			return f, nil
		}
	}
	return Detect(path)
}

// iterations lists the folders of a save folder that may hold a checkpoint, the
// tracker's first, then newest first.
func iterations(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	tracked := ""
	if n, err := ReadTracker(dir); err == nil {
		tracked = n.Folder()
	}
	var list []string
	for _, e := range entries {
		if name := e.Name(); e.IsDir() && (strings.HasPrefix(name, IterPrefix) || name == ReleaseName) {
			list = append(list, name)
		}
	}
	sort.Slice(list, func(a, b int) bool {
		if x, y := list[a] == tracked, list[b] == tracked; x != y {
			return x
		}
		return list[a] > list[b]
	})
	return list
}

func detectFolder(dir string) (Format, bool) {
	switch {
	case regular(filepath.Join(dir, ManifestName)):
		return Native, true
	case regular(filepath.Join(dir, DistMarker)), regular(filepath.Join(dir, DistMetadata)):
		return MegatronTorchDist, true
	case len(filesLike(dir, RankPrefix+"*")) > 0:
		return MegatronTorch, true
	case regular(filepath.Join(dir, "config.json")):
		return HF, true
	}
	return "", false
}

func detectFile(path string) (Format, error) {
	f, err := exitcode.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var head [4]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return "", exitcode.Errorf(exitcode.BadData, "%s: %w while reading its first four bytes; it is not a checkpoint", path, err)
	}
	switch {
	case string(head[:]) == ggufMagic:
		return GGUF, nil
	case binary.LittleEndian.Uint32(head[:]) == llmcMagic:
		return LLMC, nil
	case filepath.Base(path) == RankFile:
		return MegatronTorch, nil
	case strings.HasSuffix(path, ".pt"), string(head[:2]) == "PK":
		return NanoGPT, nil
	case strings.HasSuffix(path, ".bin"):
		return LLMC, nil
	}
	return "", exitcode.Errorf(exitcode.BadData, "%s does not begin like an llm.c file (with the number %d), a GGUF file (with \"GGUF\") or a torch.save file (with \"PK\"); for Hugging Face weights give the folder with config.json", path, llmcMagic)
}

// Tracked is what a tracker file names.
type Tracked struct {
	Iteration int64
	Release   bool
}

// Folder is the name of the folder it means.
func (t Tracked) Folder() string {
	if t.Release {
		return ReleaseName
	}
	return IterName(t.Iteration)
}

// IterName is the folder of an iteration.
func IterName(n int64) string {
	s := strconv.FormatInt(n, 10)
	return IterPrefix + strings.Repeat("0", max(0, 7-len(s))) + s
}

// ReadTracker reads latest_checkpointed_iteration.txt of a save folder.
func ReadTracker(dir string) (Tracked, error) {
	path := filepath.Join(dir, TrackerName)
	text, err := exitcode.ReadFile(path, 64)
	if exitcode.CodeOf(err) == exitcode.BadData {
		return Tracked{}, exitcode.Errorf(exitcode.BadData, "%s must be a regular file of at most 64 bytes, with one iteration number", path)
	}
	if err != nil {
		return Tracked{}, err
	}
	word := strings.TrimSpace(string(text))
	if word == ReleaseName {
		return Tracked{Release: true}, nil
	}
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil || n < 0 {
		return Tracked{}, exitcode.Errorf(exitcode.BadData, "%s contains %q, which is neither an iteration nor %q", path, text, ReleaseName)
	}
	return Tracked{Iteration: n}, nil
}

func regular(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

func filesLike(dir, pattern string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var list []string
	for _, e := range entries {
		if ok, _ := filepath.Match(pattern, e.Name()); ok {
			list = append(list, e.Name())
		}
	}
	return list
}

// SavedFolder is the folder of one checkpoint in a save folder: the given
// iteration's, or where step is negative the one that the tracker names. Foreign
// checkpoints have no checksums, so no other checkpoint replaces one that is
// missing.
func SavedFolder(save string, step int64) (string, error) {
	t := Tracked{Iteration: step}
	if step < 0 {
		var err error
		if t, err = ReadTracker(save); err != nil {
			return "", err
		}
	}
	dir := filepath.Join(save, t.Folder())
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		why, found := "", "no checkpoint"
		if step < 0 {
			why = ", which " + TrackerName + " names,"
		}
		if list := iterations(save); len(list) > 0 {
			found = "only " + strings.Join(list, ", ")
		}
		return "", exitcode.Errorf(exitcode.NoInput, "%s%s does not exist; %s contains %s", dir, why, save, found)
	}
	return dir, nil
}
