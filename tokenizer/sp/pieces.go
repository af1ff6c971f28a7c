package sp

// Piece is an entry of a vocabulary. Kind is its number in the file: 1 normal, 2
// unknown, 3 control, 4 user-defined, 5 unused, 6 a byte.
type Piece struct {
	Text  string
	Score float32
	Kind  int
}

// Pieces lists the vocabulary of a .model file by id, and reports whether it is a unigram
// model and no BPE.
func Pieces(data []byte) (list []Piece, unigram bool, err error) {
	s, err := parse(data)
	if err != nil {
		return nil, false, err
	}
	for _, p := range s.pieces {
		list = append(list, Piece{p.text, p.score, int(p.kind)})
	}
	return list, s.modelType == 1, nil
}
