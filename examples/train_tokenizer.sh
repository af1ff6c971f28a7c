# A BPE of one's own, and ids with it.
yes 'the cat sat on the mat' | head -n 100 >text.txt
monotron train_tokenizer --input text.txt --output-dir mine --vocab-size 270
echo 'the mat' | monotron tokenize --tokenizer-type HuggingFaceTokenizer --tokenizer-model mine | tee ids
monotron tokenize --tokenizer-type HuggingFaceTokenizer --tokenizer-model mine --decode <ids | grep -x '"the mat"'
