package training

import (
	"fmt"

	"monotron/dataset"
	"monotron/dataset/sft"
	"monotron/megatron/config"
	"monotron/megatron/preference"
	"monotron/tokenizer"
)

// preferenceData opens the rows of --finetune-data and --finetune-eval-data.
func preferenceData(c *config.Run, tok tokenizer.Tokenizer, s sft.Config) (sets [3]dataset.Dataset, err error) {
	// A file is read to its end and its rows are reported.
	open := func(flag, path string) (*sft.Preferences, error) {
		set, err := sft.NewPreferences(path, tok, s)
		if err == nil && c.Data.Notice != nil {
			c.Data.Notice(fmt.Sprintf("%s: %s; the last token of the first answer is %q", path, set, tok.Decode(set.Rows[0].Last())))
			tellUnused(c, path, &set.Counts)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", flag, err)
		}
		return set, err
	}
	train, err := open("--finetune-data", c.Tuning.Data)
	if err != nil {
		return sets, err
	}
	// Training goes over the rows again and again, evaluation once.
	sets[dataset.Train] = sft.Epochs(train, s)
	if text := unbalanced(train, &c.Tuning.Preference.Options); text != "" && c.Data.Notice != nil {
		c.Data.Notice(text)
	}
	if c.Tuning.EvalData == "" {
		return sets, nil
	}
	valid, err := open("--finetune-eval-data", c.Tuning.EvalData)
	if err != nil {
		return sets, err
	}
	sets[dataset.Valid] = valid
	return sets, nil
}

// unbalanced says which weights make up for different numbers of good and bad answers, where those
// given do not: the weight of all good ones is to be 1 to 4/3 times that of all bad ones
// (Ethayarajh et al., equation 8). "": they do.
func unbalanced(set *sft.Preferences, o *preference.Options) string {
	good, bad := float64(set.Good()), float64(len(set.Rows)-set.Good())
	if set.Paired() || good*bad*o.Good*o.Bad == 0 {
		return ""
	}
	if ratio := o.Good * good / (o.Bad * bad); good == bad || ratio >= 0.995 && ratio <= 4.0/3+0.005 {
		return ""
	}
	return fmt.Sprintf("there are %g good and %g bad answers, whose weights do not balance their numbers; to balance them, use --kto-desirable-weight %.2f to %.2f, or --kto-undesirable-weight %.2f to %.2f",
		good, bad, o.Bad*bad/good, o.Bad*bad/good*4/3, o.Good*good/bad*3/4, o.Good*good/bad)
}
