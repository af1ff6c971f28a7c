# Manual pages: of the program, and of a command with its flags.
monotron man >monotron.1
monotron man pretrain_gpt >pretrain_gpt.1
grep -q 'tensor\\*-model\\*-parallel\\*-size' pretrain_gpt.1
