# Commands and flags are completed in bash; `monotron completion zsh` and fish likewise.
monotron completion bash >complete.bash
bash -eu -c '
  . ./complete.bash
  COMP_WORDS=(monotron pretrain_gpt --tensor-model) COMP_CWORD=2
  _monotron
  echo "${COMPREPLY[@]}"
  test "${COMPREPLY[*]}" = --tensor-model-parallel-size'
