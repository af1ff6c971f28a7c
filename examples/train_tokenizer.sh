# A tokenizer from a few lines of text, then ids with it.
for i in 1 2 3 4 5 6 7 8 9; do echo "the cat sat on the mat, and the rat sat on the cat $i times"; done >text.txt
monotron train_tokenizer --help >/dev/null
