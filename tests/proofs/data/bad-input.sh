# Each kind of bad input: one error with file and line or byte, its exit code, nothing left behind.
. "$(dirname "$0")/../common.sh"
bin=$PWD/bin
cd "$work" || exit
failed=0
good='{"text": "one two"}'
check() { # name, exit code, what the error says; the command follows
  name=$1 code=$2 says=$3
  shift 3
  rm -rf out && mkdir out
  rc=0
  "$@" >stdout 2>stderr || rc=$?
  text=$(grep '^monotron:' stderr || true)
  left=$(ls -A out | tr '\n' ' ')
  if [ $rc = "$code" ] && [ "$(grep -c '^monotron:' stderr)" = 1 ] && printf %s "$text" | grep -q -- "$says" && [ -z "$left" ]; then
    printf 'ok   %-22s %s\n' "$name" "$(printf %.150s "$text")"
  else
    printf 'FAIL %-22s exit %s, want %s saying %s; left: %s; said: %.300s\n' "$name" $rc "$code" "$says" "$left" "$(tail -3 stderr)"
    failed=1
  fi
}
encode() { "$bin/preprocess_data" --input "$1" --output-prefix out/x --tokenizer-type GPT2BPETokenizer "${@:2}"; }
line() { printf '%s\n%b\n%s\n' "$good" "$2" "$good" >"$1.jsonl" && check "$1" 65 "$1.jsonl:2" encode "$1.jsonl"; }
line invalid-utf8 '{"text": "a\xffb"}'
line lone-surrogate '{"text": "\\ud800"}'
line nul '{"text": "a\0b"}'
line blank-line ''
line missing-key '{"title": "x"}'
line null-value '{"text": null}'
line number '{"text": 5}'
line no-json 'hello'
head -c 1100000000 /dev/zero | tr '\0' a >long.jsonl
check one-gb-line 65 'long.jsonl:1.*max-line-bytes' encode long.jsonl
rm long.jsonl
for i in $(seq 20000); do echo "{\"text\": \"some words $i\"}"; done >many.jsonl
head -c 40000 <(gzip -c many.jsonl) >cut.jsonl.gz # gzip is not told that nobody reads on
check truncated-gzip 65 'cut.jsonl.gz: reading after line' encode cut.jsonl.gz
for packer in zstd xz bzip2; do
  command -v $packer >/dev/null || { echo "skip truncated-$packer: it is not installed"; continue; }
  $packer -c many.jsonl | head -c -50 >cut.$packer
  check truncated-$packer 65 "cut.$packer: reading after line" encode cut.$packer
done
printf '{"text": "\\udc00 x"}\n' >low.jsonl
check low-surrogate 65 'low.jsonl:1' encode low.jsonl
printf '{"text": ["a", 5]}\n' >mixed.jsonl
check list-with-number 65 'mixed.jsonl:1' encode mixed.jsonl
printf '["text", "a"]\n' >array.jsonl
check no-object 65 'array.jsonl:1' encode array.jsonl
printf '{"text": "a"' >open.jsonl
check open-object 65 'open.jsonl:1' encode open.jsonl
mkdir small
if mount -t tmpfs -o size=64k none small 2>/dev/null; then
  check small-disk 74 'No space\|no space' "$bin/preprocess_data" --input many.jsonl --output-prefix small/x --tokenizer-type GPT2BPETokenizer
  [ -z "$(ls -A small)" ] || { ls -lA small; failed=1; }
  umount small
else
  echo "skip small-disk: no tmpfs can be mounted here"
fi
full() { (ulimit -f 100 && encode many.jsonl); }
check disk-full 74 'x_text_document.bin' full
check missing-file 66 'none.jsonl: the file does not exist' encode none.jsonl
encode many.jsonl 2>/dev/null && mv out/x_text_document.bin a.bin && mv out/x_text_document.idx a.idx && rm -r out
damage() { # name, byte, bytes in printf's escapes, what is said
  cp a.bin d.bin && cp a.idx d.idx
  printf "$3" | dd of=d.idx bs=1 seek="$2" conv=notrunc 2>/dev/null
  check "$1" 65 "$4" "$bin/monotron" inspect dataset d
}
damage other-dtype 17 '\004' 'd.idx: byte'
damage other-magic 0 'X' 'd.idx: byte 0'
damage negative-length 34 '\377\377\377\377' 'd.idx: byte 34'
damage offset 80034 '\377\377\377' 'd.idx: byte'
head -c 1000 a.idx >d.idx
check cut-index 65 'd.idx: byte' "$bin/monotron" inspect dataset d
exit $failed
