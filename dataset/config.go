// Package dataset reads tokenised corpora and serves training samples.
package dataset

// Config says where samples come from and how a sample is shaped.
type Config struct {
	DataPath      []string // prefixes, or weight and prefix in turn; cut by Split
	TrainDataPath []string // the same, one list a split; exclusive with DataPath
	ValidDataPath []string
	TestDataPath  []string

	DataArgsPath         string // file that holds what --data-path would
	PerSplitDataArgsPath string // JSON file with the three lists

	Split     string // "969,30,1"
	CachePath string // index arrays; "": beside the data
	Mock      bool   // made-up tokens, no files

	SequenceLength     int
	ResetPositionIDs   bool
	ResetAttentionMask bool
	EODMaskLoss        bool

	NoMmap           bool    // read .bin with pread instead of mapping it
	MidLevelSurplus  float64 // share of extra samples drawn per blended dataset
	MultipleValidate bool    // one validation result per --valid-data-path entry
}
