// Package punkt cuts text into sentences exactly as NLTK's PunktSentenceTokenizer
// (3.9 and later) does with the same parameters. The method is that of Kiss and
// Strunk, "Unsupervised Multilingual Sentence Boundary Detection" (2006).
//
// punkt.go finds positions where a sentence may end and joins the pieces, decide.go
// judges them, words.go cuts the words that the judgement needs.
package punkt
