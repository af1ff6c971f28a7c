# Every flag of pretrain_gpt, for a program that makes command lines.
monotron flags --json >flags.json
grep -c '"class": "works"' flags.json
