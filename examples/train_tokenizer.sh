# A tokenizer from a few lines of text, then ids with it; the text comes back.
for i in 1 2 3 4 5 6 7 8 9; do echo "the cat sat on the mat, and the rat sat on the cat $i times"; done >text.txt
monotron train_tokenizer --input text.txt --input-format text --vocab-size 290 --output-dir own
echo "the cat sat on the mat" >line.txt
monotron tokenize --tokenizer-type GPT2BPETokenizer --vocab-file own/vocab.json --merge-file own/merges.txt <line.txt >ids.txt
monotron tokenize --tokenizer-type GPT2BPETokenizer --vocab-file own/vocab.json --merge-file own/merges.txt --decode <ids.txt
