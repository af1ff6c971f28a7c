# The version, which checkpoints record too.
monotron version
test "$(pretrain_gpt --version)" = "$(monotron version)"
