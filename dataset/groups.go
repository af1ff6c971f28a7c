package dataset

import (
	"slices"
	"strconv"
	"strings"

	"monotron/internal/exitcode"
)

// Groups are the blends of one split in Megatron-DeepSpeed's form (--train-weighted-split-paths): Texts
// "NAME: WEIGHT START:END PREFIX, WEIGHT START:END PREFIX", or a File that holds such texts in double
// quotes. START:END, from 0 to 1, is the range of the dataset's sequences.
type Groups struct {
	Texts []string
	File  string
}

func (g Groups) given() bool { return len(g.Texts) > 0 || g.File != "" }

// groupFlags are the names of the flags of the three splits.
var groupFlags = [3]string{"--train-weighted-split-paths", "--valid-weighted-split-paths", "--test-weighted-split-paths"}

// mixture reads the group of a split. Relative files start from dir.
func (g Groups) mixture(s Split, dir string) (m mixture, err error) {
	flag := groupFlags[s]
	texts := g.Texts
	if g.File != "" {
		flag += "-path"
		text, err := readArgs(flag, inDir(dir, g.File))
		if err != nil {
			return m, err
		}
		line := strings.TrimSpace(string(text))
		if len(line) < 2 || line[0] != '"' || line[len(line)-1] != '"' || strings.Contains(line, "\n") {
			return m, exitcode.Errorf(exitcode.BadData, "%s %s: the file must be one line \"NAME: WEIGHT START:END PREFIX, ...\", including the quotes", flag, g.File)
		}
		texts = strings.Split(line[1:len(line)-1], `" "`)
	}
	if len(texts) > 1 {
		return m, exitcode.Errorf(exitcode.Usage, "%s has %d groups, but the data of a split must be one blend; join them into one group, or run one evaluation for each group with --skip-train", flag, len(texts))
	}
	return parseGroup(flag, texts[0])
}

// Check reads the texts of a split, without any file.
func (g Groups) Check(s Split) error {
	if len(g.Texts) == 0 {
		return nil
	}
	_, err := Groups{Texts: g.Texts}.mixture(s, "")
	return err
}

// parseGroup reads "NAME: WEIGHT START:END PREFIX, WEIGHT START:END PREFIX".
func parseGroup(flag, text string) (m mixture, err error) {
	_, list, named := strings.Cut(text, ":")
	if !named {
		return m, exitcode.Errorf(exitcode.Usage, "%s: %q is not of the form NAME: WEIGHT START:END PREFIX, ...", flag, text)
	}
	for _, one := range strings.Split(list, ",") {
		// WEIGHT START:END PREFIX
		words := strings.Fields(one)
		if len(words) != 3 {
			return m, exitcode.Errorf(exitcode.Usage, "%s: %q is not of the form WEIGHT START:END PREFIX", flag, strings.TrimSpace(one))
		}
		weight, err := strconv.ParseFloat(words[0], 64)
		if err != nil {
			weight = 0
		}
		if err := checkWeight(flag, words[0], weight, words[2]); err != nil {
			return m, err
		}
		// The range, in fractions of the prefix's sequences.
		from, to, _ := strings.Cut(words[1], ":")
		row := [2]float64{}
		for i, number := range []string{from, to} {
			if row[i], err = strconv.ParseFloat(number, 64); err != nil {
				break
			}
		}
		if err != nil || !(0 <= row[0] && row[0] < row[1] && row[1] <= 1) {
			return m, exitcode.Errorf(exitcode.Usage, "%s: the range %s of %s must be START:END with 0 <= START < END <= 1", flag, words[1], words[2])
		}
		m.prefixes, m.weights, m.rows = append(m.prefixes, words[2]), append(m.weights, weight), append(m.rows, &row)
	}
	return m, nil
}

// Prefixes are all values of the flags that name data: prefixes, and the weights among the prefixes.
func (c *Config) Prefixes() []string {
	all := slices.Concat(c.DataPath, c.TrainDataPath, c.ValidDataPath, c.TestDataPath)
	for s, g := range c.Groups {
		if len(g.Texts) == 0 {
			continue
		}
		if m, err := g.mixture(Split(s), c.Dir); err == nil {
			all = append(all, m.prefixes...)
		}
	}
	return all
}

// grouped reports whether data is given as groups.
func (c *Config) grouped() bool {
	return slices.ContainsFunc(c.Groups[:], Groups.given)
}

// group makes the dataset of a split that is given as a group. A group of one dataset is that dataset.
func (m *maker) group(s Split) (Dataset, error) {
	mix, err := m.Groups[s].mixture(s, m.Dir)
	if err != nil {
		return nil, err
	}
	one := func(i int, num *int64) (*GPT, error) {
		row := mix.rows[i]
		return m.gpt(mix.prefixes[i], s, row, num, rangeText(*row), []any{[]any{row[0], row[1]}})
	}
	return m.blend(mix, s, len(mix.prefixes) == 1, one)
}

// rangeText is a range as the description of a cache holds it.
func rangeText(row [2]float64) string { return pyFloat(row[0]) + ":" + pyFloat(row[1]) }
