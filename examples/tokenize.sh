# The ids of a text, one array a line, and back.
echo 'Hello, world' | monotron tokenize --tokenizer-type GPT2BPETokenizer | tee ids
test "$(cat ids)" = '[15496, 11, 995]'
monotron tokenize --tokenizer-type GPT2BPETokenizer --decode <ids
